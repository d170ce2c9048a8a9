package endtoend_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/delegate-io/dlite/manager/api"
)

// longRunVariable is the environment variable for the number of stages of the long run.
const longRunVariable = "DLITE_TEST_LONG_RUN"

// use contains the resources that a program occupies.
type use struct {
	memory      int // resident
	heap        int // live after the last garbage collection
	descriptors int
	goroutines  int
	disk        int
}

// useOf measures a program. Its metrics are at an address.
func (s *rig) useOf(ctx context.Context, t *testing.T, pid int, metrics string, dirs ...string) (u use) {
	t.Helper()
	u.memory = residentMemory(t, pid)
	descriptors, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	require.NoError(t, err)
	u.descriptors = len(descriptors)
	for _, dir := range dirs {
		u.disk += int(sizeOfFiles(t, dir, ""))
	}
	text := ""
	for text == "" && ctx.Err() == nil { // the program may have started a moment ago
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+metrics+"/metrics", nil)
		require.NoError(t, err)
		res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			<-time.After(50 * time.Millisecond)
			continue
		}
		b, err := io.ReadAll(res.Body)
		require.NoError(t, errors.Join(err, res.Body.Close()))
		text = string(b)
	}
	value := func(name string) int {
		_, rest, found := strings.Cut(text, "\n"+name+" ")
		require.True(t, found, "%s has no metric %s", metrics, name)
		line, _, _ := strings.Cut(rest, "\n")
		v, err := strconv.ParseFloat(line, 64)
		require.NoError(t, err)
		return int(v)
	}
	// The next collection begins when the heap has twice the size that was live after the last one.
	u.heap, u.goroutines = value("go_memstats_next_gc_bytes")/2, value("go_goroutines")
	return u
}

func (u use) String() string {
	return fmt.Sprintf("%d MiB of memory, %d KiB of live heap, %d descriptors, %d goroutines, %d KiB of files",
		u.memory>>20, u.heap>>10, u.descriptors, u.goroutines, u.disk>>10)
}

// median returns the median of each number.
func median(all []use) (m use) {
	of := func(number func(use) int) int {
		var numbers []int
		for _, u := range all {
			numbers = append(numbers, number(u))
		}
		slices.Sort(numbers)
		return numbers[len(numbers)/2]
	}
	return use{
		memory: of(func(u use) int { return u.memory }), heap: of(func(u use) int { return u.heap }),
		descriptors: of(func(u use) int { return u.descriptors }), goroutines: of(func(u use) int { return u.goroutines }),
		disk: of(func(u use) int { return u.disk }),
	}
}

// year is a year of events in fast forward. A round is a week in it.
type year struct {
	*rig
	t                 *testing.T
	manager, delegate *mortal
	ca                *privateCA
	releases          *releases
	counts            map[string]int
	rotated           map[string]bool // the names of rotated log files
	rounds, perRound  int
	perpetual         int
	interval          time.Duration
	log               string // directory with the log of the delegate
	metrics           [2]string
}

const (
	outage = 2 * time.Second // how long a program or the network is away
	// settled is when a manager under constant load occupies what it will occupy: for 10 minutes it keeps the streams of
	// logs that are complete.
	settled = 11 * time.Minute
)

