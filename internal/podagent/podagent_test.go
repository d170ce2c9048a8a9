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

// hub is a hub that runs until the test ends.
type hub struct {
	t      *testing.T
	dir    string
	client *http.Client
}

// echo is an agent that answers with its name and the called path.
func echo(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, name+" "+r.URL.Path)
	})
}

func newHub(t *testing.T) *hub {
	t.Helper()
	dir, err := os.MkdirTemp("", "dlite-hub-") // the path of a socket must be short
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
			// Like the delegate, connect through the program in the container.
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

// call returns the status and the body.
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

// step starts the agent of a container. The channel gets its error when it ends.
func (h *hub) step(ctx context.Context, container, shown string) <-chan error {
	done := make(chan error, 1)
	go func() {
		done <- podagent.Step(ctx, podagent.StepConfig{Container: container, Token: shown, Agent: echo(container), Socket: h.path("steps")})
	}()
	return done
}

// Rule D7: requests reach the agent of the container in their path, once it has joined.
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

// Rule T8: an agent cannot join with the name of another container, or replace its agent.
func TestTheTokenOfAnAgentNamesItsContainer(t *testing.T) {
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
		t.Fatal("the first agent was refused", err)
	default:
	}
	cancel()
	require.NoError(t, <-first)
}

// Rule D7: a container ends after its step. A container that is ended before its agent
// joins ends too.
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

// Rule D7: the hosts file has each name once, also after the node has replaced the file.
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

// Rule D7: a waiting container belongs to one step, a spare volume to one id.
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
	// A claimant that has lost the answer repeats its claim.
	assert.Equal(t, []bool{true, true, false}, []bool{claim("w2", "me"), claim("w2", "me"), claim("w2", "you")})
	spare := func(id string) string {
		var s podagent.Spared
		_, got := h.call("POST", "/spares", `{"id":"`+id+`","of":["one","two"]}`)
		require.NoError(t, json.Unmarshal([]byte(got), &s))
		return s.Name
	}
	assert.Equal(t, []string{"one", "two", "one", ""}, []string{spare("a"), spare("b"), spare("a"), spare("c")})
}

func TestAMissingSettingIsNamed(t *testing.T) {
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
