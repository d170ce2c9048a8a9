package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// process is a manager or a process with delegates that the test kills and restarts.
type process struct {
	t    *testing.T
	name string
	env  string
	dir  string // directory of its log

	mu      sync.Mutex
	orders  any
	starts  int
	cmd     *exec.Cmd
	ended   chan struct{} // closed when cmd has ended
	wanted  bool          // the test wants it to end
	failure error
}

func newProcess(t *testing.T, name, env, dir string, orders any) *process {
	p := &process{t: t, name: name, env: env, dir: dir, orders: orders}
	t.Cleanup(p.kill)
	return p
}

func (p *process) log() string { return filepath.Join(p.dir, p.name+".log") }

// start starts the process. The process dies with the test.
func (p *process) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	text, err := json.Marshal(p.orders)
	require.NoError(p.t, err)
	log, err := os.OpenFile(p.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(p.t, err)
	defer func() { _ = log.Close() }() // the child has its own descriptor
	cmd := exec.Command(program())     //nolint:noctx // it is killed by hand
	cmd.Env = append(os.Environ(), p.env+"="+string(text))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(p.t, cmd.Start())
	p.starts++
	ended := make(chan struct{})
	p.cmd, p.ended, p.wanted = cmd, ended, false
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		if !p.wanted || err != nil && !killed(cmd) {
			p.failure = fmt.Errorf("%s has ended by itself: %w", p.name, err)
		}
		p.mu.Unlock()
		close(ended)
	}()
}

func killed(cmd *exec.Cmd) bool {
	s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && s.Signaled() && s.Signal() == syscall.SIGKILL
}

// kill ends the process with SIGKILL and waits for its end.
func (p *process) kill() {
	if ended := p.end(syscall.SIGKILL); ended != nil {
		<-ended
	}
}

// stop asks the process to end and waits for its end. It kills the process if that
// takes too long.
func (p *process) stop(ctx context.Context) error {
	select {
	case <-p.end(syscall.SIGTERM):
		return p.failed()
	case <-ctx.Done():
		p.kill()
		return fmt.Errorf("%s does not stop:\n%s", p.name, p.tail(20))
	}
}

// end sends a signal that ends the process. It returns nil if the process was never
// started.
func (p *process) end(sig syscall.Signal) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		p.wanted = true
		_ = p.cmd.Process.Signal(sig) // the process may have ended
	}
	return p.ended
}

func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.cmd.Process.Signal(sig) // the process may have ended
}

// failed returns an error with the end of the log if the process ended by itself.
func (p *process) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure == nil {
		return nil
	}
	return fmt.Errorf("%w\n%s", p.failure, p.tail(20))
}

// tail returns the last lines of the log.
func (p *process) tail(lines int) string {
	b, err := os.ReadFile(p.log())
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(all[max(len(all)-lines, 0):], "\n")
}

// program returns the path of the test binary.
func program() string { return os.Args[0] }
