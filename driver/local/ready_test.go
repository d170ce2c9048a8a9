//go:build unix

package local_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/task/stage"
)

// background makes step a background step with a readiness check.
func background(step stage.Step, ready stage.Ready) stage.Step {
	step.Detach, step.Ready = true, &ready
	return step
}

// begin starts a background step that must become ready.
func (r *rig) begin(step stage.Step) *buffer {
	r.t.Helper()
	out := newBuffer()
	res, err := r.d.Execute(r.t.Context(), r.env, &driver.Step{Step: step}, out, r.ledger)
	res.End()
	require.NoError(r.t, err, out.String())
	require.True(r.t, res.Detached)
	return out
}

func TestReadinessIsChecked(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	before := len(r.ledger.resources())
	for want, step := range map[string]stage.Step{
		"set detach":             {ID: "s", Ready: &stage.Ready{Port: 80}},
		"not 0 of them":          background(stage.Step{ID: "s"}, stage.Ready{}),
		"not 2 of them":          background(stage.Step{ID: "s"}, stage.Ready{Port: 80, Command: []string{"true"}}),
		"not 3 of them":          background(stage.Step{ID: "s"}, stage.Ready{Port: 80, HTTP: "http://localhost", Command: []string{"true"}}),
		"port 65536":             background(stage.Step{ID: "s"}, stage.Ready{Port: 65536}),
		"port -1":                background(stage.Step{ID: "s"}, stage.Ready{Port: -1}),
		"must not be negative":   background(stage.Step{ID: "s"}, stage.Ready{Port: 1, Timeout: -1}),
		"interval_ms must not":   background(stage.Step{ID: "s"}, stage.Ready{Port: 1, IntervalMillis: -1}),
		"with localhost for the": background(stage.Step{ID: "s"}, stage.Ready{HTTP: "http://example.com/"}),
		"a URL like":             background(stage.Step{ID: "s"}, stage.Ready{HTTP: "localhost:80"}),
	} {
		_, err := r.fail(step)
		require.ErrorContains(t, err, want)
	}
	require.Len(t, r.ledger.resources(), before, "nothing was started")
}

// idlePort returns a port without a listener.
func idlePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed at once
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// httpd returns a script that serves the directory www with busybox when the file go exists.
func httpd(port int) string {
	return fmt.Sprintf(`mkdir -p www; echo hello > www/index.html; while [ ! -e go ]; do sleep 0.01; done; echo serving; exec busybox httpd -f -p %d -h www`, port)
}

func needBusybox(t *testing.T) {
	t.Helper()
	for _, p := range []string{"/bin/busybox", "/usr/bin/busybox"} {
		if _, err := os.Stat(p); err == nil {
			return
		}
	}
	testbed.Unavailable(t, "busybox", "there is no busybox")
}

// Rule D2: Execute returns when the service is ready, and the following steps find it.
func TestExecuteReturnsWhenABackgroundHostStepIsReady(t *testing.T) {
	t.Parallel()
	needBusybox(t)
	port := idlePort(t)
	for name, ready := range map[string]stage.Ready{
		"port":    {Port: port},
		"http":    {HTTP: fmt.Sprintf("http://localhost:%d/index.html", port)},
		"command": {Command: []string{"sh", "-c", `[ "$WHO" = me ] && [ -e www ] && wget -q -O - http://127.0.0.1:` + strconv.Itoa(port) + `/ || busybox wget -q -O - http://127.0.0.1:` + strconv.Itoa(port) + `/`}},
	} {
		ready.IntervalMillis = 20
		r := newRig(t).init()
		step := background(sh("web.1", httpd(port)), ready)
		step.Environment = map[string]string{"WHO": "me"}
		step.Name, step.NetworkAliases = "The Web", []string{"www"}
		out, done := newBuffer(), make(chan error, 1)
		go func() {
			_, err := r.d.Execute(t.Context(), r.env, &driver.Step{Step: step}, out, r.ledger)
			done <- err
		}()
		select {
		case err := <-done:
			t.Fatalf("%s: answered before it was ready: %v", name, err)
		case <-time.After(300 * time.Millisecond):
		}
		r.run(sh("go", "touch go"))
		require.NoError(t, receive(t, done), name)
		for _, variable := range []string{"DLITE_SERVICE_WEB_1_HOST", "DLITE_SERVICE_THE_WEB_HOST", "DLITE_SERVICE_WWW_HOST"} {
			_, got := r.run(sh("use", fmt.Sprintf("busybox wget -q -O - http://$%s:%d/", variable, port)))
			require.Equal(t, "hello\n", got, name)
		}
		r.cleanup()
		requireNoProcess(t, r)
	}
}