// The programs run for long without growth: stages and perpetual tasks, while the log is rotated, the certificate of
// the manager is renewed, the delegate is upgraded, both programs stop to answer for a while, and the network between them
// fails. Both are killed once, at the start. The retention limits of the manager are small, so that a long run reaches
// them.
func TestALongRunDoesNotGrow(t *testing.T) {
	stages := 200
	if text := os.Getenv(longRunVariable); text != "" {
		var err error
		stages, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	// 100,000 stages are 50 rounds and 500 perpetual tasks. The load of perpetual tasks does not depend on their number.
	y := &year{t: t, ca: newPrivateCA(t), releases: newReleases(t), counts: map[string]int{}, rotated: map[string]bool{}, log: t.TempDir()}
	y.rounds = min(max(stages/400, 10), 50)
	y.perRound = stages / y.rounds
	y.perpetual = min(max(stages/200, 50), 500)
	y.interval = time.Duration(y.perpetual/50) * time.Second
	for i := range y.metrics {
		y.metrics[i] = "127.0.0.1:" + freePort(t)
	}
	y.rig = newRig(t, rigConfig{cert: y.ca.cert, key: y.ca.key, roots: y.ca.roots, mortal: true, cable: true, release: firstRelease, settings: append(y.releases.settings(),
		"TRUSTED_STEPS=true", "MAX_STAGES=8", "CERTS_DIR="+y.ca.dir, "HTTP_BIND="+y.metrics[1],
		"LOG_LEVEL=debug", "LOG_ENABLE_FILE_LOGGING=true", "LOG_FILE="+filepath.Join(y.log, "delegate.log"), "LOG_MAX_SIZE_MB=1", "LOG_MAX_BACKUPS=1",
	)})
	var err error
	y.releases.program, err = os.ReadFile(filepath.Join(y.dir, "delegate"))
	require.NoError(t, err)
	y.serve = append(y.serve, "--max-finished", "200", "--pipelines-max-bytes", "100000", "--http-bind", y.metrics[0])
	y.manager, y.delegate = y.mortals(t)
	defer y.manager.stop()
	defer y.delegate.stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(stages)*time.Second+10*time.Minute)
	defer cancel()
	registry := y.startPerpetual(ctx)
	defer registry.Close()

	begun := time.Now()
	var weeks [2][]use // of the manager and of the delegate
	unsettled := 2     // the number of rounds before the first measurement: both programs were killed in them
	long := stages >= 20_000
	for round := range y.rounds {
		if deadline, ok := t.Deadline(); ok && round > 4 && time.Until(deadline) < 2*time.Minute {
			t.Errorf("only %d of %d stages have run in this time: set -timeout", y.counts["stages"], stages)
			break
		}
		y.week(ctx, round)
		if long && time.Since(begun) < settled {
			unsettled = round + 1
		}
		now := [2]use{
			y.useOf(ctx, t, y.manager.cmd.Process.Pid, y.metrics[0], filepath.Join(y.dir, "data")),
			y.useOf(ctx, t, y.delegate.cmd.Process.Pid, y.metrics[1], filepath.Join(y.dir, "work"), filepath.Join(y.dir, "ledger")),
		}
		// Complete logs stay until their room is needed.
		logs := int(sizeOfFiles(t, filepath.Join(y.dir, "data", "logs"), ""))
		now[0].disk -= logs
		y.counts["KiB of logs of steps"] = logs >> 10
		for i, u := range now {
			weeks[i] = append(weeks[i], u)
		}
		t.Logf("after %d stages, %s: the manager has %s; the delegate has %s", y.counts["stages"], time.Since(begun).Round(time.Second), now[0], now[1])
	}
	delegate := y.checkPerpetual(ctx, time.Since(begun))
	t.Logf("%d perpetual tasks at %s; counts: %v", y.perpetual, delegate, y.counts)

	require.Greater(t, len(weeks[0]), unsettled, "the run has ended before the programs had settled: take more stages")
	rooms := []int{20 << 20, 64 << 10} // the manager saves its state each time its log has become long
	for i, name := range []string{"the manager", "the delegate"} {
		measured := weeks[i][unsettled:]
		quarter := (len(measured) + 3) / 4
		first, last := median(measured[:quarter]), median(measured[len(measured)-quarter:])
		t.Logf("%s, median of the first quarter: %s; of the last: %s", name, first, last)
		flat := func(what string, first, last, room int) {
			assert.LessOrEqual(t, last, first+first/10+room, "%s of %s", what, name)
		}
		const noise = 64 // connections of the perpetual tasks that run at the instant, and what stages occupy that end late
		flat("descriptors", first.descriptors, last.descriptors, noise)
		flat("goroutines", first.goroutines, last.goroutines, 4*noise)
		if long {
			flat("memory", first.memory, last.memory, 0)
			flat("live heap", first.heap, last.heap, 0)
			flat("files", first.disk, last.disk, rooms[i])
		}
	}
	assert.Less(t, sizeOfFiles(t, y.log, ""), int64(3<<20), "the delegate keeps a log file and a rotated one")
}

// startPerpetual creates the perpetual tasks, which watch a registry.
func (y *year) startPerpetual(ctx context.Context) *httptest.Server {
	y.t.Helper()
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/tags/list") {
			_, _ = fmt.Fprintf(w, `{"name":"app","tags":["v1"]}`)
		}
	}))
	config, err := json.Marshal(map[string]any{"repository": strings.TrimPrefix(registry.URL, "http://") + "/app", "insecure": true, "tags": []string{"v*"}})
	require.NoError(y.t, err)
	for i := range y.perpetual {
		y.setPerpetual(ctx, y.t, &api.PerpetualTask{ID: fmt.Sprint("watch-", i), Type: "source/registry", Config: config, IntervalMS: y.interval.Milliseconds()})
	}
	return registry
}

