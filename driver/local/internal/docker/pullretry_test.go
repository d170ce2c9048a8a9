package docker

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
	"github.com/delegate-io/dlite/task/stage"
)

// pullEngine is an engine that can only pull. It uses real HTTP, because the failures are HTTP
// failures. Each attempt gets the next answer. The last answer repeats.
type pullEngine struct {
	mu       sync.Mutex
	attempts int      // guarded by mu
	auth     []string // guarded by mu
}

func (p *pullEngine) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.attempts
}

// newPullRun returns a step with an image whose driver pulls from a pullEngine.
func newPullRun(t *testing.T, times pullTimes, image string, answers ...http.HandlerFunc) (*run, *pullEngine, *bytes.Buffer) {
	t.Helper()
	p := &pullEngine{}
	mux := http.NewServeMux()
	mux.HandleFunc("/_ping", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Api-Version", "1.41") })
	mux.HandleFunc("POST /v1.41/images/create", func(w http.ResponseWriter, req *http.Request) {
		p.mu.Lock()
		answer := answers[min(p.attempts, len(answers)-1)]
		p.attempts++
		p.auth = append(p.auth, req.Header.Get("X-Registry-Auth"))
		p.mu.Unlock()
		answer(w, req)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	shared, err := steps.New(steps.Config{WorkDir: t.TempDir()})
	require.NoError(t, err)
	d := New(shared, Config{Host: "tcp://" + strings.TrimPrefix(server.URL, "http://"), EngineWait: time.Second})
	t.Cleanup(func() { _ = d.Close() })
	d.pullTimes = times
	out := &bytes.Buffer{}
	step := &driver.Step{Step: stage.Step{ID: "step", Image: image}}
	return &run{Run: &steps.Run{Driver: shared, Step: step, Out: steps.NewOutput(out)}, d: d}, p, out
}

func (r *run) tryPull(t *testing.T) error {
	t.Helper()
	cli, err := r.d.engine.ready(t.Context())
	require.NoError(t, err)
	return r.pull(t.Context(), cli, false)
}

func fails(status int, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]string{"message": message})
	}
}

func streams(lines ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, strings.Join(lines, "\n")) }
}

func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

var quickPull = pullTimes{attempts: 3, pause: time.Millisecond, line: time.Hour, silence: time.Minute}

// Rule D3: a permanent error is not retried. The messages come from real engines and registries.
func TestPullDoesNotRetryPermanentErrors(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"not found":              fails(404, "manifest for r.example/x:1 not found: manifest unknown: manifest unknown"),
		"no such repository":     fails(404, "pull access denied for x, repository does not exist or may require 'docker login': denied: requested access to the resource is denied"),
		"wrong password":         fails(500, "Get \"https://r.example/v2/\": unauthorized: incorrect username or password"),
		"wrong password, basic":  fails(500, "Head \"http://127.0.0.1:5000/v2/x/manifests/1\": unauthorized: authentication required"),
		"no password":            fails(500, "Head \"http://127.0.0.1:5000/v2/x/manifests/1\": no basic auth credentials"),
		"wrong token":            fails(500, `Get "https://r.example/v2/": unauthorized: HTTP Basic: rejected`),
		"forbidden":              fails(403, "policy forbids it"),
		"bad request":            fails(400, "invalid reference format"),
		"not for this platform":  streams(`{"status":"Pulling from x","id":"1"}`, `{"error":"no matching manifest for linux/arm64/v8 in the manifest list entries"}`),
		"no room":                streams(`{"errorDetail":{"message":"failed to register layer: write /x: no space left on device"},"error":"x"}`),
		"a layer that is denied": streams(`{"errorDetail":{"message":"denied: the layers are gone"}}`),
		"no trust":               fails(500, `Get "https://r.example/v2/": x509: certificate signed by unknown authority`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, engine, out := newPullRun(t, quickPull, "r.example/x:1", answer)
			err := r.tryPull(t)
			require.ErrorContains(t, err, "pull image r.example/x:1: ")
			var kind interface{ FailureKind() string }
			require.ErrorAs(t, err, &kind)
			require.Equal(t, stage.FailureImage, kind.FailureKind())
			require.Equal(t, 1, engine.count())
			require.Equal(t, "Pulling image r.example/x:1\n", out.String())
		})
	}
}

