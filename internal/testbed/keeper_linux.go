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

// folderKeeper is a process that outlives this one for as long as it takes to end
// what that has left. It is one for all tests, and ends with this process's end of
// the pipe, which nobody else has.
var folderKeeper struct {
	sync.Mutex
	control io.Writer
}

// Keep makes sure that what lives in a folder does not survive the test process,
// should that be killed before tb has cleaned up: then every process that is in the
// folder, or has it in its arguments or its environment, is killed, and the folder
// is removed. It is for what is to survive the death of a delegate. Call it before
// such processes start; dir is absolute, and nobody else's.
func Keep(tb testing.TB, dir string) {
	tb.Helper()
	KeepToTheEnd(tb, dir)
	tb.Cleanup(func() { tellKeeper(tb, "drop", dir) })
}

// KeepToTheEnd is Keep for a folder that tests share: it goes with the test process,
// killed or not.
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

// startKeeper starts the process. Its group is its own: an interrupt at a terminal
// is not for it.
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
	return w, nil // and is never closed but by the end
}
