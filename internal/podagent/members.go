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
	// helloTime is how long a new connection may take to say what it is, and
	// helloLimit how much it may say, in bytes.
	helloTime  = 10 * time.Second
	helloLimit = 4096
	// acceptPause is the time between attempts when no connection can be taken in.
	acceptPause = 10 * time.Millisecond
)

// members are the containers of a pod whose agents have come to the hub.
type members struct {
	mu   sync.Mutex
	list map[string]*member // guarded by mu
}

// member is a container's agent. It has its place as soon as somebody asks for
// it.
type member struct {
	// come is closed when the agent has.
	come chan struct{}
	// conn is set before that.
	conn *http.ClientConn
	// unwanted says that its container is to end; guarded by members.mu.
	unwanted bool
}

func newMembers() *members { return &members{list: map[string]*member{}} }

func (m *members) of(container string) *member {
	m.mu.Lock()
	defer m.mu.Unlock()
	one := m.list[container]
	if one == nil {
		one = &member{come: make(chan struct{})}
		m.list[container] = one
	}
	return one
}

// join gives a container its connection. A container's agent comes once: whatever
// comes later in its name is the step's doing.
func (m *members) join(container string, conn *http.ClientConn) bool {
	one := m.of(container)
	m.mu.Lock()
	defer m.mu.Unlock()
	if one.conn != nil || one.unwanted {
		return false
	}
	one.conn = conn
	close(one.come)
	return true
}

// accept takes in agents until ctx ends.
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
			case <-time.After(acceptPause): // out of files, most likely
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
	// Nothing comes after the line before it is answered.
	line, err := bufio.NewReaderSize(io.LimitReader(conn, helloLimit), helloLimit).ReadBytes('\n')
	if err != nil {
		return err
	}
	var said hello
	if err := json.Unmarshal(bytes.TrimSpace(line), &said); err != nil {
		return err
	}
	if subtle.ConstantTimeCompare([]byte(said.Token), []byte(TokenOf(token, said.Container))) != 1 {
		return errors.New("a wrong token")
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
	if !m.join(said.Container, cc) {
		_ = cc.Close()
	}
	return nil
}

// clientConn speaks HTTP/2 on conn, as the side that asks.
func clientConn(ctx context.Context, conn net.Conn) (*http.ClientConn, error) {
	t := &http.Transport{
		Protocols:          new(http.Protocols),
		DialContext:        func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		DisableCompression: true,
	}
	t.Protocols.SetUnencryptedHTTP2(true)
	return t.NewClientConn(ctx, "http", "agent:80")
}

// ready answers when the container's agent has come.
func (m *members) ready(w http.ResponseWriter, r *http.Request) {
	one := m.of(chi.URLParam(r, "container"))
	select {
	case <-one.come:
		answer(w, http.StatusOK, struct{}{})
	case <-r.Context().Done():
	}
}

// forward passes a request on to the container's agent.
func (m *members) forward(w http.ResponseWriter, r *http.Request) {
	container := chi.URLParam(r, "container")
	one := m.of(container)
	select {
	case <-one.come:
	default:
		w.Header().Set(HeaderLost, container)
		refuse(w, http.StatusServiceUnavailable, fmt.Errorf("the agent of container %q has not come yet", container))
		return
	}
	one.forward(w, r, container, "/"+chi.URLParam(r, "*"))
}

// end ends a container: its agent destroys what there is, and goes. One that has
// not come yet is sent away when it does.
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
	_ = conn.Close() // which the agent takes for the end of its container
	answer(w, http.StatusOK, struct{}{})
}

// destroy asks an agent to. One that does not answer any more has ended.
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
		FlushInterval: -1, // output is passed on as it comes
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			w.Header().Set(HeaderLost, container)
			refuse(w, http.StatusBadGateway, fmt.Errorf("the agent of container %q: %w", container, err))
		},
		ErrorLog: log.New(io.Discard, "", 0), // what is cut off is asked for again
	}
	proxy.ServeHTTP(w, r)
}
