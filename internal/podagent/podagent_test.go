package podagent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/internal/podagent"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "a token for tests"

// hub is one that runs until its test ends.
type hub struct {
	t      *testing.T
	dir    string
	client *http.Client
}

// echo stands for an agent: it says who it is and what was called.
func echo(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, name+" "+r.URL.Path)
	})
}

func newHub(t *testing.T) *hub {
	t.Helper()
	dir, err := os.MkdirTemp("", "dlite-hub-") // sockets have short names
	require.NoError(t, err)
	h := &hub{t: t, dir: dir}
	require.NoError(t, os.WriteFile(h.path("hosts"), []byte("127.0.0.1\tlocalhost\n"), 0o600))
	one, err := podagent.NewHub(podagent.HubConfig{
		Token: token, Agent: echo("hub"), Socket: h.path("steps"), Control: h.path("control"), Hosts: h.path("hosts"), Log: t.Output(),
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- one.Run(ctx) }()
	transport := &http.Transport{
		Protocols: new(http.Protocols),
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			// As the delegate does: by way of the program that it runs in the container.
			near, far := net.Pipe()
			go func() {
				_ = podagent.Dial(ctx, h.path("control"), far, far)
				_ = far.Close()
			}()
			return near, nil
		},
	}
	transport.Protocols.SetUnencryptedHTTP2(true)
	h.client = &http.Client{Transport: transport, Timeout: time.Minute}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		assert.NoError(t, <-done)
		assert.NoError(t, os.RemoveAll(dir))
	})
	return h
}

func (h *hub) path(name string) string { return filepath.Join(h.dir, name) }

// call gives the status and the body.
func (h *hub) call(method, path, body string) (int, string) {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), method, "http://hub"+path, strings.NewReader(body))
	require.NoError(h.t, err)
	res, err := h.client.Do(req)
	require.NoError(h.t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	require.NoError(h.t, err)
	return res.StatusCode, strings.TrimSpace(string(text))
}

// step is a container's agent. What it returns tells its end.
func (h *hub) step(ctx context.Context, container, shown string) <-chan error {
	done := make(chan error, 1)
	go func() {
		done <- podagent.Step(ctx, podagent.StepConfig{Container: container, Token: shown, Agent: echo(container), Socket: h.path("steps")})
	}()
	return done
}

// D7: requests reach the agent of the container that they name, as soon as it has
// come.
func TestRequestsReachTheirContainer(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	status, _ := h.call("POST", "/steps/a/start_step", "{}")
	assert.Equal(t, http.StatusServiceUnavailable, status, "it has not come yet")
	ready := make(chan int, 1)
	go func() {
		status, _ := h.call("GET", "/steps/a/ready", "")
		ready <- status
	}()
	ctx, cancel := context.WithCancel(t.Context())
	a, b := h.step(ctx, "a", podagent.TokenOf(token, "a")), h.step(ctx, "b", podagent.TokenOf(token, "b"))
	assert.Equal(t, http.StatusOK, <-ready)
	h.call("GET", "/steps/b/ready", "")
	for path, want := range map[string]string{
		"/steps/a/start_step": "a /start_step", "/steps/b/poll_step": "b /poll_step", "/steps/hub/setup": "hub /setup",
	} {
		_, got := h.call("POST", path, "{}")
		assert.Equal(t, want, got)
	}
	cancel()
	require.NoError(t, <-a)
	require.NoError(t, <-b)
}

// T8: nobody can pass for another container, and nobody takes the place of one.
func TestAContainerIsWhoItsTokenSays(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, shown := range []string{"", "wrong", token, podagent.TokenOf(token, "b"), podagent.TokenOf("other", "a")} {
		require.Error(t, <-h.step(ctx, "a", shown))
	}
	status, _ := h.call("POST", "/steps/a/start_step", "{}")
	assert.Equal(t, http.StatusServiceUnavailable, status)

	first := h.step(ctx, "a", podagent.TokenOf(token, "a"))
	h.call("GET", "/steps/a/ready", "")
	require.NoError(t, <-h.step(ctx, "a", podagent.TokenOf(token, "a")), "it is sent away politely")
	_, got := h.call("POST", "/steps/a/x", "{}")
	assert.Equal(t, "a /x", got)
	select {
	case err := <-first:
		t.Fatal("the first one was sent away", err)
	default:
	}
	cancel()
	require.NoError(t, <-first)
}