func TestBackgroundStepThatEndsBeforeItIsReadyFails(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	start := time.Now()
	out, err := r.fail(background(sh("db", "echo no space for the data; exit 9"), stage.Ready{Port: idlePort(t), IntervalMillis: 60_000}))
	require.ErrorContains(t, err, "ended with exit code 9 before it was ready")
	require.ErrorContains(t, err, "its output has the reason")
	require.Equal(t, "no space for the data\n", out)
	require.Less(t, time.Since(start), 20*time.Second, "its end is noticed between two attempts")
	_, err = r.fail(background(sh("db", "exit 0"), stage.Ready{Port: idlePort(t)}))
	require.ErrorContains(t, err, "ended with exit code 0 before it was ready")
	_, out = r.run(sh("other", "env"))
	require.NotContains(t, out, "DLITE_SERVICE_")
}

// If another process answers on the port, a step that has ended is not ready.
func TestAServiceThatLostItsPortIsNotReady(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	// The check succeeds after the step has ended.
	_, err := r.fail(background(sh("web", "exit 1"), stage.Ready{Command: []string{"sh", "-c", "sleep 0.5; exit 0"}}))
	require.ErrorContains(t, err, "exit code 1")
}

// A service may put itself in the background.
func TestAServiceMayBecomeADaemon(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	r.begin(background(sh("daemon", `(setsid sh -c 'sleep 0.3; touch ready; sleep 600' >/dev/null 2>&1 &); exit 0`),
		stage.Ready{Command: []string{"test", "-e", "ready"}, IntervalMillis: 20}))
	r.cleanup()
	requireNoProcess(t, r)
}

func TestBackgroundStepThatIsNotReadyInTimeIsStopped(t *testing.T) {
	t.Parallel()
	for name, ready := range map[string]stage.Ready{
		"port":            {Port: idlePort(t)},
		"command":         {Command: []string{"sh", "-c", "echo the reason; exit 3"}},
		"endless command": {Command: []string{"sh", "-c", "echo the reason; sleep 600 & sleep 600"}},
		"missing command": {Command: []string{"no-such-program"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ready.Timeout = 1
			r := newRig(t, withGrace(10*time.Second)).init()
			out, err := r.fail(background(sh("db", `trap 'echo stopping; exit' TERM; while :; do sleep 0.02; done`), ready))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "not ready within 1s")
			require.Contains(t, out, "stopping\n")
			switch name {
			case "port":
				require.ErrorContains(t, err, "refused")
			case "command":
				require.ErrorContains(t, err, "exited with 3")
				fallthrough
			case "endless command":
				require.Contains(t, out, "The last readiness check printed:\nthe reason\n")
			default:
				require.ErrorContains(t, err, `"no-such-program" is not in the step's PATH`)
			}
			requireNoProcess(t, r)
		})
	}
}

