package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/driver/local"
	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/internal/testbed"
)

// foreignDriver is a client that follows docs/protocol.md, section 5 only: it uses no field
// and no call that this project adds.
type foreignDriver struct {
	t    *testing.T
	url  string
	http *http.Client
}

// patience limits every wait for an event that must happen.
const patience = time.Minute

// newAgent serves an agent with host steps. No resource may remain at its end.
func newAgent(t *testing.T, cfg agent.Config) *foreignDriver {
	t.Helper()
	work, memory := testbed.StageFolders(t)
	d, err := local.New(local.Config{Host: host.Config{WorkDir: work, MemoryDir: memory}, Docker: local.DockerConfig{Host: "unix:///no/such/engine.sock"}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	return newAgentOn(t, d, cfg)
}

func newBoot(t *testing.T) *agent.Boot {
	t.Helper()
	b := &agent.Boot{}
	var err error
	b.CA, b.Cert, b.Key, err = agent.Issue("drone", time.Now())
	require.NoError(t, err)
	return b
}

// newAgentOn serves an agent with a driver, by mutual TLS.
func newAgentOn(t *testing.T, d driver.Driver, cfg agent.Config) *foreignDriver {
	t.Helper()
	boot := newBoot(t)
	cfg.TempDir = t.TempDir()
	a := agent.New(d, cfg)
	serverTLS, err := boot.TLS()
	require.NoError(t, err)
	clientTLS, err := boot.ClientTLS("drone")
	require.NoError(t, err)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := agent.Server(a.Handler(), serverTLS)
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(l, "", "") }()
	transport := &http.Transport{TLSClientConfig: clientTLS, ForceAttemptHTTP2: true}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		assert.NoError(t, a.Close(ctx))
		transport.CloseIdleConnections()
		assert.NoError(t, server.Shutdown(ctx))
		assert.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	return &foreignDriver{t: t, url: "https://" + l.Addr().String(), http: &http.Client{Transport: transport}}
}

// try sends a request and returns the answer. It may run in any goroutine.
func (f *foreignDriver) try(ctx context.Context, method, path, body string) (status int, answer string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, f.url+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	resp, err := f.http.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

func (f *foreignDriver) post(path, body string) (status int, answer string) {
	f.t.Helper()
	status, answer, err := f.try(f.t.Context(), http.MethodPost, path, body)
	require.NoError(f.t, err)
	return status, answer
}

// ok is post for a request that must succeed.
func (f *foreignDriver) ok(path, body string) string {
	f.t.Helper()
	status, answer := f.post(path, body)
	require.Equal(f.t, http.StatusOK, status, answer)
	return answer
}

// poll returns the answer to a poll without the members that this project adds.
func (f *foreignDriver) poll(id string) string {
	f.t.Helper()
	fields := map[string]json.RawMessage{}
	require.NoError(f.t, json.Unmarshal([]byte(f.ok("/poll_step", `{"id":"`+id+`"}`)), &fields))
	for name := range fields {
		if strings.HasPrefix(name, "dlite_") {
			delete(fields, name)
		}
	}
	b, err := json.Marshal(fields)
	require.NoError(f.t, err)
	return string(b)
}

// setup starts a stage like a foreign driver.
func (f *foreignDriver) setup(more string) {
	f.t.Helper()
	require.JSONEq(f.t, `{}`, f.ok("/setup", `{"network":{"id":"net-1"},"mount_docker_socket":false,"tty":false,"envs":{"OF_SETUP":"1"}`+more+`}`))
}

// step returns the body of the request that starts a script.
func step(id, script, more string) string {
	b, err := json.Marshal(script)
	if err != nil {
		panic(err)
	}
	return `{"id":"` + id + `","name":"` + id + `","kind":"Run","environment":{},"run":{"entrypoint":["sh","-c"],"commands":[` + string(b) + `]}` + more + `}`
}

// stream reads the output of a step while it is written.
type stream struct {
	body io.ReadCloser
	got  bytes.Buffer
}

func (f *foreignDriver) stream(body string) *stream {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodPost, f.url+"/stream_output", strings.NewReader(body))
	require.NoError(f.t, err)
	resp, err := f.http.Do(req)
	require.NoError(f.t, err)
	require.Equal(f.t, http.StatusOK, resp.StatusCode)
	f.t.Cleanup(func() { _ = resp.Body.Close() })
	return &stream{body: resp.Body}
}

// until reads until the output contains text.
func (s *stream) until(t *testing.T, text string) string {
	t.Helper()
	buf := make([]byte, 1024)
	for !strings.Contains(s.got.String(), text) {
		n, err := s.body.Read(buf)
		s.got.Write(buf[:n])
		if err != nil {
			require.Contains(t, s.got.String(), text)
		}
	}
	return s.got.String()
}

// rest reads until the end.
func (s *stream) rest(t *testing.T) string {
	t.Helper()
	_, err := s.got.ReadFrom(s.body)
	require.NoError(t, err)
	return s.got.String()
}