// checkPerpetual checks that each perpetual task has run in the time. It returns the delegate.
func (y *year) checkPerpetual(ctx context.Context, within time.Duration) (delegate string) {
	y.t.Helper()
	// Outages, restarts and the lease of the killed delegate, which is longer than a short run, take their time.
	least := max(1, uint64(within/y.interval/4))
	if y.perRound < 100 {
		least = 1
	}
	for i := range y.perpetual {
		var p api.PerpetualTask
		require.NoError(y.t, y.ask(ctx, http.MethodGet, fmt.Sprintf("/api/perpetual/watch-%d?accountId=acc", i), nil, &p))
		assert.GreaterOrEqual(y.t, p.Runs, least, p.ID)
		assert.Empty(y.t, p.LastError, p.ID)
		y.counts["runs of perpetual tasks"] += int(p.Runs)
		delegate = p.DelegateName
	}
	return delegate
}

// week runs the stages of a round with its events.
func (y *year) week(ctx context.Context, round int) {
	y.t.Helper()
	events := y.events(round)
	var all, upgrade errgroup.Group
	all.SetLimit(8)
	if y.perRound >= 200 || round == 2 { // an upgrade takes longer than a round of a short run
		upgrade.Go(func() error { return y.upgrade(ctx, y.releases) })
		y.counts["upgrades"]++
	}
	for i := range y.perRound {
		if len(events) > 0 && i >= y.perRound/2 {
			y.counts[events[0].name]++
			events[0].do()
			events = events[1:]
		}
		all.Go(func() error { return y.stageToItsEnd(ctx, fmt.Sprintf("s-%d-%d", round, i)) })
	}
	require.NoError(y.t, all.Wait())
	require.NoError(y.t, upgrade.Wait())
	y.counts["stages"] += y.perRound
	files, err := filepath.Glob(filepath.Join(y.log, "*"))
	require.NoError(y.t, err)
	for _, f := range files {
		if filepath.Base(f) != "delegate.log" && !y.rotated[f] {
			y.rotated[f] = true
			y.counts["rotated logs seen"]++
		}
	}
}

type event struct {
	name string
	do   func()
}

// events returns the events of a round: all of them in a long run, and one of them in a short run.
func (y *year) events(round int) []event {
	pause := func(m *mortal) func() { return func() { m.pause(outage) } }
	networks := []event{
		{"network cut", func() {
			y.cable.setCut(true)
			<-time.After(outage)
			y.cable.setCut(false)
		}},
		{"connections lost", func() {
			y.cable.lose()
			<-time.After(outage)
			y.cable.setCut(true) // a router that lost them refuses their next packets after a while
			y.cable.setCut(false)
		}},
		{"network delayed", func() {
			deliver := y.cable.delay()
			<-time.After(outage)
			deliver()
		}},
	}
	switch all := []event{
		{"certificate renewed", func() { y.ca.issue(y.t) }}, {"manager away", pause(y.manager)}, {"delegate away", pause(y.delegate)}, networks[round%3],
	}; {
	case round == 0:
		return []event{{"manager killed", y.manager.restart}}
	case round == 1:
		return []event{{"delegate killed", y.delegate.restart}}
	case y.perRound >= 200:
		return all
	default:
		return all[round%4 : round%4+1]
	}
}

// pause stops the program for a time.
func (m *mortal) pause(d time.Duration) {
	require.NoError(m.t, m.cmd.Process.Signal(syscall.SIGSTOP))
	resumed := make(chan struct{})
	time.AfterFunc(d, func() {
		assert.NoError(m.t, m.cmd.Process.Signal(syscall.SIGCONT))
		close(resumed)
	})
	<-resumed
}

// setPerpetual creates a perpetual task.
func (s *rig) setPerpetual(ctx context.Context, t *testing.T, p *api.PerpetualTask) {
	t.Helper()
	body, err := json.Marshal(p)
	require.NoError(t, err)
	require.NoError(t, s.ask(ctx, http.MethodPut, "/api/perpetual/"+p.ID+"?accountId=acc", body, p))
}

// stageToItsEnd runs a stage of one host step. It runs again if the kill of its delegate made it fail.
func (s *rig) stageToItsEnd(ctx context.Context, id string) error {
	var st api.Stage
	body := `{"id":"` + id + `","retry":{"max_attempts":3,"on":["lost","failure"]},"steps":[{"id":"build","data":{"run":{"entrypoint":["sh","-c"],"commands":["echo done"]}}}]}`
	for method, path := http.MethodPost, "/api/stages?accountId=acc"; ; {
		if err := s.ask(ctx, method, path, []byte(body), &st); err != nil {
			return err
		}
		if st.Status.Ended() {
			if st.Status != api.Success {
				return fmt.Errorf("%s: %s: %s", id, st.Status, st.Error)
			}
			return nil
		}
		method, path, body = http.MethodGet, "/api/stages/"+id+"?wait=30&accountId=acc", ""
	}
}