func TestAbortOfAStepThatGetsReadyStopsIt(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	for _, abort := range []string{"context", "cleanup", "close"} {
		ctx, cancel := context.WithCancel(t.Context())
		out, done := newBuffer(), make(chan error, 1)
		go func() {
			step := background(sh("db", "echo up; sleep 600"), stage.Ready{Command: []string{"sh", "-c", "sleep 600"}})
			_, err := r.d.Execute(ctx, r.env, &driver.Step{Step: step}, out, r.ledger)
			done <- err
		}()
		out.waitFor(t, "up")
		switch abort {
		case "context":
			cancel()
		case "cleanup":
			left, err := r.d.Cleanup(t.Context(), r.ledger.ofKind("process"))
			require.NoError(t, err)
			require.Empty(t, left)
			requireNoProcess(t, r)
		default:
			require.NoError(t, r.d.Close())
			requireNoProcess(t, r)
		}
		err := receive(t, done)
		require.Error(t, err, abort)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		requireNoProcess(t, r)
		cancel()
	}
}

// Close does not wait for a service that has closed its output.
func TestCloseEndsASilentService(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	out := newBuffer()
	step := sh("db", `echo up; exec >/dev/null 2>&1; sleep 600`)
	step.Detach = true
	_, err := r.d.Execute(t.Context(), r.env, &driver.Step{Step: step}, out, r.ledger)
	require.NoError(t, err)
	out.waitFor(t, "up")
	require.NoError(t, r.d.Close())
	requireNoProcess(t, r)
}

func TestHTTPReadinessWantsAStatusBelow400(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Host != "localhost:"+req.URL.Query().Get("port") {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		switch calls.Add(1) {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			w.WriteHeader(http.StatusNotFound)
		default:
			http.Redirect(w, req, "http://nowhere.invalid/", http.StatusFound)
		}
	}))
	defer srv.Close()
	_, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	require.NoError(t, err)
	r := newRig(t).init()
	r.begin(background(sh("web", "sleep 600"), stage.Ready{HTTP: "https://localhost:" + port + "/?port=" + port, IntervalMillis: 10}))
	require.EqualValues(t, 3, calls.Load())
}

// proxyTo makes an engine reachable over TCP.
func proxyTo(t *testing.T, socket string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // the test closes it
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = in.Close() }()
				out, err := net.Dial("unix", socket) //nolint:noctx // ends with the other side
				if err != nil {
					return
				}
				defer func() { _ = out.Close() }()
				go func() {
					_, _ = io.Copy(out, in)
					_ = out.Close()
				}()
				_, _ = io.Copy(in, out)
			}()
		}
	}()
	return "tcp://" + l.Addr().String()
}

// Rule D2: containers reach the service by name, host steps by address.
func TestExecuteReturnsWhenABackgroundContainerIsReady(t *testing.T) {
	t.Parallel()
	for name, ready := range map[string]stage.Ready{
		"port":    {Port: 8080},
		"http":    {HTTP: "http://localhost:8080/index.html"},
		"command": {Command: []string{"sh", "-c", "[ -n \"$WHO\" ] && wget -q -O - http://localhost:8080/"}},
	} {
		for _, remote := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s remote=%v", name, remote), func(t *testing.T) {
				t.Parallel()
				var opts []option
				if remote {
					engine := testbed.Docker(t)
					opts = append(opts, withDockerHost(proxyTo(t, strings.TrimPrefix(engine.Client.DaemonHost(), "unix://"))))
				}
				r, engine := dockerRig(t, opts...)
				r.init()
				ready := ready
				ready.IntervalMillis = 50
				step := in(engine.Image, background(sh("web.1", strings.Replace(httpd(8080), "echo serving", "sleep 0.5; echo serving", 1)), ready))
				step.Environment = map[string]string{"WHO": "me"}
				step.Name, step.NetworkAliases = "The Web", []string{"www"}
				require.NoError(t, os.WriteFile(filepath.Join(workspace(r), "go"), nil, 0o600))
				r.begin(step).waitFor(t, "serving\n")
				for _, host := range []string{"web-1", "the-web", "www", "$DLITE_SERVICE_WEB_1_HOST", "$DLITE_SERVICE_THE_WEB_HOST"} {
					_, got := r.run(in(engine.Image, sh("use", "wget -q -O - http://"+host+":8080/")))
					require.Equal(t, "hello\n", got, host)
				}
				if remote {
					_, got := r.run(sh("use", "env"))
					require.NotContains(t, got, "DLITE_SERVICE_WEB_1_HOST")
					return
				}
				needBusybox(t)
				_, got := r.run(sh("use", "busybox wget -q -O - http://$DLITE_SERVICE_WWW_HOST:8080/"))
				require.Equal(t, "hello\n", got)
			})
		}
	}
}

