package testbed

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/client"
	"golang.org/x/sys/unix"
)

// Private is an engine for one test, which may stop and kill it. It has its own processes,
// mounts and network, so it cannot disturb the machine's engine or outlive the test. Its
// methods are for one goroutine at a time.
type Private struct {
	*Engine
	// Host is the engine's address in the form of DOCKER_HOST.
	Host string

	tb       testing.TB
	dir      string
	name     string
	args     []string
	init     *exec.Cmd
	control  io.WriteCloser
	answers  *bufio.Reader
	logStart int // the length of the log at the last start
	stopped  sync.Once
}

// keeper is the first process of the engine's namespaces. It executes orders and ends when its
// input closes, also if the test process is killed. All processes in the namespaces end with
// it.
const keeper = `
mount --make-rprivate / && mount -t proc proc /proc && mount -t tmpfs tmpfs /run || exit 1
ip link set lo up 2>/dev/null || busybox ip link set lo up || exit 1
echo ready
while read -r order; do
  case $order in
  start) dockerd "$@" >>"$LOG" 2>&1 & pid=$! ;;
  kill) kill -KILL $pid; kill -KILL $(cat "$BELOW"); wait $pid ;;
  stop) kill -TERM $pid; wait $pid ;;
  esac 2>/dev/null
  # Waiting for any command reaps the orphans too: the next engine would take a
  # dead containerd for a live one.
  while [ "$order" != start ] && kill -0 $(cat "$BELOW") 2>/dev/null; do sleep 0.02; done
  echo done
done`

// PrivateEngine starts an engine with these additional arguments, such as "--live-restore",
// and gives it [Image]. It needs root, dockerd and a static busybox; without them the test
// ends, see [Unavailable]. At the end of the test the engine is stopped and its directory
// removed.
func PrivateEngine(tb testing.TB, args ...string) *Private {
	tb.Helper()
	if os.Geteuid() != 0 {
		Unavailable(tb, "docker", "only root can start an engine of its own")
	}
	if _, err := exec.LookPath("dockerd"); err != nil {
		Unavailable(tb, "docker", "there is no dockerd to start")
	}
	dir, err := os.MkdirTemp("", "dlite-engine-")
	if err != nil {
		tb.Fatal(err)
	}
	b := make([]byte, 6)
	_, _ = rand.Read(b)
	p := &Private{tb: tb, dir: dir, name: "dlite-engine-" + hex.EncodeToString(b), Host: "unix://" + filepath.Join(dir, "docker.sock")}
	tb.Cleanup(p.end)
	// The configuration of the machine's engine must not apply to this one.
	config := filepath.Join(dir, "daemon.json")
	if err := os.WriteFile(config, []byte("{}"), 0o600); err != nil {
		tb.Fatal(err)
	}
	p.args = append([]string{
		"--config-file", config, "--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "exec"),
		"--pidfile", filepath.Join(dir, "pid"), "-H", p.Host, "--cgroup-parent", "/" + p.name,
		"--iptables=false", "--ip-forward=false", "--ip-masq=false",
	}, args...)
	p.removeOnExit()
	cli, err := client.NewClientWithOpts(client.WithHost(p.Host), client.WithAPIVersionNegotiation())
	if err != nil {
		tb.Fatalf("docker client: %v", err)
	}
	tb.Cleanup(func() { _ = cli.Close() })
	p.Engine = &Engine{Client: cli, Image: Image, listen: p.listen, private: true}
	p.Start()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if err := p.importImage(ctx, Image, nil); err != nil {
		tb.Fatalf("make image %s: %v\n%s", Image, err, p.log())
	}
	return p
}