// A temporary error is retried, a limited number of times.
func TestPullRetriesTemporaryErrors(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"refused":          fails(500, `Get "https://r.example/v2/": dial tcp 192.0.2.1:443: connect: connection refused`),
		"time-out":         fails(500, `Get "https://r.example/v2/": net/http: request canceled while waiting for connection (Client.Timeout exceeded while awaiting headers)`),
		"TLS":              fails(500, `Get "https://r.example/v2/": net/http: TLS handshake timeout`),
		"registry is ill":  fails(500, `received unexpected HTTP status: 503 Service Unavailable`),
		"engine is ill":    fails(503, `try later`),
		"too many":         streams(`{"errorDetail":{"message":"toomanyrequests: You have reached your unauthenticated pull rate limit"}}`),
		"torn stream":      streams(`{"status":"Pulling from x","id":"1"}`, `{"sta`),
		"layer torn":       streams(`{"errorDetail":{"message":"unexpected EOF"}}`),
		"hang-up":          hangUp,
		"name of an image": fails(500, `Get "https://r.example/v2/denied/unauthorized/manifests/1": something else`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const image = "r.example/denied/unauthorized:1"
			r, engine, out := newPullRun(t, quickPull, image, answer)
			require.ErrorContains(t, r.tryPull(t), "pull image "+image+": ")
			require.Equal(t, 3, engine.count())
			require.Contains(t, out.String(), "Pulling image "+image+" again in ")
			require.Contains(t, out.String(), ", attempt 2 of 3, because it failed: ")
			require.Contains(t, out.String(), ", attempt 3 of 3, because it failed: ")

			r, engine, out = newPullRun(t, quickPull, image, answer, streams(`{"status":"Status: Downloaded newer image"}`))
			require.NoError(t, r.tryPull(t))
			require.Equal(t, 2, engine.count())
			require.True(t, strings.HasSuffix(out.String(), "\nStatus: Downloaded newer image\n"), out.String())
		})
	}
}

// The waits between attempts end with the step.
func TestPullStopsWaitingWithItsStep(t *testing.T) {
	t.Parallel()
	slow := pullTimes{attempts: 3, pause: time.Hour, line: time.Hour, silence: time.Hour}
	r, engine, _ := newPullRun(t, slow, "x:1", fails(503, "try later"))
	cli, err := r.d.engine.ready(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	r.Out = steps.NewOutput(writerFunc(func(b []byte) (int, error) {
		if strings.Contains(string(b), " again in ") {
			cancel()
		}
		return len(b), nil
	}))
	require.Error(t, r.pull(ctx, cli, false))
	require.Equal(t, 1, engine.count())
}

// An attempt without progress ends.
func TestPullEndsWithoutProgress(t *testing.T) {
	t.Parallel()
	times := quickPull
	times.attempts, times.silence = 2, 50*time.Millisecond
	hang := func(w http.ResponseWriter, req *http.Request) {
		_, _ = fmt.Fprintln(w, `{"status":"Pulling from x","id":"1"}`)
		_ = http.NewResponseController(w).Flush()
		<-req.Context().Done()
	}
	silent := func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }
	for _, answer := range []http.HandlerFunc{hang, silent} {
		r, engine, _ := newPullRun(t, times, "x:1", answer)
		err := r.tryPull(t)
		require.ErrorIs(t, err, errSilent)
		require.ErrorContains(t, err, "makes no progress for 50ms")
		require.Equal(t, 2, engine.count())
	}
}

// A slow attempt with progress does not end.
func TestPullWaitsForSlowRegistries(t *testing.T) {
	t.Parallel()
	times := quickPull
	times.attempts, times.silence = 1, time.Second
	r, _, _ := newPullRun(t, times, "x:1", func(w http.ResponseWriter, req *http.Request) {
		tick := time.NewTicker(times.silence / 3)
		defer tick.Stop()
		for range 5 {
			_, _ = fmt.Fprintln(w, `{"status":"Downloading","id":"l"}`)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-tick.C:
			case <-req.Context().Done():
				return
			}
		}
	})
	require.NoError(t, r.tryPull(t))
}

