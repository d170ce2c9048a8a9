package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/driver/local"
	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/examples/internal/serving"
	"github.com/delegate-io/dlite/internal/perpetual"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/logservice"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	fakeSecret  = "00000000000000000000000000000001"
	otherSecret = "00000000000000000000000000000002"
)

// writes sends each text that the program prints to a channel.
type writes chan string

func (w writes) Write(b []byte) (int, error) {
	w <- string(b)
	return len(b), nil
}

// server is a running manager.
type server struct {
	t    *testing.T
	url  string
	http *http.Client
	out  writes
	stop context.CancelFunc
	over chan error
}

func start(t *testing.T, c *serverCommand, accounts map[string]string, tlsConfig *tls.Config) *server {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	transport := &http.Transport{TLSClientConfig: tlsConfig}
	p := &server{t: t, out: make(writes, 10), stop: stop, over: make(chan error, 1), http: &http.Client{Transport: transport}}
	c.Listen, c.LogLevel, c.HTTPBind = cmp.Or(c.Listen, "127.0.0.1:0"), "error", cmp.Or(c.HTTPBind, "off")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.over <- serve(ctx, c, accounts, p.out)
	}()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		stop()
		<-ended
	})
	p.url = strings.TrimSpace(strings.TrimPrefix(p.printed(), "serving at "))
	return p
}

func (p *server) printed() string {
	p.t.Helper()
	select {
	case s := <-p.out:
		return s
	case err := <-p.over:
		require.FailNow(p.t, "the manager has ended", "%v", err)
	case <-time.After(30 * time.Second):
		require.FailNow(p.t, "the manager prints nothing")
	}
	return ""
}

// end stops the program and returns its error.
func (p *server) end() error {
	p.t.Helper()
	p.stop()
	select {
	case err := <-p.over:
		return err
	case <-time.After(8 * time.Second): // less than the time that a poll is held
		require.FailNow(p.t, "the manager does not end")
		return nil
	}
}

// call sends a request with a header and returns status and body.
func (p *server) call(method, path, body, header, value string) (int, string) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path, strings.NewReader(body))
	require.NoError(p.t, err)
	req.Header.Set(header, value)
	resp, err := p.http.Do(req)
	require.NoError(p.t, err)
	defer func() { require.NoError(p.t, resp.Body.Close()) }()
	b, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	return resp.StatusCode, string(b)
}

// delegate runs stages on the host, and tasks of the type "echo", until the test
// ends.
func (p *server) delegate(account, secret string, options ...client.Option) {
	t := p.t
	t.Helper()
	c, err := client.New(p.url, account, secret, options...)
	require.NoError(t, err)
	d, err := local.New(local.Config{Host: host.Config{WorkDir: t.TempDir()}})
	require.NoError(t, err)
	stages := transaction.New(d, transaction.WithLedger(t.TempDir()))
	echo := task.HandlerFunc(func(_ context.Context, r *task.Request[string]) (string, error) { return r.Data, nil })
	routes := router.RouteMap{"echo": echo}.Merge(stages.Routes())
	polls := poller.New(c, router.New(routes), poller.WithStages(stages))
	info, err := polls.Register(t.Context())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	polled := make(chan error, 1)
	go func() { polled <- polls.Poll(ctx, 2, info.ID, 0) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-polled)
		c.CloseIdleConnections()
	})
}