func (p *Private) removeOnExit() {
	p.tb.Helper()
	// No context: the process ends at the latest when its input closes.
	p.init = exec.CommandContext(context.Background(), "sh", append([]string{"-c", keeper, "sh"}, p.args...)...)
	p.init.Env = append(os.Environ(), "LOG="+p.logPath(), "BELOW="+filepath.Join(p.dir, "exec", "containerd", "containerd.pid"))
	p.init.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}
	in, err := p.init.StdinPipe()
	if err != nil {
		p.tb.Fatal(err)
	}
	out, err := p.init.StdoutPipe()
	if err != nil {
		p.tb.Fatal(err)
	}
	if err := p.init.Start(); err != nil {
		p.init = nil
		Unavailable(p.tb, "docker", "an engine of its own cannot be started: %v", err)
	}
	p.control, p.answers = in, bufio.NewReader(out)
	if line, err := p.answers.ReadString('\n'); err != nil || line != "ready\n" {
		Unavailable(p.tb, "docker", "the namespaces of an engine of its own cannot be set up")
	}
}

// Start starts the engine after [Private.Stop] or [Private.Kill], and returns when it answers.
// The engine first ends the processes of the previous engine, with a limit of ten seconds.
func (p *Private) Start() {
	p.tb.Helper()
	p.Launch()
	if err := p.Await(); err != nil {
		p.tb.Fatalf("%v\n%s", err, p.log())
	}
}

// ErrRuined means that a new engine panicked because of the previous engine's files. This is a
// defect of the engine, which cannot start any more.
var ErrRuined = errors.New("the engine cannot be started any more")

// Await returns when a launched engine answers. The error is [ErrRuined] if it never will.
func (p *Private) Await() error {
	p.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	for {
		_, err := p.Client.Ping(ctx)
		if err == nil {
			return nil
		}
		if b, _ := os.ReadFile(p.logPath()); bytes.Contains(b[min(p.logStart, len(b)):], []byte("\npanic: ")) {
			return ErrRuined
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the engine does not answer: %w", err)
		}
	}
}

// Launch is Start without waiting for an answer. [Private.Await] waits.
func (p *Private) Launch() {
	p.tb.Helper()
	b, _ := os.ReadFile(p.logPath()) // there is no log before the first start
	p.logStart = len(b)
	p.order("start")
}

// Stop ends the engine as an operator does, and returns when it has ended.
func (p *Private) Stop() { p.tb.Helper(); p.order("stop") }

// Kill ends the engine with SIGKILL. Its containers continue.
func (p *Private) Kill() { p.tb.Helper(); p.order("kill") }

func (p *Private) order(order string) {
	p.tb.Helper()
	if _, err := io.WriteString(p.control, order+"\n"); err != nil {
		p.tb.Fatalf("%s the engine: %v", order, err)
	}
	if line, err := p.answers.ReadString('\n'); err != nil || line != "done\n" {
		p.tb.Fatalf("%s the engine: %q, %v\n%s", order, line, err, p.log())
	}
}

// log returns the end of the engine's log.
func (p *Private) log() string {
	b, _ := os.ReadFile(p.logPath())
	return string(b[max(0, len(b)-4096):])
}

func (p *Private) logPath() string { return filepath.Join(p.dir, "log") }

// listen opens a port on the engine's loopback.
func (p *Private) listen() (net.Listener, error) {
	type result struct {
		l   net.Listener
		err error
	}
	// The goroutine ends without unlocking its thread, so a thread that was in another network
	// is not used again.
	done := make(chan result)
	go func() {
		runtime.LockOSThread()
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", p.init.Process.Pid))
		if err != nil {
			done <- result{err: err}
			return
		}
		defer func() { _ = ns.Close() }()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- result{err: err}
			return
		}
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
		done <- result{l, err}
	}()
	r := <-done
	return r.l, r.err
}

// end stops all processes and removes their files.
func (p *Private) end() {
	p.stopped.Do(func() {
		if p.init != nil {
			_ = p.control.Close()
			_ = p.init.Wait() // its status has no meaning
		}
		// The last mounts and control groups may be released a moment later.
		var err error
		for range 100 {
			if err = p.sweep(); err == nil {
				return
			}
			<-time.After(20 * time.Millisecond)
		}
		p.tb.Errorf("remove the engine's folder: %v", err)
	})
}

func (p *Private) sweep() error {
	var groups []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.Contains(path, p.name) {
			groups = append(groups, path)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i := len(groups) - 1; i >= 0; i-- {
		if err := os.Remove(groups[i]); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return os.RemoveAll(p.dir)
}
