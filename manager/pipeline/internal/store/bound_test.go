package store_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// hole is a network to a PostgreSQL that can lose everything without ending a connection.
type hole struct {
	net.Listener

	socket string
	serve  sync.WaitGroup

	mu      sync.Mutex
	pass    chan struct{} // closed while data passes
	conns   []net.Conn
	dropped int // the first conns, over which nothing passes any more
}

// newHole returns a network to a server, and the address of the server through it.
func newHole(t *testing.T, server *testbed.PostgresServer) (h *hole, address string) {
	t.Helper()
	u, err := url.Parse(server.URL)
	require.NoError(t, err)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	h = &hole{Listener: l, socket: filepath.Join(u.Query().Get("host"), ".s.PGSQL.5432"), pass: make(chan struct{})}
	h.open()
	h.serve.Go(h.accept)
	t.Cleanup(func() {
		_ = l.Close()
		h.mu.Lock()
		for _, c := range h.conns {
			_ = c.Close()
		}
		h.mu.Unlock()
		h.serve.Wait()
	})
	return h, "postgres://postgres@" + l.Addr().String() + "/postgres?sslmode=disable"
}

func (h *hole) open() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.pass)
}

func (h *hole) cut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pass = make(chan struct{})
}

// drop makes the present connections lose everything until they are closed. New ones work.
func (h *hole) drop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropped = len(h.conns)
}

func (h *hole) accept() {
	for {
		c, err := h.Accept()
		if err != nil {
			return
		}
		up, err := new(net.Dialer).DialContext(context.Background(), "unix", h.socket)
		if err != nil {
			_ = c.Close()
			return
		}
		h.mu.Lock()
		i := len(h.conns)
		h.conns = append(h.conns, c, up)
		h.mu.Unlock()
		h.serve.Go(func() { h.copy(c, up, i) })
		h.serve.Go(func() { h.copy(up, c, i) })
	}
}

func (h *hole) copy(to io.WriteCloser, from io.Reader, i int) {
	defer func() { _ = to.Close() }()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		h.mu.Lock()
		pass, dropped := h.pass, i < h.dropped
		h.mu.Unlock()
		<-pass
		if err != nil {
			return
		}
		if dropped {
			continue
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

func TestTheNetworkToPostgreSQLLosesEverything(t *testing.T) {
	t.Parallel()
	server := testbed.Postgres(t)
	t.Run("calls end", func(t *testing.T) { callsEnd(t, server) })
	t.Run("notifications come again", func(t *testing.T) { notificationsComeAgain(t, server) })
}

// Without a bound, each of the calls would never return.
func callsEnd(t *testing.T, server *testbed.PostgresServer) {
	t.Helper()
	h, address := newHole(t, server)
	s, err := store.OpenLimited(t.Context(), address, time.Second)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	send := func(name string) error {
		return s.Update(t.Context(), func(tx *store.Tx) error {
			return tx.Send(store.Message{Topic: "t", Account: "a", Run: "r", Name: name})
		})
	}
	claim := func() ([]store.Message, error) { return s.Claim(t.Context(), "t", "o", time.Now(), time.Minute, 10) }
	require.NoError(t, send("first"))

	h.cut()
	const silent = "the database does not answer: check PostgreSQL and the network to it"
	var calls sync.WaitGroup
	for name, call := range map[string]func() error{
		"Update":  func() error { return send("second") },
		"Claim":   func() error { _, err := claim(); return err },
		"Next":    func() error { _, err := s.Next(t.Context(), "t"); return err },
		"letters": func() error { _, err := s.DeadLetters(t.Context(), "a", 0, 1); return err },
		"Ping":    func() error { return s.Ping(t.Context()) },
	} {
		calls.Go(func() {
			err := call()
			assert.ErrorContains(t, err, silent, name)
			assert.NotErrorIs(t, err, context.DeadlineExceeded, "the context of the caller has not ended")
		})
	}
	calls.Wait()
	own, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Ping(own), context.DeadlineExceeded, "the context of the caller has ended")

	h.open()
	require.Eventually(t, func() bool { return send("third") == nil }, time.Minute, 10*time.Millisecond)
	found := map[string]bool{}
	require.Eventually(t, func() bool { // a transaction of a lost connection may hold its rows until the server notices
		messages, _ := claim()
		for _, m := range messages {
			assert.False(t, found[m.Name], "message %s came twice", m.Name)
			found[m.Name] = true
		}
		return found["first"] && found["third"]
	}, time.Minute, 10*time.Millisecond)
}

// A service that only listens notices that its connection has died, and hears of messages again.
func notificationsComeAgain(t *testing.T, server *testbed.PostgresServer) {
	t.Helper()
	h, address := newHole(t, server)
	s, err := store.OpenLimited(t.Context(), address, time.Second)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	other := open(t, server.URL)
	woken := s.Wake("t")
	heard := func() bool {
		require.NoError(t, other.Update(t.Context(), func(tx *store.Tx) error {
			return tx.Send(store.Message{Topic: "t", Account: "a", Run: "r", Name: time.Now().String()})
		}))
		select {
		case <-woken:
			return true
		case <-time.After(100 * time.Millisecond):
			return false
		}
	}
	require.Eventually(t, heard, time.Minute, time.Millisecond)
	h.drop()
	require.Eventually(t, heard, time.Minute, time.Millisecond)
}
