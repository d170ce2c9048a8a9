package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/internal/bootport"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/task/stage"
)

// agentProcess is a process of the agent's program.
type agentProcess struct {
	t    *testing.T
	cmd  *exec.Cmd
	dir  string
	boot *agent.Boot
	out  *output
	done chan struct{}
}

// output stores the program's output.
type output struct {
	mu    sync.Mutex
	b     bytes.Buffer
	wrote chan struct{}
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.wrote <- struct{}{}:
	default:
	}
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// newProgram prepares the program. Its arguments follow the first ones.
func newProgram(t *testing.T, first ...string) *agentProcess {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	p := &agentProcess{t: t, dir: t.TempDir(), boot: &agent.Boot{Listen: "127.0.0.1:0"}, out: &output{wrote: make(chan struct{}, 1)}, done: make(chan struct{})}
	p.boot.CA, p.boot.Cert, p.boot.Key, err = agent.Issue("", time.Now())
	require.NoError(t, err)
	for _, name := range []string{"work", "memory"} {
		require.NoError(t, os.Mkdir(filepath.Join(p.dir, name), 0o711)) //nolint:gosec // as a work folder is
	}
	argv := append(append([]string{}, first...), self)
	p.cmd = exec.Command(argv[0], argv[1:]...) //nolint:gosec,noctx // the test ends it
	p.cmd.Env = append(os.Environ(), asAgent+"=1")
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return p
}

// line returns the boot as JSON.
func (p *agentProcess) line() []byte {
	p.t.Helper()
	b, err := json.Marshal(p.boot)
	require.NoError(p.t, err)
	return append(b, '\n')
}

func (p *agentProcess) start(args ...string) {
	p.t.Helper()
	p.cmd.Args = append(p.cmd.Args, args...)
	p.cmd.Args = append(p.cmd.Args, "--work-dir", filepath.Join(p.dir, "work"), "--memory-dir", filepath.Join(p.dir, "memory"))
	require.NoError(p.t, p.cmd.Start())
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the process state has the result
	}()
	p.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
	})
}

var served = regexp.MustCompile(`"address":"([^"]+)"`)

// client waits until the program serves.
func (p *agentProcess) client() (*agent.Client, func()) {
	p.t.Helper()
	limit := time.After(time.Minute)
	for {
		if found := served.FindStringSubmatch(p.out.String()); found != nil {
			cfg, err := p.boot.ClientTLS("")
			require.NoError(p.t, err)
			transport := agent.Transport(cfg)
			return agent.NewClient("https://"+found[1], transport), transport.CloseIdleConnections
		}
		select {
		case <-p.out.wrote:
		case <-p.done:
			p.t.Fatalf("it has ended: %s", p.out)
		case <-limit:
			p.t.Fatalf("it does not serve: %s", p.out)
		}
	}
}

// ended returns the exit code.
func (p *agentProcess) ended() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		p.t.Fatalf("it does not end: %s", p.out)
	}
	return p.cmd.ProcessState.ExitCode()
}

// leavesNothing checks that the directories are empty, and that no process has this program's
// marker in its environment.
func (p *agentProcess) leavesNothing() {
	p.t.Helper()
	for _, name := range []string{"work", "memory"} {
		left, err := os.ReadDir(filepath.Join(p.dir, name))
		require.NoError(p.t, err)
		assert.Empty(p.t, left)
	}
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(p.t, err)
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil {
			assert.NotContains(p.t, string(b), p.dir, f)
		}
	}
}

func script(id, text string) *agent.StartStepRequest {
	return &agent.StartStepRequest{Step: stage.Step{ID: id, Run: stage.Run{Entrypoint: []string{"sh", "-c"}, Command: []string{text}}}}
}

// run runs a script that must succeed.
func run(t *testing.T, c *agent.Client, text string) string {
	t.Helper()
	var out bytes.Buffer
	res, err := c.Run(t.Context(), script("step", text), &out)
	require.NoError(t, err)
	require.Zero(t, res.ExitCode, out.String())
	return out.String()
}

// Rules D6, T2: the program serves. A signal ends the stage with all its processes.
func TestTheProgramServesUntilASignalAndLeavesNothing(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	file := filepath.Join(p.dir, "boot.json")
	require.NoError(t, os.WriteFile(file, p.line(), 0o600))
	p.start("serve", "--boot", file)
	c, closeIdle := p.client()
	defer closeIdle()
	_, err := c.Setup(t.Context(), &agent.SetupRequest{ID: "s", Envs: map[string]string{"DIR": p.dir}})
	require.NoError(t, err)
	assert.Equal(t, "hello\n", run(t, c, "echo hello"))
	service := script("service", "echo up; sleep 600")
	service.Detach = true
	service.Environment = map[string]string{"DIR": p.dir}
	_, f, err := c.Start(t.Context(), service, io.Discard)
	require.NoError(t, err)
	defer f.Stop()
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", p.cmd.Process.Pid))
	require.NoError(t, err)
	assert.Regexp(t, `Max core file size +0 `, string(limits), "S5")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	assert.Zero(t, p.ended(), p.out)
	p.leavesNothing()
}

