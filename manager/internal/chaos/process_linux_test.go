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

// process is a manager, or a process with delegates, that is killed and started
// again.
type process struct {
	t    *testing.T
	name string
	env  string
	dir  string // its log is there

	mu      sync.Mutex
	orders  any
	starts  int
	cmd     *exec.Cmd
	ended   chan struct{} // closed when cmd has
	wanted  bool          // its end is
	failure error
}

func newProcess(t *testing.T, name, env, dir string, orders any) *process {
	p := &process{t: t, name: name, env: env, dir: dir, orders: orders}
	t.Cleanup(p.kill)
	return p
}

func (p *process) log() string { return filepath.Join(p.dir, p.name+".log") }

// start starts it. It dies with this process.
func (p *process) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	text, err := json.Marshal(p.orders)
	require.NoError(p.t, err)
	log, err := os.OpenFile(p.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(p.t, err)
	defer func() { _ = log.Close() }() // the child has its own
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

// kill ends it with SIGKILL, and returns when it is gone.
func (p *process) kill() {
	if ended := p.end(syscall.SIGKILL); ended != nil {
		<-ended
	}
}

// stop asks it to end, and returns when it has. When it takes too long it is
// killed.
func (p *process) stop(ctx context.Context) error {
	select {
	case <-p.end(syscall.SIGTERM):
		return p.failed()
	case <-ctx.Done():
		p.kill()
		return fmt.Errorf("%s does not end:\n%s", p.name, p.tail(20))
	}
}

// end sends a signal that ends it. It returns nil when it was never started.
func (p *process) end(sig syscall.Signal) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		p.wanted = true
		_ = p.cmd.Process.Signal(sig) // it may be gone
	}
	return p.ended
}

func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.cmd.Process.Signal(sig) // it may be gone
}

// failed is why it has ended though nobody wanted that, with the end of its log.
func (p *process) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure == nil {
		return nil
	}
	return fmt.Errorf("%w\n%s", p.failure, p.tail(20))
}

// tail is the end of its log.
func (p *process) tail(lines int) string {
	b, err := os.ReadFile(p.log())
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(all[max(len(all)-lines, 0):], "\n")
}

// program is the tests' own.
func program() string { return os.Args[0] }
