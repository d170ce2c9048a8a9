package manager_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/delegate-io/dlite/manager"
)

// BenchmarkIdleDelegates measures a manager with 10,000 idle delegates, which send
// polls of 20 s and a heartbeat every 10 s. It reports the memory with the HTTP
// server and its connections, and the CPU time with the delegates' side. It measures
// once for 20 s, whatever b.N is.
func BenchmarkIdleDelegates(b *testing.B) {
	const delegates, round = 10_000, 20 * time.Second
	s := start(b, func(c *manager.Config) { c.Clock, c.Gap = nil, 0 })
	s.token = issue(b, fakeSecret, account, wallNow(), time.Hour)
	ids := make([]string, delegates)
	for i := range ids {
		ids[i] = s.register(fmt.Sprint("d", i), dockerTypes, "linux", "docker")
	}
	before := memory()
	l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	srv := &http.Server{Handler: s.m, ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(l) }() // ends when the listener is closed
	ctx, cancel := context.WithCancel(b.Context())
	var all sync.WaitGroup
	for _, id := range ids {
		all.Go(func() {
			idle(ctx, l, s.token, "GET", "/api/agent/delegates/"+id+"/task-events?accountId=acc&wait=20", "", 0)
		})
		all.Go(func() {
			idle(ctx, l, s.token, "POST", "/api/agent/delegates/heartbeat-with-polling?accountId=acc", `{"delegateId":"`+id+`"}`, 10*time.Second)
		})
	}
	wait(round)
	begun := cpuTime()
	wait(round)
	b.ReportMetric(100*(cpuTime()-begun).Seconds()/round.Seconds(), "%cpu")
	b.ReportMetric(float64(memory()-before)/delegates, "B/delegate")
	cancel()
	_ = srv.Close()
	_ = l.Close()
	all.Wait()
}

func wait(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	<-t.C
}

// memory returns the size of heap and stacks, in bytes.
func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// idle makes requests in sequence, each on the connection of the previous one.
func idle(ctx context.Context, l *pipes, token, method, path, body string, every time.Duration) {
	c, err := l.dial()
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	defer func() { _ = c.Close() }()
	request := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: m\r\nAuthorization: Delegate %s\r\nContent-Length: %d\r\n\r\n%s",
		method, path, token, len(body), body)
	for r := bufio.NewReaderSize(c, 512); ctx.Err() == nil; {
		if every > 0 {
			wait(rand.N(2 * every))
		}
		if _, err := io.WriteString(c, request); err != nil {
			return
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

// pipes is a listener without a network, because 20,000 connections need more files
// than a process may open.
type pipes struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (p *pipes) dial() (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "pipe"} }
