//go:build unix

package sidecar_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/client/clienttest"
	"github.com/delegate-io/dlite/driver/sidecar"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	routersecrets "github.com/delegate-io/dlite/router/secrets"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
)

const (
	socketVariable = "DLITE_TEST_SIDECAR_SOCKET"
	startVariable  = "DLITE_TEST_SIDECAR_START"
)

// The tests' program is also the sidecar that the tests start.
func TestMain(m *testing.M) {
	if socket := os.Getenv(socketVariable); socket != "" {
		legacy(socket)
		return
	}
	goleak.VerifyTestMain(m)
}

// legacy runs an example of a legacy process.
func legacy(socket string) {
	switch os.Getenv(startVariable) {
	case "die":
		os.Exit(4)
	case "sleep":
		select {}
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", socket)
	if err != nil {
		panic(err)
	}
	var mu sync.Mutex
	sick := false
	println("legacy is up")
	panic(http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case r.URL.Path == "/health" && sick:
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/health":
		case bytes.Contains(b, []byte(`"die"`)):
			os.Exit(3)
		case bytes.Contains(b, []byte(`"sick"`)):
			sick = true
		default:
			_, leaked := os.LookupEnv("DLITE_TEST_LEAK")
			task.WriteJSON(w, map[string]any{"pid": os.Getpid(), "given": os.Getenv("GIVEN"), "leaked": leaked}, 0)
		}
	})))
}

// call runs a task through a route of the sidecar.
func call(ctx context.Context, s *sidecar.Sidecar, typ, data string) *task.Response {
	r := router.New(s.Routes())
	resp, _ := task.Serve(ctx, r, &task.Task{ID: "t1", Type: typ, Data: json.RawMessage(data)})
	return resp
}

func pack(b string) string {
	return `{"taskPackage":"` + base64.StdEncoding.EncodeToString([]byte(b)) + `"}`
}

func newSidecar(t *testing.T, cfg sidecar.Config) *sidecar.Sidecar {
	t.Helper()
	s, err := sidecar.New(cfg)
	require.NoError(t, err)
	return s
}

// serve starts an external sidecar.
func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

// Rule D9: the sidecar gets the whole task, and its answer is the answer of the task.
func TestChosenTypesAreForwardedWhole(t *testing.T) {
	t.Parallel()
	var got task.Task
	var path string
	s := newSidecar(t, sidecar.Config{Types: []string{"HELM"}, URL: serve(t, func(w http.ResponseWriter, r *http.Request) {
		path = r.Method + " " + r.URL.Path + " " + r.Header.Get("Content-Type")
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&got))
		task.WriteJSON(w, "done", http.StatusCreated)
	}) + "/base/"})
	r := router.New(router.RouteMap(s.Routes()), router.WithMiddleware(routersecrets.Resolve(secrets.ResolverConfig{})))
	assert.Equal(t, []string{"HELM", "delegate_task"}, r.Types())
	var tk task.Task
	require.NoError(t, json.Unmarshal([]byte(`{"id":"t1","type":"HELM","data":{"p":"${{secrets.s}}"},"unknown":5,"account":"acme",
		"secrets":[{"id":"s","type":"secret/static","data":{"secrets":[{"value":"visibly-fake"}]}}]}`), &tk))
	resp, _ := task.Serve(t.Context(), r, &tk)
	assert.Equal(t, task.OK, resp.Code, resp.Error)
	assert.Equal(t, `"done"`, string(resp.Data))
	assert.Equal(t, "POST /base application/json", path)
	b, err := json.Marshal(&got)
	require.NoError(t, err)
	assert.JSONEq(t, `{"id":"t1","type":"HELM","data":{"p":"visibly-fake"},"unknown":5,"account":"acme"}`, string(b))
}

