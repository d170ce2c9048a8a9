package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/delegate-io/dlite/internal/recorded"
)

var (
	podResource = schema.GroupResource{Resource: "pods"}
	errDenied   = apierrors.NewForbidden(podResource, "p", errors.New("not allowed"))
	errNoServer = &url.Error{Op: "Post", URL: "https://cluster.invalid", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}
)

// lone returns a driver without a cluster.
func lone(t *testing.T) *Driver {
	t.Helper()
	d := &Driver{cfg: Config{ReconnectTimeout: 5 * time.Minute}, pods: map[string]*pod{}}
	d.alive, d.stop = context.WithCancel(context.Background())
	t.Cleanup(func() {
		d.stop()
		d.work.Wait()
	})
	return d
}

// Rule D7: a temporary error of the API server does not fail a transaction, and any other
// error is returned at once.
func TestTemporaryErrorsOfCallsAreRetried(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err   error
		again bool
	}{
		"away":               {errNoServer, true},
		"cut off":            {&url.Error{Op: "Post", URL: "https://cluster.invalid", Err: syscall.ECONNRESET}, true},
		"slow":               {fmt.Errorf("wrapped: %w", context.DeadlineExceeded), true},
		"no time":            {apierrors.NewTooManyRequestsError("later"), true},
		"its store":          {apierrors.NewInternalError(errors.New("etcdserver: leader changed")), true},
		"starting":           {apierrors.NewServiceUnavailable("soon"), true},
		"a race":             {apierrors.NewConflict(podResource, "p", errors.New("try again")), true},
		"denied":             {errDenied, false},
		"denied, other text": {refusal("n/p", errDenied), false},
		"invalid":            {apierrors.NewBadRequest("no"), false},
		"already exists":     {apierrors.NewAlreadyExists(podResource, "p"), false},
		"gone":               {apierrors.NewNotFound(podResource, "p"), false},
		"no certificate":     {&url.Error{Op: "Post", URL: "https://cluster.invalid", Err: errors.New("x509: certificate signed by unknown authority")}, false},
		"ours":               {recorded.ErrCleanedUp, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				calls, reported := 0, 0
				err := lone(t).callAPI(t.Context(), func(error) { reported++ }, func(context.Context) error {
					if calls++; calls < 4 {
						return c.err
					}
					return nil
				})
				if c.again {
					require.NoError(t, err)
					assert.Equal(t, []int{4, 3}, []int{calls, reported})
				} else {
					require.ErrorIs(t, err, c.err)
					assert.Equal(t, []int{1, 0}, []int{calls, reported})
				}
			})
		})
	}
}

// Rule D7: the wait for an API server is bounded, and the context of the caller ends it
// earlier.
func TestRetriesOfCallsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, away := lone(t), func(context.Context) error { return errNoServer }
		begin := time.Now()
		require.ErrorIs(t, d.callAPI(t.Context(), nil, away), syscall.ECONNREFUSED)
		assert.InDelta(t, d.cfg.ReconnectTimeout, time.Since(begin), float64(2*longestPause))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin = time.Now()
		err := d.callAPI(ctx, nil, away)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		assert.Equal(t, time.Second, time.Since(begin))

		time.AfterFunc(time.Second, d.stop)
		require.ErrorIs(t, d.callAPI(t.Context(), nil, away), errClosed)
	})
}

// Rule D7: a permission may be missing for a short time, for example while it is replaced or
// while an API server starts. The pod is lost only if the permission stays missing.
func TestAWatchThatIsDeniedForAShortTimeDoesNotLoseThePod(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]time.Duration{"from the beginning": deniedTime, "later": 5 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWatcher("n/p", 5*time.Minute)
				if limit != deniedTime {
					w.allowed(nil)
					for range 3 {
						w.allowed(errDenied)
						<-time.After(limit / 2)
						w.allowed(errDenied)
						w.allowed(nil)
						<-time.After(limit)
						require.NoError(t, w.err())
					}
				}
				w.set(&corev1.Pod{}, nil) // a list alone
				w.allowed(errDenied)
				<-time.After(limit - 1)
				synctest.Wait()
				require.NoError(t, w.err())
				<-time.After(1)
				synctest.Wait()
				var why *Error
				require.ErrorAs(t, w.err(), &why)
				assert.Equal(t, reasonRefused, why.Reason)
				<-w.lost
				w.release()
			})
		})
	}
}

// Rule D7: a pod is abandoned when all attempts to reach it failed for a long time. Two
// failures with a long time between them, without attempts, do not count.
func TestAPodIsAbandonedWhenAttemptsFailForTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dead, reason := 0, error(errNoServer)
		l := &link{
			alive: t.Context(), limit: 5 * time.Minute, dead: func(error) { dead++ },
			dial: func(context.Context) (net.Conn, error) { return nil, reason },
		}
		try := func() {
			_, err := l.get(t.Context())
			require.ErrorIs(t, err, reason)
		}
		try()
		<-time.After(time.Hour)
		try()
		require.Zero(t, dead)
		for range 5 * 60 / 2 {
			<-time.After(2 * time.Second)
			try()
		}
		require.Zero(t, dead)
		<-time.After(2 * time.Second)
		try()
		require.Equal(t, 1, dead)

		// The wait for a permission that the driver never had is shorter.
		l.failing, reason = time.Time{}, errDenied
		try()
		<-time.After(deniedTime)
		try()
		require.Equal(t, 1, dead)
		<-time.After(time.Second)
		try()
		require.Equal(t, 2, dead)
	})
}

