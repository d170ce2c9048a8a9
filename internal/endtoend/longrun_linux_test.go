package endtoend_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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

const (
	longRunRounds    = 10
	longRunPerpetual = 50 // perpetual tasks, which run once a second each, also after the kill of their delegate
)

// use contains the resources that a program occupies.
type use struct {
	memory, descriptors, threads int
	disk                         int64
}

func useOf(t *testing.T, pid int, dirs ...string) (u use) {
	t.Helper()
	u.memory = residentMemory(t, pid)
	descriptors, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	require.NoError(t, err)
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	require.NoError(t, err)
	u.descriptors, u.threads = len(descriptors), len(threads)
	for _, dir := range dirs {
		u.disk += sizeOfFiles(t, dir, "")
	}
	return u
}

// most returns the larger of each number.
func (u use) most(v use) use {
	return use{max(u.memory, v.memory), max(u.descriptors, v.descriptors), max(u.threads, v.threads), max(u.disk, v.disk)}
}

func (u use) String() string {
	return fmt.Sprintf("%d MiB of memory, %d descriptors, %d threads, %d KiB of files", u.memory>>20, u.descriptors, u.threads, u.disk>>10)
}

// The programs run for long without growth: stages and perpetual tasks, while the log is rotated, the
// certificate of the manager is renewed, and both programs stop to answer for a while. Before the
// first measurement both are killed once. The retention limits of the manager are small, so that a long
// run reaches them.
func TestALongRunDoesNotGrow(t *testing.T) {
	stages := 200
	if text := os.Getenv(longRunVariable); text != "" {
		var err error
		stages, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	ca := newPrivateCA(t)
	s := newRig(t, rigConfig{cert: ca.cert, key: ca.key, roots: ca.roots, directLogs: true, mortal: true, settings: []string{
		"TRUSTED_STEPS=true", "MAX_STAGES=8", "CERTS_DIR=" + ca.dir,
		"LOG_LEVEL=debug", "LOG_ENABLE_FILE_LOGGING=true", "LOG_FILE=" + filepath.Join(t.TempDir(), "delegate.log"), "LOG_MAX_SIZE_MB=1", "LOG_MAX_BACKUPS=1",
	}})
	s.serve = append(s.serve, "--max-finished", "200", "--pipelines-max-bytes", "100000")
	m, d := s.mortals(t)
	defer m.stop()
	defer d.stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(stages)*time.Second+5*time.Minute)
	defer cancel()

	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/tags/list") {
			_, _ = fmt.Fprintf(w, `{"name":"app","tags":["v1"]}`)
		}
	}))
	defer registry.Close()
	for i := range longRunPerpetual {
		config, err := json.Marshal(map[string]any{"repository": strings.TrimPrefix(registry.URL, "http://") + "/app", "insecure": true, "tags": []string{"v*"}})
		require.NoError(t, err)
		s.setPerpetual(ctx, t, &api.PerpetualTask{ID: fmt.Sprint("watch-", i), Type: "source/registry", Config: config, IntervalMS: 1000})
	}

	incidents := []func(){
		m.restart, d.restart,
		func() { ca.issue(t) },
		func() { m.pause(2 * time.Second) },
		func() { d.pause(2 * time.Second) },
	}
	var halves [2][2]use // the most that each program has in each half
	for round := range longRunRounds {
		var all errgroup.Group
		all.SetLimit(8)
		incident := round
		if round >= 2 {
			incident = 2 + round%3
		}
		for i := range stages / longRunRounds {
			if i == stages/longRunRounds/2 {
				incidents[incident]()
			}
			all.Go(func() error { return s.stageToItsEnd(ctx, fmt.Sprintf("s-%d-%d", round, i)) })
		}
		require.NoError(t, all.Wait())
		now := [2]use{useOf(t, m.cmd.Process.Pid, filepath.Join(s.dir, "data")), useOf(t, d.cmd.Process.Pid, filepath.Join(s.dir, "work"), filepath.Join(s.dir, "ledger"))}
		t.Logf("after %d stages: the manager has %s; the delegate has %s", (round+1)*stages/longRunRounds, now[0], now[1])
		half := &halves[round*2/longRunRounds]
		half[0], half[1] = half[0].most(now[0]), half[1].most(now[1])
	}
	first, last := halves[0], halves[1]
	runs, delegate, least := 0, "", uint64(1) // the lease of the killed delegate is longer than a short run
	if stages >= 20_000 {
		least = uint64(stages) / 1000
	}
	for i := range longRunPerpetual {
		var p api.PerpetualTask
		require.NoError(t, s.ask(ctx, http.MethodGet, fmt.Sprintf("/api/perpetual/watch-%d?accountId=acc", i), nil, &p))
		assert.GreaterOrEqual(t, p.Runs, least, p.ID)
		assert.Empty(t, p.LastError, p.ID)
		runs, delegate = runs+int(p.Runs), p.DelegateName
	}
	t.Logf("%d stages, %d runs of %d perpetual tasks at %s", stages, runs, longRunPerpetual, delegate)
	for i, name := range []string{"the manager", "the delegate"} {
		assert.LessOrEqual(t, last[i].descriptors, first[i].descriptors+first[i].descriptors/10+longRunPerpetual, "descriptors of %s", name)
		assert.LessOrEqual(t, last[i].threads, first[i].threads+first[i].threads/10+4, "threads of %s", name)
		if stages >= 20_000 { // the limits are reached, and the heap has its size
			assert.LessOrEqual(t, last[i].memory, first[i].memory+first[i].memory/10, "memory of %s", name)
		}
	}
	assert.LessOrEqual(t, last[1].disk, first[1].disk+first[1].disk/10+64<<10, "files of the delegate")
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
