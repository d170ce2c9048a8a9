package main

import (
	"bytes"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// migrated rewrites a copy of a directory of testdata, and returns it with the output.
func migrated(t *testing.T, name string) (dir, out string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), name)
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/"+name)))
	var b bytes.Buffer
	require.NoError(t, run([]string{"-w", dir + "/..."}, &b))
	return dir, b.String()
}

// testModule makes a module of a directory, with this repository as the new SDK, and runs its tests.
func testModule(t *testing.T, dir string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	text := strings.Replace(string(mod), "module "+newModule, "module runner.example", 1)
	text += "\nrequire " + newModule + " v0.0.0\n\nreplace " + newModule + " => " + root + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(text), 0o600))
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), sum, 0o600))
	for _, command := range []string{"vet", "test"} {
		cmd := exec.CommandContext(t.Context(), "go", command, "-mod=mod", "./...")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
		result, err := cmd.CombinedOutput()
		require.NoError(t, err, "go %s: %s", command, result)
	}
}

func TestTheExampleOfTheReadmeIsRewritten(t *testing.T) {
	t.Parallel()
	dir, out := migrated(t, "readme")
	assert.Contains(t, out, "1 files, 0 places to decide on")
	testModule(t, dir)
}

func TestARunnerIsRewritten(t *testing.T) {
	t.Parallel()
	dir, out := migrated(t, "runner")
	assert.Contains(t, out, " 0 places to decide on", out)
	testModule(t, dir)
	// A second run has nothing to do.
	var again bytes.Buffer
	require.NoError(t, run([]string{dir + "/..."}, &again))
	assert.Contains(t, again.String(), "0 files, 0 places to decide on")
}

// One place needs a decision: the errors of the own client.
func TestARunnerWithItsOwnClientIsRewritten(t *testing.T) {
	t.Parallel()
	dir, out := migrated(t, "own")
	assert.Contains(t, out, " 1 places to decide on", out)
	testModule(t, dir)
}

// rewriteText rewrites one file.
func rewriteText(t *testing.T, text string) result {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x.go"), []byte(text), 0o600))
	results, err := rewriteDirectory(dir)
	require.NoError(t, err)
	if len(results) == 0 {
		return result{}
	}
	require.Len(t, results, 1)
	return results[0]
}

const head = `package x

import (
	"github.com/harness/dlite/client"
	"github.com/harness/dlite/delegate"
	"github.com/harness/dlite/httphelper"
	"github.com/harness/dlite/logger"
	"github.com/harness/dlite/poller"
	"github.com/harness/dlite/router"
)

`

var importLines = regexp.MustCompile(`(?s)import \(.*?\)\n|import "[^"]*"\n`)