func TestTheSidecarsAnswerDecidesTheOutcome(t *testing.T) {
	t.Parallel()
	for want, h := range map[task.Code]http.HandlerFunc{
		task.OK:     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		task.Failed: func(w http.ResponseWriter, _ *http.Request) { task.WriteError(w, errors.New("no chart")) },
		task.RetryOnOtherDelegate: func(w http.ResponseWriter, _ *http.Request) {
			task.WriteError(w, task.Errorf(task.RetryOnOtherDelegate, "full"))
		},
		task.AnsweredElsewhere: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(task.CodeHeader, string(task.AnsweredElsewhere))
			w.WriteHeader(http.StatusAccepted)
		},
		// The outcome is not known, so the task is not sent again.
		task.Unknown: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		var calls atomic.Int32
		s := newSidecar(t, sidecar.Config{Types: []string{"HELM"}, URL: serve(t, func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			h(w, r)
		})})
		resp := call(t.Context(), s, "HELM", "1")
		assert.Equal(t, want, resp.Code, resp.Error)
		assert.EqualValues(t, 1, calls.Load())
		if want == task.Failed {
			assert.Equal(t, "no chart", resp.Error)
		}
	}
	s := newSidecar(t, sidecar.Config{Types: []string{"HELM"}, URL: serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.CopyN(w, zeros{}, task.MaxBody+1)
	})})
	assert.Contains(t, call(t.Context(), s, "HELM", "1").Error, "larger than")
	s = newSidecar(t, sidecar.Config{Types: []string{"HELM"}, URL: serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://127.0.0.1:1/elsewhere", http.StatusTemporaryRedirect)
	})})
	assert.Contains(t, call(t.Context(), s, "HELM", "1").Error, "status 307")
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// docs/protocol.md, section 2: the package is posted unchanged, and the sidecar answers
// the manager.
func TestADelegateTaskIsHandedOver(t *testing.T) {
	t.Parallel()
	const payload = "\x00\x01 any bytes \xff"
	var got []byte
	status := http.StatusOK
	s := newSidecar(t, sidecar.Config{URL: serve(t, func(w http.ResponseWriter, r *http.Request) {
		got, _ = io.ReadAll(r.Body)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(" no room \n"))
	})})
	resp := call(t.Context(), s, task.TypeDelegate, pack(payload))
	assert.Equal(t, task.AnsweredElsewhere, resp.Code)
	assert.Empty(t, resp.Error)
	assert.Equal(t, payload, string(got))
	status = http.StatusServiceUnavailable
	resp = call(t.Context(), s, task.TypeDelegate, pack(payload))
	assert.Equal(t, task.Failed, resp.Code)
	assert.Equal(t, "the sidecar did not accept the task: status 503: no room", resp.Error)
	got = nil
	for _, bad := range []string{`{}`, `{"taskPackage":"?"}`, `5`} {
		assert.Equal(t, task.Failed, call(t.Context(), s, task.TypeDelegate, bad).Code, bad)
	}
	assert.Nil(t, got)
}

// Rule D9: after the sidecar has accepted the task, no later error makes a second answer.
func TestADelegateTaskThatWasTakenIsNotAnsweredTwice(t *testing.T) {
	t.Parallel()
	s := newSidecar(t, sidecar.Config{URL: serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("taken, and"))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})})
	resp := call(t.Context(), s, task.TypeDelegate, pack("x"))
	assert.Equal(t, task.AnsweredElsewhere, resp.Code, resp.Error)
}

// Rule D9: a real delegate does not answer tasks that the sidecar answers itself.
func TestTheDelegateDoesNotAnswerForTheSidecar(t *testing.T) {
	t.Parallel()
	manager := clienttest.NewServer()
	t.Cleanup(manager.Close)
	c, err := client.New(manager.URL, manager.Account, manager.Secret)
	require.NoError(t, err)
	t.Cleanup(c.CloseIdleConnections)
	took := make(chan struct{}, 1)
	s := newSidecar(t, sidecar.Config{URL: serve(t, func(http.ResponseWriter, *http.Request) { took <- struct{}{} })})
	echo := task.HandlerFunc(func(_ context.Context, r *task.Request[int]) (int, error) { return r.Data, nil })
	p := poller.New(c, router.New(router.RouteMap(s.Routes()).Merge(router.RouteMap{"echo": echo})))
	info, err := p.Register(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = p.Poll(ctx, 1, info.ID, 10*time.Millisecond) })
	handed := manager.Submit(&task.Task{Type: task.TypeDelegate, Data: json.RawMessage(pack("x"))})
	<-took
	own := manager.Submit(&task.Task{Type: "echo", Data: json.RawMessage("7")})
	resp, err := own.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "7", string(resp.Data))
	cancel()
	wg.Wait() // running deliveries of answers end first
	assert.Zero(t, handed.Attempts())
	assert.EqualValues(t, 1, p.Stats().Answered[task.OK])
}

