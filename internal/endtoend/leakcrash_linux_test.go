package endtoend_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/api"
)

// onHold returns a channel that is closed when the waiting step of that name has been
// searched.
func (s *site) onHold(name string) chan struct{} {
	s.holds.Lock()
	defer s.holds.Unlock()
	c := make(chan struct{})
	s.waiting[name] = c
	return c
}

// crashing starts a delegate that may write core dumps, if it does not prevent them.
func (s *site) crashing(t *testing.T, d *exec.Cmd) *exec.Cmd {
	t.Helper()
	log, err := os.Create(filepath.Join(s.dir, "crashed.log"))
	require.NoError(t, err)
	d.Args = append([]string{"sh", "-c", `ulimit -c unlimited; exec "$@"`, "sh", d.Path}, d.Args[1:]...)
	d.Path = "/bin/sh"
	d.Env = append(d.Env, "GOTRACEBACK=crash")
	d.Stdout, d.Stderr = log, log
	require.NoError(t, d.Start())
	t.Cleanup(func() {
		if d.ProcessState == nil {
			_ = d.Process.Kill()
			_ = d.Wait()
		}
		assert.NoError(t, log.Close())
	})
	return d
}

// crash lets the delegate crash while a step runs. The next delegate continues the step. The
// test looks for secrets in the core dump, which must not exist, and in the memory that
// survives the crash.
func (s *site) crash(t *testing.T, d *exec.Cmd, values map[string]string, vars object) {
	t.Helper()
	l := &leakStage{t: t, id: "crashed", values: values, vars: vars}
	l.script("survives", "sh", `mkdir own; : > own/wait-$HUNT; until [ -e own/go-on ]; do sleep 0.05; done; printf 'still %s\n' "$S_PLAIN"; echo "it survived"`,
		object{"image": testbed.Image, "pull": "Never"})
	held := s.onHold("crashed.survives")
	s.hunt.engine.LeavesNothing(t, "crashed")
	var running sync.WaitGroup
	running.Go(func() {
		<-held
		assert.NoError(t, d.Process.Signal(syscall.SIGABRT))
		_ = d.Wait() // the delegate has crashed
		status, _ := d.ProcessState.Sys().(syscall.WaitStatus)
		assert.Equal(t, syscall.SIGABRT, status.Signal(), "%v", d.ProcessState)
		assert.False(t, status.CoreDump(), "S5: the delegate's memory is on a disk")
		s.noCores(t)

		begin(t, s.delegate(t, "v1", s.url, "TAGS=v1\nLOG_FORMAT=json\n", "DLITE_SECRET_DEPLOY="+values["ENV"]), func() {
			assert.Empty(t, filesBelow(t, filepath.Join(s.dir, "work-v1")))
		})
		found, _ := filepath.Glob(filepath.Join(s.dir, "work-v1", "dlite-*", "workspace", "own"))
		if assert.Len(t, found, 1) {
			assert.NoError(t, os.WriteFile(filepath.Join(found[0], "go-on"), nil, 0o600))
		}
	})
	st := s.run(t, l.request(), nil)
	running.Wait()
	assert.Equal(t, api.Success, st.Status, "%s %+v", st.Error, st.Steps)
	assert.Contains(t, s.log(t, "crashed/survives"), "it survived")
}

// noCores looks for core dumps in the usual places.
func (s *site) noCores(t *testing.T) {
	t.Helper()
	_ = filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && (d.Name() == "core" || strings.HasPrefix(d.Name(), "core.")) {
			t.Errorf("S5: there is a core dump: %s", path)
		}
		return nil
	})
}

// If this test fails, the machine writes no core dumps at all, and the test above proves
// little.
func TestACrashUsuallyLeavesACoreDump(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "ulimit -c unlimited && kill -ABRT $$")
	cmd.Dir = t.TempDir()
	_ = cmd.Run() // the program crashes
	if status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.CoreDump() {
		t.Skip("not here: core dumps are limited")
	}
}
