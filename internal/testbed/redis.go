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

// RedisServer is a real Redis with its data in a directory of the test.
type RedisServer struct {
	// Address is the host and port. It stays the same after a restart.
	Address string
	// Dir is the directory of the data: the append-only file is below appendonlydir.
	Dir string

	program string
	args    []string
	cmd     *exec.Cmd
	output  chan struct{} // closed when its output has ended
}

// Redis starts a Redis that ends with the test. By default it appends every write to a file
// before it answers. args are additional command-line arguments.
func Redis(tb testing.TB, args ...string) *RedisServer {
	tb.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		Unavailable(tb, "redis", "there is no redis-server: %v", err)
	}
	r := &RedisServer{Dir: tb.TempDir(), program: program, args: args}
	tb.Cleanup(r.Kill)
	// Another process may take the port before the server does.
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

// URL returns the URL for clients.
func (r *RedisServer) URL() string { return "redis://" + r.Address }

// Kill ends the server with SIGKILL. It does nothing if the server was killed already.
func (r *RedisServer) Kill() {
	if r.cmd != nil {
		_ = r.cmd.Process.Kill()
		<-r.output
		_ = r.cmd.Wait()
		r.cmd = nil
	}
}

// Start starts the server again after Kill, with the data in Dir.
func (r *RedisServer) Start(tb testing.TB) {
	tb.Helper()
	if !r.start(tb) {
		tb.Fatal("Redis did not start again")
	}
}

// start reports false if the server ended before it accepted connections.
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