func TestASidecarThatCannotBeReached(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	s := newSidecar(t, sidecar.Config{URL: "unix://" + socket, Wait: -1})
	resp := call(t.Context(), s, task.TypeDelegate, pack("x"))
	assert.Equal(t, task.RetryOnOtherDelegate, resp.Code, "nothing has been sent")
	assert.Contains(t, resp.Error, "cannot be reached")

	// A sidecar that starts meanwhile gets the task.
	s = newSidecar(t, sidecar.Config{URL: "unix://" + socket, Wait: time.Hour})
	var wg sync.WaitGroup
	wg.Go(func() {
		assert.Equal(t, task.AnsweredElsewhere, call(t.Context(), s, task.TypeDelegate, pack("x")).Code)
	})
	<-time.After(50 * time.Millisecond) // it has been tried by now, or will be later: both must do
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	require.NoError(t, srv.Listener.Close())
	srv.Listener = l
	srv.Start()
	wg.Wait()
	srv.Close()

	// The deadline of the task ends the wait.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	assert.Equal(t, task.Timeout, call(ctx, s, task.TypeDelegate, pack("x")).Code)
}

// A task waits for a silent sidecar until its deadline.
func TestASidecarThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := newSidecar(t, sidecar.Config{Types: []string{"HELM"}, URL: serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body) // or the server does not see the connection end
		<-r.Context().Done()
	})})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	assert.Equal(t, task.Timeout, call(ctx, s, "HELM", "1").Code)
	gone := errors.New("aborted by a person")
	aborted, abort := context.WithCancelCause(t.Context())
	abort(gone)
	resp := call(aborted, s, "HELM", "1")
	assert.Equal(t, task.Failed, resp.Code)
	assert.Contains(t, resp.Error, gone.Error())
}

func TestAConfigurationThatIsWrong(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]sidecar.Config{
		"url must be":                  {URL: "ftp://x"},
		"url must be http":             {URL: "unix:relative"},
		"is not valid":                 {URL: "http://visibly-fake:\x7f@x"},
		"task type is empty":           {Types: []string{""}},
		"except Wait must not be":      {HealthInterval: -1},
		"HealthFailures and all times": {HealthFailures: -1},
		"variable 1 of 1":              {Env: []string{"visibly-fake"}},
		"executable file not f":        {Command: []string{"no-such-program-anywhere"}},
	} {
		_, err := sidecar.New(cfg)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "visibly-fake")
	}
}

// supervised starts the tests' own program as a sidecar.
type supervised struct {
	*sidecar.Sidecar
	events *testbed.Events
	stop   func()
}

func supervise(t *testing.T, change func(*sidecar.Config)) *supervised {
	t.Helper()
	s := &supervised{events: testbed.NewEvents()}
	socket := filepath.Join(t.TempDir(), "s")
	cfg := sidecar.Config{
		URL: "unix://" + socket, Types: []string{"HELM"}, Command: []string{os.Args[0]}, Health: "health",
		Env:            []string{socketVariable + "=" + socket, "GIVEN=yes"},
		HealthInterval: 20 * time.Millisecond, Pause: time.Millisecond, MaxPause: 10 * time.Millisecond, Wait: time.Minute,
		Log: zerolog.New(s.events),
	}
	if change != nil {
		change(&cfg)
	}
	s.Sidecar = newSidecar(t, cfg)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { s.Run(ctx) })
	s.stop = func() { cancel(); wg.Wait() }
	t.Cleanup(s.stop)
	return s
}

type legacyAnswer struct {
	PID    int    `json:"pid"`
	Given  string `json:"given"`
	Leaked bool   `json:"leaked"`
}