// The log shows the progress in numbers, but not after every message.
func TestPullPrintsItsProgressFromTimeToTime(t *testing.T) {
	t.Parallel()
	messages := []string{`{"status":"Pulling from x","id":"1"}`, `{"status":"Already exists","id":"a"}`, `{"status":"Pulling fs layer","id":"b"}`}
	for i := range 1000 {
		messages = append(messages, fmt.Sprintf(`{"status":"Downloading","id":"b","progressDetail":{"current":%d,"total":2500000}}`, i*1000))
	}
	messages = append(messages, `{"status":"Download complete","id":"b"}`, `{"status":"Extracting","id":"b","progressDetail":{"current":1,"total":9}}`,
		`{"status":"Pull complete","id":"b"}`, `{"status":"Status: Downloaded newer image"}`)
	r, _, out := newPullRun(t, quickPull, "x:1", streams(messages...))
	require.NoError(t, r.tryPull(t))
	require.Equal(t, "Pulling image x:1\nStatus: Downloaded newer image\n", out.String(), "it took no time")

	times := quickPull
	times.line = 0 // every message
	r, _, out = newPullRun(t, times, "x:1", streams(messages...))
	require.NoError(t, r.tryPull(t))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Contains(t, lines, "Pulling image x:1: 1 of 1 layers, 0.0 of 0.0 MB")
	require.Contains(t, lines, "Pulling image x:1: 1 of 2 layers, 0.5 of 2.5 MB")
	require.Equal(t, "Pulling image x:1: 2 of 2 layers, 2.5 of 2.5 MB", lines[len(lines)-2])
}

// Rule D3: credentials go to the registry that they are for, whatever name the address uses. Docker
// Hub has several names.
func TestCredentialsGoToTheirRegistry(t *testing.T) {
	t.Parallel()
	const hub = "https://index.docker.io/v1/"
	for _, c := range []struct{ image, address, sent string }{
		{"tool:1", "", ""}, {"r.example/tool:1", "", ""},
		{"tool:1", "docker.io", hub}, {"team/tool:1", "https://index.docker.io/v1/", hub}, {"docker.io/team/tool", "https://index.docker.io/v2/", hub},
		{"tool", "registry-1.docker.io", hub}, {"tool", "https://registry.hub.docker.com", hub}, {"tool", "HTTPS://Hub.Docker.com/", hub},
		{"index.docker.io/team/tool", "docker.io", hub},
		{"r.example/tool", "https://r.example/v2/", "r.example"}, {"r.example/tool", "R.Example", "r.example"},
		{"r.example/tool", "https://r.example:443", "r.example"}, {"r.example:443/tool", "r.example", "r.example"},
		{"r.example:5000/tool", "http://r.example:5000/", "r.example:5000"}, {"127.0.0.1:5000/tool", "127.0.0.1:5000", "127.0.0.1:5000"},
		{"r.example/tool", "other.example", "-"}, {"r.example/tool", "docker.io", "-"}, {"tool", "r.example", "-"},
		{"r.example/tool", "r.example:5000", "-"}, {"r.example/tool", "notr.example", "-"}, {"notdocker.io/tool", "docker.io", "-"},
		{"r.example/tool", "https://%zz", "-"},
	} {
		r, engine, out := newPullRun(t, quickPull, c.image, streams(`{"status":"done"}`))
		r.Step.Auth = &stage.Auth{Address: c.address, Username: "robot", Password: "not-a-real-password"}
		require.NoError(t, r.tryPull(t))
		if c.sent == "-" {
			assert.Empty(t, engine.auth[0], "%+v", c)
			assert.Contains(t, out.String(), "are not used", "%+v", c)
			continue
		}
		var got struct{ Username, Password, ServerAddress string }
		require.NoError(t, decodeAuth(engine.auth[0], &got))
		assert.Equal(t, "robot not-a-real-password "+c.sent, got.Username+" "+got.Password+" "+got.ServerAddress, "%+v", c)
		assert.NotContains(t, out.String(), "not-a-real-password")
	}
}

func TestUlimitsAreChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		give *stage.Ulimit
		want string
	}{
		{&stage.Ulimit{Name: "nofile", Soft: 10}, "nofile=10:10"},
		{&stage.Ulimit{Name: "nofile", Soft: 10, Hard: 20}, "nofile=10:20"},
		{&stage.Ulimit{Name: "core"}, "core=0:0"},
		{&stage.Ulimit{Name: "core", Soft: -1, Hard: -1}, "core=-1:-1"},
		{&stage.Ulimit{Name: "core", Soft: 5, Hard: -1}, "core=5:-1"},
		{&stage.Ulimit{Soft: 10}, "no name"},
		{&stage.Ulimit{Name: "nofile", Soft: 30, Hard: 20}, "above the hard limit"},
		{&stage.Ulimit{Name: "nofile", Soft: -1, Hard: 20}, "above the hard limit"},
	} {
		r := &run{Run: &steps.Run{Step: &driver.Step{Step: stage.Step{Ulimits: []*stage.Ulimit{nil, c.give}}}}}
		list, err := r.ulimits()
		if err != nil {
			assert.ErrorContains(t, err, c.want)
			continue
		}
		assert.Equal(t, c.want, list[0].String())
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func decodeAuth(header string, into any) error {
	b, err := base64.URLEncoding.DecodeString(header)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}
