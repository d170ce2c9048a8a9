package podagent

import (
	"bufio"
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
)

const (
	// helloTime limits the time until a new connection has sent its hello line,
	// helloLimit the length of that line in bytes.
	helloTime  = 10 * time.Second
	helloLimit = 4096
	// acceptPause is the time between two attempts after a failed accept.
	acceptPause = 10 * time.Millisecond
)

// members are the agents in the containers of a pod.
type members struct {
	mu   sync.Mutex
	list map[string]*member // guarded by mu
}

// member is the agent of a container. It is created by the first request for it, or when
// the agent joins.
type member struct {
	// joined is closed when the agent has joined.
	joined chan struct{}
	// conn is set before joined is closed.
	conn *http.ClientConn
	// unwanted means that the container must end; guarded by members.mu.
	unwanted bool
}

func newMembers() *members { return &members{list: map[string]*member{}} }

func (m *members) of(container string) *member {
	m.mu.Lock()
	defer m.mu.Unlock()
	one := m.list[container]
	if one == nil {
		one = &member{joined: make(chan struct{})}
		m.list[container] = one
	}
	return one
}

// join sets the connection of a container. The agent of a container joins once: a second
// connection with its name comes from the step and is refused.
func (m *members) join(container string, conn *http.ClientConn) bool {
	one := m.of(container)
	m.mu.Lock()
	defer m.mu.Unlock()
	if one.conn != nil || one.unwanted {
		return false
	}
	one.conn = conn
	close(one.joined)
	return true
}

// accept accepts connections of agents until ctx ends.
func (m *members) accept(ctx context.Context, l net.Listener, token string, welcome func()) {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	var greeting sync.WaitGroup
	defer greeting.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			select {
			case <-time.After(acceptPause): // most likely out of file descriptors
				continue
			case <-ctx.Done():
				return
			}
		}
		greeting.Go(func() {
			if err := m.greet(ctx, conn, token, welcome); err != nil {
				_ = conn.Close()
			}
		})
	}
}

func (m *members) greet(ctx context.Context, conn net.Conn, token string, welcomed func()) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(helloTime)); err != nil {
		return err
	}
	// The agent sends nothing after the line until it has the answer.
	line, err := bufio.NewReaderSize(io.LimitReader(conn, helloLimit), helloLimit).ReadBytes('\n')
	if err != nil {
		return err
	}
	var greeting hello
	if err := json.Unmarshal(bytes.TrimSpace(line), &greeting); err != nil {
		return err
	}
	if subtle.ConstantTimeCompare([]byte(greeting.Token), []byte(TokenOf(token, greeting.Container))) != 1 {
		return errors.New("the token is wrong")
	}
	welcomed()
	if _, err := io.WriteString(conn, welcome); err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	cc, err := clientConn(ctx, conn)
	if err != nil {
		return err
	}
	if !m.join(greeting.Container, cc) {
		_ = cc.Close()
	}
	return nil
}

// clientConn makes an HTTP/2 client connection of conn.
func clientConn(ctx context.Context, conn net.Conn) (*http.ClientConn, error) {
	t := &http.Transport{
		Protocols:          new(http.Protocols),
		DialContext:        func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		DisableCompression: true,
	}
	t.Protocols.SetUnencryptedHTTP2(true)
	return t.NewClientConn(ctx, "http", "agent:80")
}

// ready answers when the agent of the container has joined.
func (m *members) ready(w http.ResponseWriter, r *http.Request) {
	one := m.of(chi.URLParam(r, "container"))
	select {
	case <-one.joined:
		answer(w, http.StatusOK, struct{}{})
	case <-r.Context().Done():
	}
}

// forward forwards a request to the agent of the container.
func (m *members) forward(w http.ResponseWriter, r *http.Request) {
	container := chi.URLParam(r, "container")
	one := m.of(container)
	select {
	case <-one.joined:
	default:
		w.Header().Set(HeaderLost, container)
		refuse(w, http.StatusServiceUnavailable, fmt.Errorf("the agent of container %q has not connected yet", container))
		return
	}
	one.forward(w, r, container, "/"+chi.URLParam(r, "*"))
}

// end ends a container: its agent stops the step and exits. An agent that has not joined
// yet is refused when it connects.
func (m *members) end(w http.ResponseWriter, r *http.Request) {
	container := chi.URLParam(r, "container")
	one := m.of(container)
	m.mu.Lock()
	one.unwanted = true
	conn := one.conn
	m.mu.Unlock()
	if conn == nil || conn.Err() != nil {
		answer(w, http.StatusOK, struct{}{})
		return
	}
	destroy(r.Context(), conn)
	_ = conn.Close() // the agent then ends its container
	answer(w, http.StatusOK, struct{}{})
}

// destroy calls /destroy of an agent. An agent that does not answer has ended.
func destroy(ctx context.Context, conn *http.ClientConn) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://agent/destroy", strings.NewReader("{}"))
	if err != nil {
		return
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := conn.RoundTrip(req)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, bodyLimit))
	_ = res.Body.Close()
}

func (one *member) forward(w http.ResponseWriter, r *http.Request, container, call string) {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = "http", "agent"
			p.Out.URL.Path, p.Out.URL.RawPath = call, ""
		},
		Transport:     one.conn,
		FlushInterval: -1, // forward output without delay
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			w.Header().Set(HeaderLost, container)
			refuse(w, http.StatusBadGateway, fmt.Errorf("the agent of container %q: %w", container, err))
		},
		ErrorLog: log.New(io.Discard, "", 0), // the client repeats calls that were cut
	}
	proxy.ServeHTTP(w, r)
}
