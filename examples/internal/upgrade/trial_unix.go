//go:build unix

package upgrade

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delegate-io/dlite/internal/atomicfile"
	"golang.org/x/sys/unix"
)

func syncDir(dir string) error { return atomicfile.SyncDir(dir) }

// die ends the process as a kill does.
func die() { _ = unix.Kill(os.Getpid(), unix.SIGKILL); select {} }

// How long the process of a trial may take to end, if it has registered and if it has not.
const (
	endTimeout    = 30 * time.Second
	failedTimeout = 2 * time.Second
)

// try starts the staged program with the arguments of this process, and returns nil when it has registered and has
// ended. A pair of sockets connects the two processes: each notices the end of the other.
func (p place) try(j *Journal) error {
	if err := p.verifyStaged(j); err != nil {
		return err
	}
	// On Linux the kernel also kills the child when this thread ends, in case the child does not read.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ours, theirs, err := pair()
	if err != nil {
		return err
	}
	defer ours.Close() //nolint:errcheck // the child reads its end
	var cmd *exec.Cmd
	err = retryBusy(context.Background(), func() error {
		cmd = exec.Command(p.next(), os.Args[1:]...) //nolint:noctx // the descriptor ends it
		cmd.Args[0] = os.Args[0]
		cmd.Env = append(trialEnvironment(os.Environ()), trialVariable+"=3")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.ExtraFiles = []*os.File{theirs}
		cmd.SysProcAttr = diesWithParent()
		return cmd.Start()
	})
	_ = theirs.Close()
	if err != nil {
		return fmt.Errorf("cannot be started: %w", err)
	}
	step("trying")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // its result does not matter: it has registered, or not
	}()
	stopNotes := noteWaiting(j.bound())
	defer stopNotes()
	_ = ours.SetReadDeadline(time.Now().Add(j.bound()))
	line, err := bufio.NewReaderSize(ours, len(registered)).ReadString('\n')
	_ = ours.Close()
	within := endTimeout
	if line != registered {
		within = failedTimeout
	}
	select {
	case <-ended:
	case <-time.After(within):
		_ = cmd.Process.Kill()
		<-ended
	}
	switch {
	case line == registered:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("did not register within %s", j.bound())
	}
	return fmt.Errorf("ended before it registered (%s)", cmd.ProcessState)
}

// pair returns two connected stream sockets. The first one has deadlines.
func pair() (ours net.Conn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, err
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	mine := os.NewFile(uintptr(fds[0]), "trial")
	defer mine.Close() //nolint:errcheck // FileConn duplicates it
	theirs = os.NewFile(uintptr(fds[1]), "trial")
	if ours, err = net.FileConn(mine); err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return ours, theirs, nil
}

// trialEnvironment is the environment without the variables of the service manager, which knows this process alone.
func trialEnvironment(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == notifySocket || name == "WATCHDOG_USEC" || name == "WATCHDOG_PID" || name == trialVariable
	})
}

const (
	notifySocket = "NOTIFY_SOCKET"
	noteEvery    = 2 * time.Second
)

// noteWaiting tells a service manager that speaks sd_notify that this process is alive and that its start takes
// longer, until the returned function is called.
func noteWaiting(bound time.Duration) (stop func()) {
	socket := os.Getenv(notifySocket)
	if socket == "" {
		return func() {}
	}
	done, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		note := "WATCHDOG=1\nEXTEND_TIMEOUT_USEC=" + strconv.FormatInt((bound+endTimeout).Microseconds(), 10)
		for {
			if c, err := net.Dial("unixgram", socket); err == nil { //nolint:noctx // a datagram socket of this machine
				_, _ = c.Write([]byte(note))
				_ = c.Close()
			}
			select {
			case <-done:
				return
			case <-time.After(noteEvery):
			}
		}
	}()
	return func() { close(done); <-over }
}
