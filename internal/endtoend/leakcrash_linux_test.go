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
	"github.com/delegate-io/dlite/manager"
)

// onHold is closed when the step of that name waits to be looked at, and has been.
func (s *site) onHold(name string) chan struct{} {
	s.holds.Lock()
	defer s.holds.Unlock()
	c := make(chan struct{})
	s.waiting[name] = c
	return c
}

// crashing starts a delegate that may write core dumps, if it is let.
func (s *site) crashing(t *testing.T, d *exec.Cmd) *exec.Cmd {
	t.Helper()
	said, err := os.Create(filepath.Join(s.dir, "crashed.log"))
	require.NoError(t, err)
	d.Args = append([]string{"sh", "-c", `ulimit -c unlimited; exec "$@"`, "sh", d.Path}, d.Args[1:]...)
	d.Path = "/bin/sh"
	d.Env = append(d.Env, "GOTRACEBACK=crash")
	d.Stdout, d.Stderr = said, said
	require.NoError(t, d.Start())
	t.Cleanup(func() {
		if d.ProcessState == nil {
			_ = d.Process.Kill()
			_ = d.Wait()
		}
		assert.NoError(t, said.Close())
	})
	return d
}

// crash lets the delegate crash while a step runs. Its successor goes on with it.
// What is looked for in the dump that there must not be is looked for in the
// memory that outlives the crash as well.
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
		_ = d.Wait() // it has not ended well
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
	assert.Equal(t, manager.Success, st.Status, "%s %+v", st.Error, st.Steps)
	assert.Contains(t, s.log(t, "crashed/survives"), "it survived")
}

// noCores looks for core dumps where they usually are.
func (s *site) noCores(t *testing.T) {
	t.Helper()
	_ = filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && (d.Name() == "core" || strings.HasPrefix(d.Name(), "core.")) {
			t.Errorf("S5: there is a core dump: %s", path)
		}
		return nil
	})
}

// Otherwise this machine writes no dumps at all, and the test above proves little.
func TestACrashUsuallyLeavesACoreDump(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "ulimit -c unlimited && kill -ABRT $$")
	cmd.Dir = t.TempDir()
	_ = cmd.Run() // it does not end well
	if status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.CoreDump() {
		t.Skip("not here: core dumps are limited")
	}
}