// D7: a container that has had its step ends, and one that is not wanted any more
// when it comes, too.
func TestAContainerThatIsNotWantedEnds(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	here := h.step(t.Context(), "here", podagent.TokenOf(token, "here"))
	h.call("GET", "/steps/here/ready", "")
	for range 2 {
		status, _ := h.call("POST", "/end/here", "{}")
		assert.Equal(t, http.StatusOK, status)
	}
	require.NoError(t, <-here)
	status, _ := h.call("POST", "/steps/here/start_step", "{}")
	assert.Equal(t, http.StatusBadGateway, status)
	h.call("POST", "/end/late", "{}")
	require.NoError(t, <-h.step(t.Context(), "late", podagent.TokenOf(token, "late")))
}

// D7: names are in the file of hosts, once, and come back when the node writes it anew.
func TestNamesAreKeptInTheFileOfHosts(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	names := `{"hosts":[{"name":"db","address":"127.0.0.1","service":true},{"name":"one.test","address":"192.0.2.1"}]}`
	for range 2 {
		status, _ := h.call("POST", "/names", names)
		require.Equal(t, http.StatusOK, status)
	}
	want := "127.0.0.1\tlocalhost\n127.0.0.1\tdb # dlite\n192.0.2.1\tone.test # dlite\n"
	b, err := os.ReadFile(h.path("hosts"))
	require.NoError(t, err)
	assert.Equal(t, want, string(b))

	require.NoError(t, os.WriteFile(h.path("hosts"), []byte("127.0.0.1\tlocalhost\n"), 0o600))
	assert.Eventually(t, func() bool {
		b, err := os.ReadFile(h.path("hosts"))
		return err == nil && string(b) == want
	}, time.Minute, time.Millisecond)

	_, got := h.call("GET", "/names", "")
	assert.JSONEq(t, names, got)
	for _, bad := range []string{`{"hosts":[{"name":"a b","address":"1"}]}`, `{"hosts":[{"name":"a","address":"1\n2"}]}`, `{"hosts":[{"address":"1"}]}`, `{`} {
		status, _ := h.call("POST", "/names", bad)
		assert.GreaterOrEqual(t, status, 400, bad)
	}
}

// D7: a container that waits is for one step, and a spare volume for one id.
func TestContainersAndSparesAreGivenOnce(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	claim := func(name, by string) bool {
		var c podagent.Claimed
		_, got := h.call("POST", "/claims/"+name, `{"by":"`+by+`"}`)
		require.NoError(t, json.Unmarshal([]byte(got), &c))
		return c.OK
	}
	assert.Equal(t, []bool{true, false, true}, []bool{claim("w0", ""), claim("w0", ""), claim("w1", "")})
	// Who has lost the answer asks again.
	assert.Equal(t, []bool{true, true, false}, []bool{claim("w2", "me"), claim("w2", "me"), claim("w2", "you")})
	spare := func(id string) string {
		var s podagent.Spared
		_, got := h.call("POST", "/spares", `{"id":"`+id+`","of":["one","two"]}`)
		require.NoError(t, json.Unmarshal([]byte(got), &s))
		return s.Name
	}
	assert.Equal(t, []string{"one", "two", "one", ""}, []string{spare("a"), spare("b"), spare("a"), spare("c")})
}

func TestWhatIsMissingIsSaid(t *testing.T) {
	t.Parallel()
	_, err := podagent.NewHub(podagent.HubConfig{Agent: echo("")})
	require.ErrorContains(t, err, podagent.EnvToken)
	_, err = podagent.NewHub(podagent.HubConfig{Token: token})
	require.ErrorContains(t, err, "agent")
	require.ErrorContains(t, podagent.Step(t.Context(), podagent.StepConfig{Token: token}), podagent.EnvContainer)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, podagent.Dial(ctx, filepath.Join(t.TempDir(), "none"), &bytes.Buffer{}, io.Discard))
}
