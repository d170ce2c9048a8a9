package testbed

import (
	"bufio"
	"context"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// RedisServer is a real Redis with its data in a folder of the test.
type RedisServer struct {
	// Address is its host and port, the same after a restart.
	Address string
	// Dir is where its data is: the append-only file, below appendonlydir.
	Dir string

	program string
	args    []string
	cmd     *exec.Cmd
	output  chan struct{} // closed when its output has ended
}

// Redis starts a Redis, which ends with the test. It appends every write to a
// file before it answers; args, as on its command line, change that.
func Redis(tb testing.TB, args ...string) *RedisServer {
	tb.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		Unavailable(tb, "redis", "there is no redis-server: %v", err)
	}
	r := &RedisServer{Dir: tb.TempDir(), program: program, args: args}
	tb.Cleanup(r.Kill)
	// Somebody else may take the port between our look and the server's.
	for range 5 {
		l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatal(err)
		}
		r.Address = l.Addr().String()
		_ = l.Close()
		if r.start(tb) {
			return r
		}
	}
	tb.Fatal("Redis did not start")
	return nil
}

// URL is how clients find it.
func (r *RedisServer) URL() string { return "redis://" + r.Address }

// Kill ends the server with SIGKILL. Killed already, it does nothing.
func (r *RedisServer) Kill() {
	if r.cmd != nil {
		_ = r.cmd.Process.Kill()
		<-r.output
		_ = r.cmd.Wait()
		r.cmd = nil
	}
}

// Start starts the server again after Kill, with what it finds in Dir.
func (r *RedisServer) Start(tb testing.TB) {
	tb.Helper()
	if !r.start(tb) {
		tb.Fatal("Redis did not start again")
	}
}

// start is false when the server ended before it took connections.
func (r *RedisServer) start(tb testing.TB) bool {
	tb.Helper()
	host, port, _ := net.SplitHostPort(r.Address)
	args := append([]string{
		"--bind", host, "--port", port, "--dir", r.Dir, "--save", "", "--appendonly", "yes", "--appendfsync", "always",
	}, r.args...)
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), r.program, args...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		tb.Fatalf("starting Redis: %v", err)
	}
	r.cmd, r.output = cmd, make(chan struct{})
	ready := make(chan struct{})
	go func() {
		defer close(r.output)
		once := sync.OnceFunc(func() { close(ready) })
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if strings.Contains(lines.Text(), "Ready to accept connections") {
				once()
			}
		}
	}()
	select {
	case <-ready:
		return true
	case <-r.output:
		r.Kill()
		return false
	}
}