// Rule X3: the settings that the program prints for its account are enough to run a task and a stage, and to read
// the stage's log. A caller without them is refused.
func TestThePrintedSettingsRunATaskAndAStage(t *testing.T) {
	t.Parallel()
	p := start(t, &serverCommand{}, nil, nil)
	shown := p.printed()
	secret := regexp.MustCompile(`(?m)^TOKEN="(.*)"$`).FindStringSubmatch(shown)
	apiToken := regexp.MustCompile(`(?m)^API_TOKEN='(.*)'$`).FindStringSubmatch(shown)
	stage := regexp.MustCompile(`(?s)-d '(.*?)'\n`).FindStringSubmatch(shown)
	require.NotNil(t, secret, shown)
	require.NotNil(t, apiToken, shown)
	require.NotNil(t, stage, shown)
	p.delegate(demo, secret[1])
	bearer := "Bearer " + apiToken[1]

	status, body := p.call(http.MethodPost, "/api/tasks?accountId=demo", `{"type":"echo","data":"hi","sync":true}`, "Authorization", bearer)
	assert.Equal(t, http.StatusOK, status, body)
	assert.Contains(t, body, `"data":"hi"`)

	status, body = p.call(http.MethodPost, "/api/stages?accountId=demo", strings.Replace(stage[1], "sleep 2; ", "", 1), "Authorization", bearer)
	require.Equal(t, http.StatusAccepted, status, body)
	_, body = p.call(http.MethodGet, "/api/stages/build-1?accountId=demo&wait=30", "", "Authorization", bearer)
	var ended struct {
		Status, Error string
		Steps         []struct {
			LogKey string `json:"log_key"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(body), &ended))
	require.Equal(t, "SUCCESS", ended.Status, body)
	require.Len(t, ended.Steps, 2)
	assert.Equal(t, "build-1/compile", ended.Steps[0].LogKey)

	const blob = "/blob?accountID=demo&key=build-1/compile"
	status, body = p.call(http.MethodGet, blob, "", "X-Harness-Token", apiToken[1])
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, body, `compiling\n`)
	assert.Contains(t, body, `done\n`)
	foreign, err := issue(map[string]string{demo: fakeSecret}, demo, time.Minute, "")
	require.NoError(t, err)
	for _, wrong := range []string{"", "wrong", foreign} {
		status, _ = p.call(http.MethodGet, blob, "", "X-Harness-Token", wrong)
		assert.Equal(t, http.StatusUnauthorized, status)
		status, _ = p.call(http.MethodGet, "/api/stages?accountId=demo", "", "Authorization", "Bearer "+wrong)
		assert.Equal(t, http.StatusUnauthorized, status)
	}
}

// A token of one account opens no log of another account, even if both have the same secret.
func TestAnAccountsTokenOpensItsOwnLogsAlone(t *testing.T) {
	t.Parallel()
	accounts := map[string]string{"a": fakeSecret, "b": fakeSecret}
	signer := logservice.NewSigner([]byte(fakeSecret))
	authorized := authorize(accounts, signer, &stageEnds{})
	allowed := func(account, token string) bool {
		return authorized(logservice.Access{Account: account, Key: "build-1/compile", Token: token, Write: true})
	}
	text, err := issue(accounts, "a", time.Minute, "")
	require.NoError(t, err)
	writer := func(account, prefix string) string {
		return signer.Issue(logservice.Grant{Account: account, Prefix: prefix, Expires: time.Now().Add(time.Minute)})
	}
	assert.True(t, allowed("a", text))
	assert.True(t, allowed("a", writer("a", "build-1/")))
	assert.False(t, allowed("a", writer("a", "build-2/")))
	assert.False(t, allowed("b", text))
	assert.False(t, allowed("b", writer("a", "build-1/")))
	assert.False(t, allowed("nobody", text))
	assert.False(t, allowed("nobody", writer("nobody", "")))
	assert.False(t, allowed("nobody", ""))
	expired, err := issue(accounts, "a", -time.Hour, "")
	require.NoError(t, err)
	assert.False(t, allowed("a", expired))
	reader, err := issue(accounts, "a", time.Minute, "read")
	require.NoError(t, err)
	assert.False(t, allowed("a", reader), "it permits only reads")
	assert.True(t, authorized(logservice.Access{Account: "a", Key: "build-1/compile", Token: reader}))
}

// A stage writes its logs until an hour after its end. A stage that the manager does not know writes none.
func TestTheLogTokenOfAStageEndsWithIt(t *testing.T) {
	t.Parallel()
	accounts := map[string]string{"a": fakeSecret}
	m, err := manager.New(manager.Config{Accounts: accounts})
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close()) }()
	signer, later := logservice.NewSigner([]byte(fakeSecret)), time.Duration(0)
	ends := &stageEnds{now: func() time.Time { return time.Now().Add(later) }}
	authorized := authorize(accounts, signer, ends)
	allowed := func(stage string) bool {
		text := signer.Issue(logservice.Grant{Account: "a", Stage: stage, Prefix: "s/", Expires: time.Now().Add(logTokenTTL)})
		return authorized(logservice.Access{Account: "a", Key: "s/step", Token: text, Write: true})
	}
	assert.False(t, allowed("s"), "the manager is not open")
	ends.Store(m)
	assert.False(t, allowed("s"))
	_, err = m.SubmitStage(t.Context(), "a", api.StageRequest{ID: "s", Steps: []api.StepRequest{{}}})
	require.NoError(t, err)
	later = 2 * logGrace
	assert.True(t, allowed("s"), "the stage has not ended")
	_, err = m.AbortStage(t.Context(), "a", "s")
	require.NoError(t, err)
	assert.False(t, allowed("s"))
	later = 0
	assert.True(t, allowed("s"), "the stage has just ended")
}

// Rule C7: a held poll does not delay the end of the program.
func TestAHeldPollEndsWithTheProgram(t *testing.T) {
	t.Parallel()
	p := start(t, &serverCommand{}, map[string]string{"a": fakeSecret}, nil)
	c, err := client.New(p.url, "a", fakeSecret, client.WithRetries(client.Retries{Attempts: 1}))
	require.NoError(t, err)
	defer c.CloseIdleConnections()
	d, err := c.Register(t.Context(), &client.Registration{DelegateName: "d"})
	require.NoError(t, err)
	first, err := c.Poll(t.Context(), d.ID, client.PollQuery{Wait: time.Second})
	require.NoError(t, err)

	sent := make(chan struct{}, 1)
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { sent <- struct{}{} }})
	polled := make(chan struct{})
	go func() {
		defer close(polled)
		_, _ = c.Poll(ctx, d.ID, client.PollQuery{Wait: 20 * time.Second, Since: first.Cursor})
	}()
	<-sent
	for range 50 { // later calls show that the poll has arrived
		status, _ := p.call(http.MethodGet, "/api/delegates?accountId=a", "", "Authorization", "Bearer wrong")
		require.Equal(t, http.StatusUnauthorized, status)
	}
	require.NoError(t, p.end())
	<-polled
}

// A client that opens connections and sends nothing on them leaves room for others, and so does one that holds calls.
func TestOneClientCannotTakeAllConnections(t *testing.T) {
	t.Parallel()
	p := start(t, &serverCommand{Options: serving.Options{Connections: 10, PerAddress: 2, PerToken: 1}}, map[string]string{"a": fakeSecret}, nil)
	bearer := "Bearer " + tokenFor(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+"/api/events?accountId=a", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", bearer)
	held, err := p.http.Do(req)
	require.NoError(t, err)
	var description struct {
		Paths map[string]map[string]struct {
			Responses map[string]any `json:"responses"`
		} `json:"paths"`
	}
	require.NoError(t, json.Unmarshal(api.OpenAPI(), &description))
	require.Greater(t, len(description.Paths), 40)
	for path, calls := range description.Paths {
		for method, call := range calls {
			status, body := p.call(strings.ToUpper(method), path+"?accountId=a", "", "Authorization", bearer)
			assert.Equal(t, http.StatusTooManyRequests, status, "%s %s: %s", method, path, body)
			assert.Contains(t, call.Responses, "429", "%s %s", method, path)
		}
	}
	third, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(p.url, "http://"))
	require.NoError(t, err)
	defer func() { _ = third.Close() }()
	_, err = third.Read(make([]byte, 1))
	require.Error(t, err, "the server closes the third connection of an address")
	require.NoError(t, held.Body.Close())
}

// Rule C5: with a certificate the program serves HTTPS and prints an https address.
func TestWithACertificateItServesHTTPS(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cert, key := ca.issue("server.pem", leaf(x509.ExtKeyUsageServerAuth, time.Hour))
	p := start(t, &serverCommand{Options: serving.Options{TLSCert: cert, TLSKey: key}}, map[string]string{"a": fakeSecret}, &tls.Config{RootCAs: ca.pool, MinVersion: tls.VersionTLS12})
	require.True(t, strings.HasPrefix(p.url, "https://"), p.url)
	text, err := issue(map[string]string{"a": fakeSecret}, "a", time.Minute, "")
	require.NoError(t, err)
	status, body := p.call(http.MethodGet, "/api/delegates?accountId=a", "", "Authorization", "Bearer "+text)
	assert.Equal(t, http.StatusOK, status)
	assert.JSONEq(t, `{"delegates":[]}`, body)
	require.NoError(t, p.end())
}

// The lease of perpetual tasks is a setting: a delegate gets it with its first call. A wrong one is named.
func TestTheLeaseOfPerpetualTasksIsASetting(t *testing.T) {
	t.Parallel()
	parse := func(args ...string) (*serverCommand, error) {
		c := &serverCommand{}
		return c, c.command(func(context.Context, map[string]string, []string) error { return c.checkSettings() }).ParseAndRun(t.Context(), args)
	}
	for _, wrong := range []string{"999ms", "-1s", "61m"} {
		_, err := parse("--perpetual-lease", wrong)
		require.ErrorContains(t, err, "PERPETUAL_LEASE: it is ")
	}
	for want, args := range map[time.Duration][]string{30 * time.Second: nil, 7 * time.Second: {"--perpetual-lease", "7s"}} {
		c, err := parse(append(args, "--store", "memory", "--listen", "127.0.0.1:0", "--http-bind", "off")...)
		require.NoError(t, err)
		p := start(t, c, map[string]string{"acme": fakeSecret}, nil)
		d, err := client.New(p.url, "acme", fakeSecret)
		require.NoError(t, err)
		info, err := d.Register(t.Context(), &client.Registration{DelegateName: "d"})
		require.NoError(t, err)
		answer, err := d.ReconcilePerpetual(t.Context(), info.ID, &perpetual.Report{Session: "one", Types: []string{"x"}}, 0)
		require.NoError(t, err)
		assert.Equal(t, want.Milliseconds(), answer.LeaseMS)
		d.CloseIdleConnections()
	}
}
