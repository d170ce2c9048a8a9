package testbed

import (
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

//go:embed keeper.sh
var folderKeeperScript string

// folderKeeper is a process that outlives this one until it has killed the remaining
// processes. All tests share it. It ends when the pipe from this process closes, and no other
// process has this end of the pipe.
var folderKeeper struct {
	sync.Mutex
	control io.Writer
}

// Keep ensures that no process in a directory survives the test process if that is killed
// before tb has cleaned up. Then it kills every process that works in the directory or has its
// path in the arguments or the environment, and removes the directory. It is for processes
// that must survive the death of a delegate. Call it before such processes start. dir must be
// absolute, and used by this test only.
func Keep(tb testing.TB, dir string) {
	tb.Helper()
	KeepToTheEnd(tb, dir)
	tb.Cleanup(func() { tellKeeper(tb, "drop", dir) })
}

// KeepToTheEnd is Keep for a directory that tests share. The directory is removed when the
// test process ends, killed or not.
func KeepToTheEnd(tb testing.TB, dir string) {
	tb.Helper()
	if !filepath.IsAbs(dir) || filepath.Clean(dir) == "/" || strings.ContainsAny(dir, "\n") {
		tb.Fatalf("a folder to keep has an absolute path, not %q", dir)
	}
	tellKeeper(tb, "keep", dir)
}

func tellKeeper(tb testing.TB, order, dir string) {
	tb.Helper()
	folderKeeper.Lock()
	defer folderKeeper.Unlock()
	if folderKeeper.control == nil {
		control, err := startKeeper()
		if err != nil {
			tb.Fatalf("start the keeper of folders: %v", err)
		}
		folderKeeper.control = control
	}
	if _, err := fmt.Fprintln(folderKeeper.control, order, filepath.Clean(dir)); err != nil {
		tb.Errorf("tell the keeper of folders: %v", err)
	}
}

// startKeeper starts the process in its own process group, so that an interrupt from the
// terminal does not reach it.
func startKeeper() (io.Writer, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()                                               //nolint:errcheck // the keeper has its own
	cmd := exec.Command("sh", "-c", folderKeeperScript, "keeper") //nolint:noctx // it outlives this process
	cmd.Stdin, cmd.Dir = r, "/"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		_ = w.Close()
		return nil, err
	}
	return w, nil // only the end of this process closes it
}
