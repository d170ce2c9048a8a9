package podagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// StepConfig configures [Step].
type StepConfig struct {
	// Container is the name of the container ([EnvContainer]), Token its token
	// ([EnvToken]). Both are required.
	Container, Token string
	// Agent serves the agent API (docs/protocol.md, section 5) for this container.
	// Required.
	Agent http.Handler
	// Socket is the socket of the hub. The default is [Socket].
	Socket string
}

// Step connects to the hub and serves the agent on that connection. It returns after
// /destroy, when the hub ends, or when ctx ends.
func Step(ctx context.Context, cfg StepConfig) error {
	if cfg.Container == "" || cfg.Token == "" || cfg.Agent == nil {
		return errors.New("step: the name of the container, its token and an agent are required: set " + EnvContainer + " and " + EnvToken)
	}
	if cfg.Socket == "" {
		cfg.Socket = Socket
	}
	conn, err := connect(ctx, cfg.Socket)
	if err != nil {
		return err
	}
	if err := introduce(conn, hello{Container: cfg.Container, Token: cfg.Token}); err != nil {
		_ = conn.Close()
		return err
	}
	l := &single{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
	watched := &watchedConn{Conn: conn, closed: make(chan struct{})}
	l.conn <- watched
	server := newServer(cfg.Agent)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case <-watched.closed:
	case <-ctx.Done():
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		_ = server.Shutdown(late)
		cancel()
	}
	_ = server.Close()
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the agent: %w", err)
	}
	return nil
}

func introduce(conn net.Conn, as hello) error {
	if err := conn.SetDeadline(time.Now().Add(helloTime)); err != nil {
		return err
	}
	line, err := json.Marshal(as)
	if err != nil {
		return err
	}
	if _, err := conn.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("introduce the container to the hub: %w", err)
	}
	// Read no more than this answer: HTTP follows.
	got := make([]byte, len(welcome))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != welcome {
		return fmt.Errorf("the hub refuses container %q: %w", as.Container, err)
	}
	return conn.SetDeadline(time.Time{})
}

// single is a listener with one connection.
type single struct {
	conn   chan net.Conn
	close  sync.Once
	closed chan struct{}
}

func (s *single) Accept() (net.Conn, error) {
	select {
	case c := <-s.conn:
		return c, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

func (s *single) Close() error {
	s.close.Do(func() { close(s.closed) })
	return nil
}

func (s *single) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// watchedConn closes a channel when it is closed, by either side: the server closes it when
// it reads the end.
type watchedConn struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (c *watchedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { close(c.closed) })
	return err
}