// A service on the host, and a client in a container.
func TestContainersReachServicesOfTheHost(t *testing.T) {
	t.Parallel()
	needBusybox(t)
	r, engine := dockerRig(t)
	r.init()
	port := idlePort(t)
	step := background(sh("web.1", httpd(port)), stage.Ready{Port: port, IntervalMillis: 20})
	step.NetworkAliases = []string{"www"}
	require.NoError(t, os.WriteFile(filepath.Join(workspace(r), "go"), nil, 0o600))
	r.begin(step)
	for _, host := range []string{"web-1", "www", "host.docker.internal", "$DLITE_SERVICE_WEB_1_HOST", "$DLITE_SERVICE_WWW_HOST"} {
		_, got := r.run(in(engine.Image, sh("use", fmt.Sprintf("wget -q -O - http://%s:%d/", host, port))))
		require.Equal(t, "hello\n", got, host)
	}
	use := in(engine.Image, sh("use", "grep www /etc/hosts; echo $DLITE_SERVICE_WWW_HOST"))
	use.ExtraHosts = []string{"www:192.0.2.7"}
	_, got := r.run(use)
	require.Equal(t, "192.0.2.7\twww\nhost.docker.internal\n", got, "the hosts of the step count")
	use = in(engine.Image, sh("use", fmt.Sprintf("wget -q -O - http://$DLITE_SERVICE_WWW_HOST:%d/; echo $DLITE_SERVICE_WWW_HOST", port)))
	use.Network = "host"
	_, got = r.run(use)
	require.Equal(t, "hello\n127.0.0.1\n", got)
}

func TestBackgroundContainerThatIsNotReadyIsRemoved(t *testing.T) {
	t.Parallel()
	r, engine := dockerRig(t)
	r.init()
	out, err := r.fail(in(engine.Image, background(sh("db", "echo no space for the data; exit 9"), stage.Ready{Port: 8080, IntervalMillis: 60_000})))
	require.ErrorContains(t, err, "ended with exit code 9 before it was ready")
	require.Equal(t, "no space for the data\n", out)
	require.Empty(t, containersOf(t, engine, r))

	out, err = r.fail(in(engine.Image, background(sh("db", "echo up; sleep 600"), stage.Ready{Command: []string{"sh", "-c", "echo the reason; exit 3"}, Timeout: 1})))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "not ready within 1s (the check exited with 3)")
	require.Equal(t, "up\nThe last readiness check printed:\nthe reason\n", out)
	require.Empty(t, containersOf(t, engine, r))

	ctx, cancel := context.WithCancel(t.Context())
	started, done := newBuffer(), make(chan error, 1)
	go func() {
		step := in(engine.Image, background(sh("db", "echo up; sleep 600"), stage.Ready{Command: []string{"sleep", "600"}}))
		_, err := r.d.Execute(ctx, r.env, &driver.Step{Step: step}, started, r.ledger)
		done <- err
	}()
	started.waitFor(t, "up")
	cancel()
	require.ErrorIs(t, receive(t, done), context.Canceled)
	require.Empty(t, containersOf(t, engine, r))
}

// containersOf lists the transaction's containers.
func containersOf(t *testing.T, engine *testbed.Engine, r *rig) []string {
	t.Helper()
	var list []string
	for _, what := range engine.Leftovers(t, r.env.ID) {
		if strings.HasPrefix(what, "container") {
			list = append(list, what)
		}
	}
	return list
}