// Rule D7: a step that has ended returns its result even if its container cannot be reached.
// The container is ended later.
func TestAnEndedStepDoesNotWaitForItsContainer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := lone(t)
		p := &pod{d: d, namespace: "n", name: "p", watcher: newWatcher("n/p", time.Hour)}
		p.alive, p.stop = context.WithCancelCause(d.alive)
		ended := make(chan string, 1)
		hub := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { ended <- r.URL.Path })
		back := time.Now().Add(4 * time.Minute)
		p.link = &link{alive: p.alive, limit: 5 * time.Minute, dead: p.unreachable, dial: func(context.Context) (net.Conn, error) {
			if time.Now().Before(back) {
				return nil, errNoServer
			}
			return serve(t, hub), nil
		}}
		p.hub = &http.Client{Transport: p.link}
		r := &run{p: p, container: "s-step"}
		r.endContainer(t.Context())
		assert.Equal(t, "/end/s-step", <-ended)
		assert.False(t, time.Now().Before(back))
		require.NoError(t, p.err())
		p.link.close()
	})
}

// serve runs a handler on the other end of a connection.
func serve(t *testing.T, h http.Handler) net.Conn {
	t.Helper()
	near, far := net.Pipe()
	l := &oneConn{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
	l.conn <- far
	srv := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute, Protocols: new(http.Protocols)}
	srv.Protocols.SetUnencryptedHTTP2(true)
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(l) })
	t.Cleanup(func() {
		_ = srv.Close()
		serving.Wait()
	})
	return near
}

type oneConn struct {
	conn   chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{} }

// Rule T3: the removal of the credentials has its full time, even after a long removal of the
// pod.
func TestRemovalOfCredentialsHasASeparateTimeout(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	deadlines := map[string]time.Time{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodDelete {
			_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
			return
		}
		_, _ = fmt.Fprint(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
	}))
	t.Cleanup(srv.Close)
	d, err := New(Config{AgentImage: "agent:1", REST: &rest.Config{Host: srv.URL, WrapTransport: func(rt http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if end, ok := r.Context().Deadline(); ok && r.Method == http.MethodDelete {
				mu.Lock()
				deadlines[strings.Split(r.URL.Path, "/")[5]] = end
				mu.Unlock()
			}
			return rt.RoundTrip(r)
		})
	}}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	require.NoError(t, d.removePod(t.Context(), "default/"+recorded.NewName("tx")))
	mu.Lock()
	defer mu.Unlock()
	assert.True(t, deadlines["secrets"].After(deadlines["pods"]), "%v", deadlines)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Rule D7: the error distinguishes a removed node from an eviction, and does not report errors that
// an overloaded node retries.
func TestErrorsOfNodesAreClassified(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]string{
		"DeletionByTaintManager": reasonNodeLost, "DeletionByPodGC": reasonNodeLost, "EvictionByEvictionAPI": reasonEvicted, "PreemptionByScheduler": reasonEvicted,
		"TerminationByKubelet": reasonEvicted,
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: "words"},
		}}}
		var why *Error
		require.ErrorAs(t, podError(pod, &patience{}), &why)
		assert.Equal(t, want, why.Reason, reason)
		assert.Equal(t, "words", why.Message)
	}
	for message, busy := range map[string]bool{
		"context deadline exceeded": true, `failed to reserve container name "step_0": name "step_0" is reserved for "4711"`: true,
		"failed to sync configmap cache: timed out waiting for the condition": true, `secret "none" not found`: false,
	} {
		err := (&patience{}).startError(&corev1.Pod{}, corev1.ContainerStatus{State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerError", Message: message},
		}}, false)
		assert.Equal(t, busy, err == nil, message)
	}
}

// Rule D7: a failed init container, also one of a webhook, explains why the pod does not
// start.
func TestAFailedInitContainerExplainsWhyThePodDoesNotStart(t *testing.T) {
	t.Parallel()
	status := func(phase corev1.PodPhase, s corev1.ContainerState) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}, Status: corev1.PodStatus{
			Phase: phase, InitContainerStatuses: []corev1.ContainerStatus{{Name: "proxy", State: s}},
		}}
	}
	failed := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 2, Reason: "Error", Message: "no right\n"}}
	require.EqualError(t, podError(status(corev1.PodFailed, failed), &patience{}), "pod n/p, container proxy: it has ended: Error, exit code 2: no right")
	require.NoError(t, podError(status(corev1.PodPending, failed), &patience{}), "the node starts it again")
	image := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}}
	require.EqualError(t, podError(status(corev1.PodPending, image), &patience{}), "pod n/p, container proxy: its image cannot be pulled: ErrImagePull: not found")
}
