package logger_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/delegate-io/dlite/internal/logheader"
	"github.com/delegate-io/dlite/logger"
)

// pipes connects net/http to a log service within a synctest bubble, with the
// clock of the bubble.
type pipes struct {
	away     atomic.Bool  // no server answers
	awayHost atomic.Value // the address of a server that does not answer
	client   *http.Client
	conns    chan net.Conn
	closed   chan struct{}
}

func newPipes(t *testing.T, h http.Handler) *pipes {
	p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	tr := &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		if p.away.Load() || p.awayHost.Load() == address {
			return nil, errors.New("connection refused")
		}
		near, far := net.Pipe()
		select {
		case p.conns <- far:
			return near, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-p.closed:
			return nil, net.ErrClosed
		}
	}}
	p.client = &http.Client{Transport: tr}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.away.Load() {
			panic(http.ErrAbortHandler)
		}
		h.ServeHTTP(w, r)
	})}
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(p) }()
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		_ = srv.Close()
		<-served
	})
	return p
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// keeper is a log service without extensions. It stores one log and requires that
// the stream is opened.
type keeper struct {
	mu      sync.Mutex
	opened  bool
	live    []logger.Line
	blob    []logger.Line
	calls   map[string]int
	next    []string // the header Dlite-Log-Next of each PUT
	refuse  func(op string, n int, size int64, h http.Header) int
	waiting func(op string, n int, r *http.Request) // before the body is read
}

func (k *keeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	op := r.Method + " " + r.URL.Path
	k.mu.Lock()
	if k.calls == nil {
		k.calls = map[string]int{}
	}
	n := k.calls[op]
	k.calls[op]++
	k.mu.Unlock()
	if k.waiting != nil {
		k.waiting(op, n, r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refuse != nil {
		if status := k.refuse(op, n, int64(len(body)), w.Header()); status != 0 {
			http.Error(w, `{"error_msg":"on purpose"}`, status)
			return
		}
	}
	switch op {
	case "POST /stream":
		k.opened = true
	case "PUT /stream":
		k.next = append(k.next, r.Header.Get(logheader.Resume))
		var lines []logger.Line
		if !k.opened || json.Unmarshal(body, &lines) != nil {
			http.Error(w, `{"error_msg":"no such stream"}`, http.StatusNotFound)
			return
		}
		k.live = append(k.live, lines...)
	case "POST /blob":
		k.blob = decodeAll(body)
	case "DELETE /stream":
		if snapshot, _ := strconv.ParseBool(r.URL.Query().Get("snapshot")); snapshot {
			k.blob = k.live
		}
	case "POST /blob/link/upload":
		http.Error(w, `{"error_msg":"no links here"}`, http.StatusNotImplemented)
	}
}

// count returns the number of calls of an operation.
func (k *keeper) count(op string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.calls[op]
}

func (k *keeper) archived() (lines []logger.Line) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.blob
}

func decodeAll(body []byte) (lines []logger.Line) {
	for d := json.NewDecoder(bytes.NewReader(body)); ; {
		var l logger.Line
		if d.Decode(&l) != nil {
			return lines
		}
		lines = append(lines, l)
	}
}