func (s *supervised) ask(t *testing.T) legacyAnswer {
	t.Helper()
	resp := call(t.Context(), s.Sidecar, "HELM", `"hello"`)
	require.Equal(t, task.OK, resp.Code, resp.Error)
	var a legacyAnswer
	require.NoError(t, json.Unmarshal(resp.Data, &a))
	return a
}

// Rule D9: Run starts the sidecar, waits until it is healthy, and stops it at the end.
// Not parallel: it sets a variable of the process of the tests.
func TestASidecarIsStartedAndStopped(t *testing.T) {
	t.Setenv("DLITE_TEST_LEAK", "x")
	s := supervise(t, nil)
	a := s.ask(t) // waits until it is healthy
	assert.Equal(t, "yes", a.Given)
	assert.False(t, a.Leaked, "the delegate's variables are not inherited")
	s.events.WaitFor(t, `"output":"legacy is up"`, 1)
	s.stop()
	assert.ErrorIs(t, syscall.Kill(a.PID, 0), syscall.ESRCH, "nothing is left")
	assert.NotContains(t, s.events.String(), "has ended", "a stop is no accident")
}

// Rule D9: the socket of a killed sidecar does not prevent the next start.
func TestASocketWithoutListenerIsRemoved(t *testing.T) {
	t.Parallel()
	s := supervise(t, func(c *sidecar.Config) {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", strings.TrimPrefix(c.URL, "unix://"))
		require.NoError(t, err)
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		require.NoError(t, l.Close())
	})
	assert.NotZero(t, s.ask(t).PID)
}

// Rule D9: another process at the address gets no task, and an event reports it.
func TestAnotherProcessAtTheAddress(t *testing.T) {
	t.Parallel()
	var other net.Listener
	s := supervise(t, func(c *sidecar.Config) {
		var err error
		other, err = (&net.ListenConfig{}).Listen(t.Context(), "unix", strings.TrimPrefix(c.URL, "unix://"))
		require.NoError(t, err)
		c.Health = ""
	})
	s.events.WaitFor(t, "another process listens at ", 2)
	assert.NotContains(t, s.events.String(), "is healthy")
	assert.NotContains(t, s.events.String(), "is started")
	require.NoError(t, other.Close())
	assert.NotZero(t, s.ask(t).PID, "it comes when there is room")
}

// Rule D9: a process that ends or is unhealthy is restarted, and tasks wait for it.
func TestASidecarIsStartedAgain(t *testing.T) {
	t.Parallel()
	s := supervise(t, nil)
	first := s.ask(t).PID
	resp := call(t.Context(), s.Sidecar, "HELM", `"die"`)
	assert.Equal(t, task.Unknown, resp.Code, resp.Error)
	s.events.WaitFor(t, "it ended by itself: exit status 3", 1)
	second := s.ask(t).PID
	assert.NotEqual(t, first, second)
	call(t.Context(), s.Sidecar, "HELM", `"sick"`)
	s.events.WaitFor(t, "it is not healthy: health answers 503", 1)
	assert.NotEqual(t, second, s.ask(t).PID)
	s.events.WaitFor(t, "the sidecar is healthy", 3)
}

func TestASidecarThatNeverBecomesHealthy(t *testing.T) {
	t.Parallel()
	for how, why := range map[string]string{"die": "exit status 4", "sleep": "it was not healthy within 50ms"} {
		s := supervise(t, func(c *sidecar.Config) {
			c.Env = append(c.Env, startVariable+"="+how)
			c.StartTimeout, c.Wait, c.Grace = 50*time.Millisecond, 100*time.Millisecond, time.Millisecond
			if how == "die" {
				c.StartTimeout = time.Minute
			}
		})
		s.events.WaitFor(t, why, 3)
		resp := call(t.Context(), s.Sidecar, "HELM", "1")
		assert.Equal(t, task.RetryOnOtherDelegate, resp.Code)
		assert.Contains(t, resp.Error, "it is not healthy")
		s.events.WaitFor(t, `"again_in":"10ms"`, 1) // the pause grows
	}
}

// Without a health path, a healthy sidecar accepts connections.
func TestASidecarWithoutAHealthPath(t *testing.T) {
	t.Parallel()
	s := supervise(t, func(c *sidecar.Config) { c.Health = "" })
	assert.NotZero(t, s.ask(t).PID)
}