// Each case is the body of a file before and after. A line with a comment is a place to decide on.
func TestRewrites(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ before, after string }{
		"client with an error": {
			`func f() (*T, int, error) { c := delegate.New(a, b, s, skip, dir); return g(c) }`,
			"func f() (*T, int, error) {\n\tc, clientErr := client.New(a, b, s, clientOptions(skip, dir)...)\n\tif clientErr != nil {\n\t\treturn nil, 0, clientErr\n\t}\n\treturn g(c)\n}",
		},
		"client without an error": {`func f() { c := delegate.New(a, b, s, true, ""); g(c) }`, `func f() { c := mustClient(client.New(a, b, s, client.WithInsecureSkipVerify())); g(c) }`},
		"client in a field": {
			`func (t *T) f() error { t.c = delegate.New(a, b, s, false, "/certs"); return nil }`,
			"func (t *T) f() error {\n\tvar clientErr error\n\tt.c, clientErr = client.New(a, b, s, client.WithCACertsDir(\"/certs\"))\n\tif clientErr != nil {\n\t\treturn clientErr\n\t}\n\treturn nil\n}",
		},
		"client of an older version":                 {`func f() { c := delegate.New(a, b, s, true); g(c) }`, `func f() { c := mustClient(client.New(a, b, s, client.WithInsecureSkipVerify())); g(c) }`},
		"client of an older version with a variable": {`func f() { c := delegate.New(a, b, s, skip); g(c) }`, `func f() { c := mustClient(client.New(a, b, s, clientOptions(skip, "")...)); g(c) }`},
		"client in an expression":                    {`var c client.Client = delegate.NewFromToken(a, b, tok, false, "")`, `var c client.Client = mustClient(client.New(a, b, "", client.WithToken(tok)))`},
		"client from a token":                        {`func f() { c := delegate.NewFromToken(a, b, tok, skip, ""); g(c) }`, `func f() { c := mustClient(client.New(a, b, "", append(clientOptions(skip, ""), client.WithToken(tok))...)); g(c) }`},
		"token":                                      {`func f() { x, err := delegate.Token("audience", "issuer", acct, secret, ttl); g(x, err) }`, `func f() { x, err := delegateToken(acct, secret, ttl); g(x, err) }`},
		"poller":                                     {`func f() { p := poller.New(a, s, n, []string{"x", "y"}, c, router.NewRouter(m)); g(p) }`, `func f() { p := poller.New(c, router.New(m), poller.WithName(n), poller.WithTags("x", "y")); g(p) }`},
		"poller without tags":                        {`var p = poller.New(a, s, n, nil, c, r)`, `var p = poller.New(c, r, poller.WithName(n))`},
		"tags of a variable":                         {`var p = poller.New(a, s, n, tags, c, r)`, `var p = poller.New(c, r, poller.WithName(n), poller.WithTags(tags...))`},
		"maintenance": {
			"func f(p *poller.Poller) bool {\n\tp.SetFilter(func(ev *client.TaskEvent) bool { return ev.TaskType != initTask })\n\tp.SetFilter(nil)\n\treturn p.Filter != nil\n}",
			"func f(p *poller.Poller) bool {\n\tp.SetMaintenance(\"maintenance mode\")\n\tp.SetMaintenance(\"\")\n\treturn p.Health().Maintenance != \"\"\n}",
		},
		"maintenance that refuses more": {
			"func f(p *poller.Poller) {\n\tp.SetFilter(func(ev *client.TaskEvent) bool { return ev.TaskType != initTask && ev.TaskType != runV2 && (ev.TaskType != cleanupV2) })\n}",
			"func f(p *poller.Poller) {\n\t// MIGRATE: a maintenance takes no new stages; the filter also refused runV2 and cleanupV2: these tasks of open stages continue now\n\tp.SetMaintenance(\"maintenance mode\")\n}",
		},
		"filter of steps": {
			"func f(p *poller.Poller) {\n\tp.SetFilter(func(ev *client.TaskEvent) bool { return ev.TaskType != runV2 })\n}",
			"func f(p *poller.Poller) {\n\t// MIGRATE: a filter cannot change while the poller polls: use poller.WithFilter with a func(task.Event) error, or SetMaintenance with a reason to take no new stages\n\tp.SetFilter(func(ev *task.Event) bool { return ev.TaskType != runV2 })\n}",
		},
		"another filter": {
			"func f(p *poller.Poller) {\n\tp.SetFilter(g)\n}",
			"func f(p *poller.Poller) {\n\t// MIGRATE: a filter cannot change while the poller polls: use poller.WithFilter with a func(task.Event) error, or SetMaintenance with a reason to take no new stages\n\tp.SetFilter(g)\n}",
		},
		"types":    {"type T struct {\n\tinfo *poller.DelegateInfo\n\tevs  []client.TaskEvent\n}", "type T struct {\n\tinfo *client.Delegate\n\tevs  []task.Event\n}"},
		"requests": {`var r = &client.RegisterRequest{ID: "1", Type: "DOCKER", Polling: true, Tags: nil}`, `var r = &client.Registration{DelegateID: "1", DelegateType: "DOCKER", PollingModeEnabled: true, Tags: nil}`},
		"fields": {
			`func f(t *client.Task, r client.RegisterResponse) string { return t.DelegateInfo.ID + t.Logging.Token + r.Resource.DelegateID }`,
			`func f(t *task.Task, r client.Delegate) string { return t.Delegate.ID + t.Logging.Token + r.ID }`,
		},
		"answers": {
			`func f(w W, err error) { httphelper.WriteNotFound(w, err); httphelper.WriteInternalError(w, err); logger.WriteJSON(w, 1, 200) }`,
			`func f(w W, err error) { task.WriteError(w, &task.Error{Status: 404, Err: err}); task.WriteError(w, err); task.WriteJSON(w, 1, 200) }`,
		},
		"calls of a client": {
			"func f(c *delegate.HTTPClient) {\n\tc.RegisterCapacity(ctx, id, &client.DelegateCapacity{MaxBuilds: n})\n\te, _ := c.GetTaskEvents(ctx, id)\n\tt, _ := c.Acquire(ctx, id, e.TaskEvents[0].TaskID)\n\tc.SendStatus(ctx, id, t.ID, &client.TaskResponse{Code: \"OK\"})\n}",
			"func f(c *client.HTTP) {\n\tc.ReportCapacity(ctx, id, n)\n\te, _ := c.Poll(ctx, id, client.PollQuery{})\n\tt, _ := c.Acquire(ctx, id, task.Event{TaskID: e.Events[0].TaskID})\n\tc.Respond(ctx, id, &task.Task{ID: t.ID}, &task.Response{Code: \"OK\"})\n}",
		},
		"router":     {`func f(r router.Router) []string { return r.Routes() }`, `func f(r *router.Router) []string { return r.Types() }`},
		"gone field": {"func f(p *poller.Poller) {\n\tg(p.Client)\n}", "func f(p *poller.Poller) {\n\t// MIGRATE: poller.Poller has no Client: keep the client in a variable\n\tg(p.Client)\n}"},
		"gone name":  {"type T struct {\n\tlog logger.Logger\n}", "type T struct {\n\t// MIGRATE: logger.Logger has no counterpart: use zerolog.Logger: poller.WithLogger, client.WithLogger and router.Standard take one\n\tlog logger.Logger\n}"},
		"acquire of an own client": {
			"func (c *C) Acquire(ctx Ctx, id, taskID string) (*client.Task, error) { return c.get(taskID), nil }",
			"func (c *C) Acquire(ctx Ctx, id string, event task.Event) (*task.Task, error) {\n\ttaskID := event.TaskID\n\treturn c.get(taskID), nil\n}",
		},
		"acquire without names": {
			"func (c *C) Acquire(Ctx, string, string) (*client.Task, error) { return nil, nil }",
			"func (c *C) Acquire(Ctx, string, task.Event) (*task.Task, error) { return nil, nil }",
		},
		"events of an own client": {
			"func (c *C) GetTaskEvents(ctx Ctx, id string) (*client.TaskEventsResponse, error) { return nil, nil }",
			"func (c *C) Poll(ctx Ctx, id string, _ client.PollQuery) (*client.Pending, error) { return nil, nil }",
		},
		"capacity of an own client": {
			"func (c *C) RegisterCapacity(ctx Ctx, id string, n *client.DelegateCapacity) error { return c.set(n.MaxBuilds) }",
			"func (c *C) ReportCapacity(ctx Ctx, id string, n int) error { return c.set(n) }",
		},
		"capacity of an own client, passed on": {
			"func (c *C) RegisterCapacity(ctx Ctx, id string, n *client.DelegateCapacity) error { return c.set(n) }",
			"// MIGRATE: if this type is a client.Client, its methods change: docs/migrating.md, \"Your own client.Client\", has them\nfunc (c *C) ReportCapacity(ctx Ctx, id string, n int) error { return c.set(n) }",
		},
		"answers of an own client": {
			"func (c *C) SendStatus(ctx Ctx, id, taskID string, r *client.TaskResponse) error { return c.send(taskID, r) }\n\nfunc (c *C) SendRunnerStatus(ctx Ctx, id, taskID string, r *client.RunnerTaskResponse) error { return nil }",
			"// MIGRATE: an own client.Client must retry temporary errors in Respond, and wrap client.ErrUnauthorized, ErrGone or ErrRetryable: docs/migrating.md, \"Your own client.Client\"\nfunc (c *C) Respond(ctx Ctx, id string, acquired *task.Task, r *task.Response) error {\n\tif acquired.RunnerResponse {\n\t\treturn c.SendRunnerStatus(ctx, id, acquired.ID, r)\n\t}\n\ttaskID := acquired.ID\n\treturn c.send(taskID, r)\n}\n\nfunc (c *C) SendRunnerStatus(ctx Ctx, id, taskID string, r *task.Response) error { return nil }",
		},
		"filter of a new poller": {
			"func f() {\n\tp := poller.New(a, s, n, nil, c, r)\n\tp.SetFilter(func(ev *client.TaskEvent) bool { return g(ev.AccountID) })\n\th(p)\n}",
			"func f() {\n\tp := poller.New(c, r, poller.WithName(n), poller.WithFilter(acceptedBy(func(ev *task.Event) bool { return g(ev.Account) })))\n\n\th(p)\n}",
		},
		"filter that uses the poller": {
			"func f() {\n\tp := poller.New(a, s, n, nil, c, r)\n\tp.SetFilter(h(p))\n}",
			"func f() {\n\tp := poller.New(c, r, poller.WithName(n))\n\t// MIGRATE: a filter cannot change while the poller polls: use poller.WithFilter with a func(task.Event) error, or SetMaintenance with a reason to take no new stages\n\tp.SetFilter(h(p))\n}",
		},
		"type of a filter": {"var f = poller.FilterFn(g)", "var f = (func(*task.Event) bool)(g)"},
		"tokens":           {"func f(t *delegate.TokenCache) { t = delegate.NewTokenCache(a, s); t.Get() }", "func f(t *accountTokens) { t = newAccountTokens(a, s); t.Get() }"},
		"shadowed name":    {"func f() {\n\tclient := &client.Task{}\n\tg(client.Data)\n}", "func f() {\n\tclient := &task.Task{}\n\tg(client.Data)\n}"},
		"untouched":        {`func f(x X) string { return x.DelegateInfo.ID + x.TaskEvents[0] }`, ""},
	} {
		got := rewriteText(t, head+c.before+"\n")
		if c.after == "" {
			assert.Empty(t, got.text, name)
			continue
		}
		body := string(got.text)
		if at := strings.Index(body, "\n// clientOptions"); at > 0 {
			body = body[:at]
		}
		for _, helper := range []string{"\n// mustClient", "\n// delegateToken", "\n// accountTokens", "\n// acceptedBy"} {
			body, _, _ = strings.Cut(body, helper)
		}
		body = strings.TrimSpace(importLines.ReplaceAllString(strings.TrimPrefix(body, "package x\n"), ""))
		want, err := format.Source([]byte("package x\n" + c.after))
		require.NoError(t, err, name)
		assert.Equal(t, strings.TrimSpace(strings.TrimPrefix(string(want), "package x\n")), body, name)
		assert.Equal(t, strings.Count(c.after, "// MIGRATE:"), len(got.notes), name)
		assert.NotContains(t, string(got.text), "harness/dlite", name)
	}
}
