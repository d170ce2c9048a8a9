package manager_test

import (
	"database/sql"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/internal/journal"
	"github.com/delegate-io/dlite/manager/redis"
	"github.com/delegate-io/dlite/manager/sqlite"
)

// onStore is the environment variable with the store of all tests.
const onStore = "DLITE_TEST_STORE"

var storeKeys = [][]byte{[]byte("visibly fake key of tests")}

func openSQLite(t testing.TB, dir string) journal.Log {
	t.Helper()
	l, err := sqlite.Open(t.Context(), filepath.Join(dir, "manager.db"), sqlite.Config{})
	require.NoError(t, err)
	return l
}

func openRedis(t testing.TB, url, prefix string) journal.Log {
	t.Helper()
	l, err := redis.OpenStore(t.Context(), redis.Config{URL: url, Prefix: prefix})
	require.NoError(t, err)
	return l
}

// withStore sets the store that the tests run on.
func withStore(t testing.TB, cfg *manager.Config) {
	t.Helper()
	if os.Getenv(onStore) == "sqlite" && cfg.Store == nil {
		cfg.Store, cfg.StoreKeys = openSQLite(t, t.TempDir()), storeKeys
	}
}

// Rule Q7: the behavior is the same on every store, so all tests of this package
// also run there.
func TestOnSQLite(t *testing.T) {
	t.Parallel()
	if os.Getenv(onStore) != "" {
		t.Skip("this is the run on a store")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^Test", "-test.timeout=5m") //nolint:gosec // this program
	cmd.Env = append(os.Environ(), onStore+"=sqlite")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// Rules Q4 and Q7: a restarted manager has the whole state of the previous one.
// Running stages continue, waiting stages keep their places, held polls and cursors
// stay valid.
func TestARestartedManagerContinues(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := newClock()
	up := func() *server {
		return start(t, func(cfg *manager.Config) {
			cfg.Clock, cfg.Store, cfg.StoreKeys = c, openSQLite(t, dir), storeKeys
			cfg.Gap = 10 * time.Second
		})
	}
	s := up()
	d := s.register("d", dockerTypes)
	s.ok("POST", "/api/agent/delegates/register-delegate-capacity/"+d+"?accountId=acc", `{"maximumNumberOfBuilds":1}`, nil)
	for _, id := range []string{"first", "second", "third"} {
		s.ok("POST", "/api/stages?accountId=acc", `{"id":"`+id+`","priority":"`+map[bool]string{true: "HIGH", false: "NORMAL"}[id == "third"]+
			`","steps":[{"id":"s","data":{"run":{"commands":["<true> & \"x\""]}}}]}`, nil)
	}
	s.ok("PUT", "/api/schedules/nightly?accountId=acc", `{"cron":"0 3 * * *","stage":{"selectors":["nobody"],"steps":[{}]}}`, nil)
	before := s.take(d, dockerTypes[0])
	require.NoError(t, s.m.Close())

	c.Advance(10 * time.Minute) // far more than the heartbeat time-out
	s = up()
	first, err := s.m.Stage(account, "first")
	require.NoError(t, err)
	assert.Equal(t, api.Running, first.Status)
	assert.Equal(t, d, first.DelegateID)
	for id, place := range map[string]int{"third": 1, "second": 2} {
		got, err := s.m.Stage(account, id)
		require.NoError(t, err)
		assert.Equal(t, api.Queued, got.Status)
		assert.Equal(t, place, got.Place, id)
	}
	require.Len(t, s.m.Delegates(account), 1)
	assert.EqualValues(t, "ALIVE", s.m.Delegates(account)[0].State, "no manager could receive its heartbeats")
	assert.Equal(t, 200, s.beat(d))
	require.Len(t, s.m.Schedules(account), 1)

	r := s.acquire(d, before.ID) // the first answer may have been lost with the old manager
	require.Equal(t, 200, r.status, r.body)
	var again taken
	require.NoError(t, json.Unmarshal([]byte(r.body), &again))
	assert.Equal(t, before.ID, again.ID)
	assert.JSONEq(t, string(before.Data), string(again.Data))
	require.Equal(t, 204, s.respond(d, before.ID, succeeded))
	step := s.pass(d, dockerTypes[1], succeeded)
	assert.Contains(t, string(step.Data), "true")
	s.pass(d, dockerTypes[2], succeeded)
	assert.Equal(t, api.Success, s.ended("first").Status)
	third, err := s.m.Stage(account, "third")
	require.NoError(t, err)
	assert.Contains(t, third.Reason, "to take it")
}

// several starts managers on one Redis, with the wall clock.
func several(t *testing.T, n int) (all []*server) {
	t.Helper()
	r := testbed.Redis(t)
	for range n {
		s := start(t, func(c *manager.Config) {
			c.Store, c.StoreKeys, c.Clock = openRedis(t, r.URL(), "test"), storeKeys, nil
			c.Gap = 0
		})
		s.token = issue(t, fakeSecret, account, wallNow(), time.Hour)
		all = append(all, s)
	}
	return all
}

// Rule Q7: each call in the life of a stage goes to another manager, as behind a
// load balancer. Every manager knows the answers of all others.
func TestManagersOnOneRedis(t *testing.T) {
	t.Parallel()
	all := several(t, 3)
	turn := 0
	some := func() *server { turn++; return all[turn%len(all)] }
	d := some().register("d", dockerTypes)
	some().ok("POST", "/api/agent/delegates/register-delegate-capacity/"+d+"?accountId=acc", `{"maximumNumberOfBuilds":1}`, nil)
	events := some().events("&since=0", "")
	held := some().held(t.Context(), d, "")
	some().submit(`{"id":"one","steps":[{"id":"s","data":{}}]}`)
	require.Contains(t, within5(t, held).body, dockerTypes[0])
	some().submit(`{"id":"two"}`)
	require.Equal(t, 1, some().stage("two").Place)
	for i, kind := range dockerTypes {
		got := some().take(d, kind)
		r := some().acquire(d, got.ID)
		require.Equal(t, 200, r.status, "its first answer may have been lost")
		if i == 1 {
			require.Equal(t, 404, some().acquire("nobody", got.ID).status)
		}
		require.Equal(t, 204, some().respond(d, got.ID, succeeded))
		require.Equal(t, 204, some().respond(d, got.ID, succeeded), "twice is like once")
		some().call("GET", "/api/stages?accountId=acc", "") // reads all earlier commands too
	}
	require.Equal(t, api.Success, some().ended("one").Status)
	for e := next(t, events, "status"); e.Stage != "one" || e.Type != "stage" || e.Status != api.Success; {
		e = next(t, events, "status")
	}
	some().ok("POST", "/api/stages/two/abort?accountId=acc", "", nil)
	for _, s := range all {
		s.call("GET", "/api/stages?accountId=acc", "") // reads all earlier commands too
		assert.Equal(t, api.Aborted, s.stage("two").Status)
		assert.Equal(t, api.Success, s.stage("one").Status)
		assert.Zero(t, s.m.Delegates(account)[0].Stages)
	}
}

// Rule Q6: a schedule submits once for each time, with any number of managers, also
// if one of them ends.
func TestAScheduleOfSeveralManagers(t *testing.T) {
	t.Parallel()
	all := several(t, 3)
	events := all[1].events("&since=0", "")
	all[0].schedule("s", `{"cron":"* * * * * *","task":{"type":"x"}}`)
	seen := map[string]bool{}
	for len(seen) < 4 {
		e := next(t, events, "status")
		require.Equal(t, "task", e.Type)
		require.False(t, seen[e.Task], e.Task)
		seen[e.Task] = true
		if len(seen) == 2 {
			require.NoError(t, all[0].m.Close())
		}
	}
}

// A manager serves a database of a newer version without changing it. Its state can
// be read. Calls that would change it get the reason.
func TestADatabaseOfANewerVersionIsReadOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	up := func() *server {
		return start(t, func(cfg *manager.Config) { cfg.Store, cfg.StoreKeys = openSQLite(t, dir), storeKeys })
	}
	s := up()
	s.submit(`{"id":"s"}`)
	require.NoError(t, s.m.Close())
	db, err := sql.Open("sqlite", filepath.Join(dir, "manager.db"))
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "PRAGMA user_version = 1000")
	require.NoError(t, err)
	require.NoError(t, db.Close())

	s = up()
	assert.Equal(t, api.Queued, s.stage("s").Status)
	for _, r := range []reply{
		s.call("POST", "/api/stages?accountId=acc", withInit(`{"id":"new"}`)),
		s.call("POST", "/api/stages/s/abort?accountId=acc", ""),
	} {
		assert.Equal(t, 503, r.status)
		assert.Contains(t, r.body, "read-only")
		assert.Contains(t, r.body, "1000")
	}
	require.ErrorIs(t, s.m.Ready(t.Context()), journal.ErrReadOnly)
}
