package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/delegate-io/dlite/internal/podagent"
)

const (
	// dialTimeout limits one attempt to connect to a pod.
	dialTimeout = 30 * time.Second
	// idleTime is the time without an attempt after which the failures are forgotten.
	idleTime = time.Minute
	// pingEvery is the silence after which a connection is pinged, pingTimeout the limit
	// for the answer.
	pingEvery   = 15 * time.Second
	pingTimeout = 15 * time.Second
)

// link is the connection to the hub of a pod, as an [http.RoundTripper]. If the connection
// is cut, for example by a restart of the API server, the next request opens a new one.
type link struct {
	dial func(ctx context.Context) (net.Conn, error)
	// alive limits all connections and calls.
	alive context.Context //nolint:containedctx // a lifetime, not the context of a call
	// limit is the time of failing attempts after which dead is called with the last
	// error.
	limit time.Duration
	dead  func(error)

	mu      sync.Mutex
	conn    *http.ClientConn // guarded by mu
	opening *opening         // one at a time; guarded by mu
	failing time.Time        // start of the current series of failures; guarded by mu
	failed  time.Time        // time of the last failure; guarded by mu
	made    bool             // a connection has existed; guarded by mu
}

type opening struct {
	done chan struct{}
	conn *http.ClientConn
	err  error
}

// RoundTrip implements [http.RoundTripper].
func (l *link) RoundTrip(req *http.Request) (*http.Response, error) {
	conn, err := l.get(req.Context())
	if err != nil {
		return nil, err
	}
	res, err := conn.RoundTrip(req)
	if err == nil && res.Header.Get(podagent.HeaderLost) != "" {
		// This answer comes from the hub, not from the agent. To the client it looks like
		// a cut connection.
		text, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10))
		_ = res.Body.Close()
		return nil, fmt.Errorf("the agent cannot be reached: %s", text)
	}
	return res, err
}

func (l *link) get(ctx context.Context) (*http.ClientConn, error) {
	l.mu.Lock()
	if l.conn != nil && l.conn.Err() == nil {
		defer l.mu.Unlock()
		return l.conn, nil
	}
	o := l.opening
	if o == nil {
		o = &opening{done: newSignal()}
		l.opening = o
		go l.open(o) // ends with alive, or dialTimeout
	}
	l.mu.Unlock()
	select {
	case <-o.done:
		return o.conn, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *link) open(o *opening) {
	ctx, cancel := context.WithTimeout(l.alive, dialTimeout)
	defer cancel()
	o.conn, o.err = l.connect(ctx)
	l.mu.Lock()
	l.opening = nil
	tooLong, now := false, time.Now()
	switch {
	case o.err == nil:
		l.conn, l.made, l.failing = o.conn, true, time.Time{}
	case l.failing.IsZero() || now.Sub(l.failed) > idleTime:
		l.failing = now
	case isForbidden(o.err) && !l.made:
		tooLong = now.Sub(l.failing) > min(deniedTime, l.limit)
	default:
		tooLong = now.Sub(l.failing) > l.limit
	}
	l.failed = now
	l.mu.Unlock()
	if tooLong {
		l.dead(o.err)
	}
	close(o.done)
}

func (l *link) connect(ctx context.Context) (*http.ClientConn, error) {
	t := &http.Transport{
		Protocols:          new(http.Protocols),
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return l.dial(ctx) },
		DisableCompression: true,
		HTTP2:              &http.HTTP2Config{SendPingTimeout: pingEvery, PingTimeout: pingTimeout},
	}
	t.Protocols.SetUnencryptedHTTP2(true)
	return t.NewClientConn(ctx, "http", "hub:80")
}

// isForbidden reports whether a permission is missing. Errors of an exec have only the text
// of the cluster.
func isForbidden(err error) bool {
	return apierrors.IsForbidden(err) || strings.Contains(err.Error(), " is forbidden: ")
}

// close cuts the connection.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		_ = l.conn.Close()
	}
}

// exec runs a command in a container of a pod and returns its standard input and output as a
// connection. The command ends with the connection or with alive. Close of the driver waits
// for its goroutine.
func (d *Driver) exec(ctx context.Context, alive context.Context, namespace, name, container string, command ...string) (net.Conn, error) {
	url := d.api.Post().Namespace(namespace).Resource("pods").Name(name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdin: true, Stdout: true}, parameters).URL()
	spdy, err := remotecommand.NewSPDYExecutor(d.rest, "POST", url)
	if err != nil {
		return nil, err
	}
	socket, err := remotecommand.NewWebSocketExecutor(d.rest, "GET", url.String())
	if err != nil {
		return nil, err
	}
	executor, err := remotecommand.NewFallbackExecutor(socket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return nil, err
	}
	ours, theirs := net.Pipe()
	streaming, cut := context.WithCancel(alive)
	begun := &firstRead{Conn: theirs, read: newSignal()}
	failed := make(chan error, 1)
	ok := d.goTracked(func() {
		defer cut()
		err := executor.StreamWithContext(streaming, remotecommand.StreamOptions{Stdin: begun, Stdout: theirs})
		if err == nil {
			err = errors.New("the command has ended")
		}
		failed <- err
		_ = theirs.Close()
	})
	if !ok {
		cut()
		return nil, errClosed
	}
	conn := &stream{Conn: ours, cut: cut}
	select {
	case <-begun.read: // the command has started: nothing is read before
		return conn, nil
	case err := <-failed:
		return nil, fmt.Errorf("exec in pod %s/%s: %w", namespace, name, err)
	case <-ctx.Done():
		_ = conn.Close()
		return nil, fmt.Errorf("exec in pod %s/%s: %w", namespace, name, ctx.Err())
	}
}

// firstRead signals the first read.
type firstRead struct {
	net.Conn
	once sync.Once
	read chan struct{}
}

func (f *firstRead) Read(p []byte) (int, error) {
	f.once.Do(func() { close(f.read) })
	return f.Conn.Read(p)
}

// stream is a connection whose Close ends the exec.
type stream struct {
	net.Conn
	cut context.CancelFunc
}

func (s *stream) Close() error {
	s.cut()
	return s.Conn.Close()
}