// Rule S5: the error of a wrong boot names the problem and shows no part of the boot.
func TestAWrongBootIsRefusedWithoutShowingIt(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(p *agentProcess) []byte{
		"no JSON":      func(p *agentProcess) []byte { return append(p.line()[1:], 'x') },
		"no key":       func(p *agentProcess) []byte { p.boot.Key = nil; return p.line() },
		"another key":  func(p *agentProcess) []byte { _, _, p.boot.Key, _ = agent.Issue("", time.Now()); return p.line() },
		"no authority": func(p *agentProcess) []byte { p.boot.CA = []byte("visibly-fake"); return p.line() },
	} {
		p := newProgram(t)
		file := filepath.Join(p.dir, "boot.json")
		require.NoError(t, os.WriteFile(file, change(p), 0o600))
		p.start("serve", "--boot", file)
		assert.NotZero(t, p.ended(), name)
		assert.NotContains(t, p.out.String(), "BEGIN", name)
		assert.NotContains(t, p.out.String(), "visibly-fake", name)
		assert.Contains(t, p.out.String(), "agent", name)
	}
}

// Rule D6: the agent of a machine reads its boot from a serial port, in a line longer than a
// terminal accepts, and answers there.
func TestTheProgramReadsItsBootFromASerialPort(t *testing.T) {
	t.Parallel()
	host, path := openTerminal(t)
	p := newProgram(t)
	p.boot.Seed = nil // the agent must not change this machine
	p.start("boot", "--port", path)
	output := bufio.NewReader(host)
	hear := func(want string) {
		t.Helper()
		got, err := output.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, want+"\n", got)
	}
	hear(bootport.Ready)
	_, err := host.WriteString("\n")
	require.NoError(t, err)
	hear(bootport.Ready)
	long := append(bytes.TrimSpace(p.line()), bytes.Repeat([]byte(" "), 20_000)...)
	_, err = host.Write(append(long, '\n'))
	require.NoError(t, err)
	hear(bootport.Booted)
	c, closeIdle := p.client()
	defer closeIdle()
	_, err = c.Health(t.Context())
	require.NoError(t, err)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGINT))
	assert.Zero(t, p.ended(), p.out)
}

// openTerminal opens a pair of terminals. The second one acts as a serial port for the process
// that opens it.
func openTerminal(t *testing.T) (host *os.File, path string) {
	t.Helper()
	host, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		testbed.Unavailable(t, "ptmx", "%v", err)
	}
	t.Cleanup(func() { _ = host.Close() })
	raw, err := host.SyscallConn()
	require.NoError(t, err)
	var number int
	var setErr error
	require.NoError(t, raw.Control(func(fd uintptr) {
		number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		setErr = errors.Join(err, unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0))
	}))
	require.NoError(t, setErr)
	return host, fmt.Sprintf("/dev/pts/%d", number)
}

// As the first process of a container the program reaps orphaned processes, passes signals on,
// and ends with the agent's exit code.
func TestTheProgramIsAnInit(t *testing.T) {
	t.Parallel()
	if out, err := exec.CommandContext(t.Context(), "unshare", "--pid", "--fork", "--mount-proc", "true").CombinedOutput(); err != nil {
		testbed.Unavailable(t, "namespaces", "unshare: %v: %s", err, out)
	}
	p := newProgram(t, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
	file := filepath.Join(p.dir, "boot.json")
	require.NoError(t, os.WriteFile(file, p.line(), 0o600))
	p.start("serve", "--boot", file)
	c, closeIdle := p.client()
	defer closeIdle()
	_, err := c.Setup(t.Context(), &agent.SetupRequest{ID: "s"})
	require.NoError(t, err)
	orphanedProcesses := `for i in 1 2 3 4 5; do sh -c 'sleep 0.2 &'; done; sleep 1; cat /proc/[0-9]*/stat | grep -c ' Z ' || true; cat /proc/1/comm /proc/1/cmdline | tr '\000' ' '`
	got := run(t, c, orphanedProcesses)
	assert.True(t, strings.HasPrefix(got, "0\n"), got)
	assert.Contains(t, got, "serve --boot", "it is the first process")

	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", p.cmd.Process.Pid))
	require.NoError(t, err)
	var first int
	_, err = fmt.Sscan(string(children), &first)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(first, syscall.SIGTERM))
	assert.Zero(t, p.ended(), p.out)
	p.leavesNothing()

	wrong := newProgram(t, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
	wrong.start("serve", "--boot", file+"-missing")
	assert.Equal(t, 1, wrong.ended(), "the agent's own exit code")
}

// Rule D7: the program copies itself completely, also over an existing file.
func TestTheProgramInstallsItself(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b")
	for range 2 {
		p := newProgram(t)
		p.cmd.Args = append(p.cmd.Args, "install", dir)
		out, err := func() ([]byte, error) { p.cmd.Stdout, p.cmd.Stderr = nil, nil; return p.cmd.CombinedOutput() }()
		require.NoError(t, err, string(out))
	}
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, list, 1)
	info, err := list[0].Info()
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o755), info.Mode())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "agent"), "--help")
	cmd.Env = append(os.Environ(), asAgent+"=1")
	out, err := cmd.Output()
	require.NoError(t, err)
	assert.Contains(t, string(out), "Runs the steps of one stage")
}

// Rule D6: a machine of a snapshot gets its own random state.
func TestASeedIsMixedIntoTheRandomState(t *testing.T) {
	t.Parallel()
	for _, length := range []int{1, 32, 33} {
		err := seedRandom(bytes.Repeat([]byte{7}, length))
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
			testbed.Unavailable(t, "randomness", "the random state cannot be changed here: %v", err)
		}
		require.NoError(t, err)
	}
	require.NoError(t, prepare(&agent.Boot{}), "zero and none leave all as it is")
}
