//go:build unix

package cgi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/cgi"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/router"
	routersecrets "github.com/delegate-io/dlite/router/secrets"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
)

// Rule D8 and docs/protocol.md, section 2: a program gets the documented variables and input, and nothing else.
func TestAProgramIsCalledByTheProtocol(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *cgi.Config) {
		c.Env = []string{"HTTPS_PROXY=http://proxy:1", "OVERRIDDEN=common", "RUN_AS_CGI=no"}
	})
	w := r.script(`printf 'Status: 201 Created\nX-Two: a\nx-two: b\r\nContent-Type: text/plain\n\n'; env; echo "--"; cat; pwd; ls -A`)
	w.Method, w.Endpoint = "PUT", "users/find?x=1&y=a%20b"
	w.Headers = map[string]string{"X-Trace-Id": "7", "content-type": "text/x", "Proxy": "http://evil", "Host": "[::1]:81"}
	w.Envs = []string{"OVERRIDDEN=task", "EQUALS=a=b", "EMPTY=", "REQUEST_METHOD=DELETE", "HOME=/task"}

	a := r.answer(w, `{"id":7}`)

	assert.Equal(t, 201, a.StatusCode)
	assert.Equal(t, http.Header{"X-Two": {"a", "b"}, "Content-Type": {"text/plain"}}, a.Headers)
	vars, rest, ok := strings.Cut(string(a.Body), "--\n")
	require.True(t, ok)
	body, dir, ok := strings.Cut(rest, "}")
	require.True(t, ok)
	assert.Equal(t, `{"id":7`, body, "the task's data is the body")
	got := map[string]string{}
	for line := range strings.Lines(vars) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		got[name] = value
	}
	for name, value := range map[string]string{
		"RUN_AS_CGI": "true", "GATEWAY_INTERFACE": "CGI/1.1", "SERVER_PROTOCOL": "HTTP/1.1", "REQUEST_METHOD": "PUT",
		"PATH_INFO": "/users/find", "QUERY_STRING": "x=1&y=a%20b", "REQUEST_URI": "/users/find?x=1&y=a%20b",
		"CONTENT_TYPE": "text/x", "CONTENT_LENGTH": "8", "HTTP_X_TRACE_ID": "7", "HTTP_HOST": "[::1]:81",
		"SERVER_NAME": "[::1]", "SERVER_PORT": "81", "HTTPS_PROXY": "http://proxy:1", "OVERRIDDEN": "task",
		"EQUALS": "a=b", "EMPTY": "", "HOME": "/task",
	} {
		assert.Equal(t, value, got[name], name)
		assert.Contains(t, got, name)
	}
	assert.NotContains(t, got, "HTTP_PROXY")
	// Regression: the delegate's environment leaks into the child.
	for name := range got {
		known := strings.HasPrefix(name, "HTTP_") || strings.HasPrefix(name, "SERVER_") || strings.HasPrefix(name, "REMOTE_") ||
			strings.HasPrefix(name, "REQUEST_") || strings.HasPrefix(name, "CONTENT_") || strings.HasPrefix(name, "SCRIPT_") ||
			strings.HasPrefix(name, "LC_") || strings.Contains(" PATH HOME USER LOGNAME SHELL TMPDIR LANG TZ RUN_AS_CGI GATEWAY_INTERFACE"+
			" QUERY_STRING PATH_INFO HTTPS_PROXY OVERRIDDEN EQUALS EMPTY PWD OLDPWD SHLVL _ ", " "+name+" ")
		assert.True(t, known, "%s is inherited", name)
	}
	dir = strings.TrimSpace(dir)
	assert.NotContains(t, dir, "\n", "the working directory is empty")
	require.NoError(t, r.h.Close(t.Context()))
	assert.NoDirExists(t, dir, "and gone in the end")
}

// No call sees or changes the files of another call in its working directory.
func TestWorkingDirectoriesAreEmpty(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.script(`printf 'A: b\n\n%s' "$(pwd) $(ls -A) $(stat -c %a . 2>/dev/null)"; touch left; mkdir -p deep/er; chmod 777 .`)
	first := string(r.answer(w, "1").Body)
	second := string(r.answer(w, "1").Body)
	for _, got := range []string{first, second} {
		dir, rest, _ := strings.Cut(got, " ")
		assert.NotContains(t, rest, "left")
		assert.NotContains(t, rest, "777")
		assert.NoDirExists(t, dir)
	}
}

func TestTheDefaultsOfACall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.answer(r.script(`printf 'Content-Type: text/plain\n\n%s' "$REQUEST_METHOD $PATH_INFO $QUERY_STRING $CONTENT_TYPE $CONTENT_LENGTH $HTTP_HOST"`), "")
	assert.Equal(t, "POST /  application/json 0 localhost", string(a.Body))
	assert.Equal(t, 200, a.StatusCode)
}

// A status of failure is the program's answer, and the task has been done.
func TestTheAnswerIsTheProgramsWhateverItsStatus(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for out, want := range map[string]cgi.Answer{
		`Status: 503\n\nbusy`:                                    {StatusCode: 503, Headers: http.Header{}, Body: []byte("busy")},
		`Content-Type: a/b\n\n`:                                  {StatusCode: 200, Headers: http.Header{"Content-Type": {"a/b"}}, Body: []byte{}},
		`Location: https://x/\n\n`:                               {StatusCode: 302, Headers: http.Header{"Location": {"https://x/"}}, Body: []byte{}},
		`Content-Length: 2\nA: b\n\nokay`:                        {StatusCode: 200, Headers: http.Header{"A": {"b"}, "Content-Length": {"2"}}, Body: []byte("ok")},
		`{"status_code":404,"headers":{"a":"b"},"body":"bm8="}`:  {StatusCode: 404, Headers: http.Header{"A": {"b"}}, Body: []byte("no")},
		` \n{"status_code":200,"headers":{"A":["b","c"]},"x":1}`: {StatusCode: 200, Headers: http.Header{"A": {"b", "c"}}},
		`{"status_code":200,"headers":{"x-a":"2","X-A":"1"}}`:    {StatusCode: 200, Headers: http.Header{"X-A": {"1", "2"}}},
	} {
		a := r.answer(r.script(`printf '`+out+`'`), "1")
		assert.Equal(t, want, *a, out)
	}
}

// The whole protocol's form of the answer.
func TestTheAnswersWireForm(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	resp := r.call(t.Context(), r.script(`printf 'Status: 500\nX: y\n\nno'`), "1")
	require.Equal(t, task.OK, resp.Code)
	assert.JSONEq(t, `{"status_code":500,"headers":{"X":["y"]},"body":"bm8="}`, string(resp.Data))
}

func TestAnAnswerThatIsNotValidFailsTheTask(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for script, want := range map[string]string{
		`:`:                                  "it is empty",
		`printf 'hello\n\n'`:                 "line 1 is not a header",
		`printf 'A: b\nnot a header: x\n\n'`: "line 2 is not a header",
		`printf 'A: b\n: c\n\n'`:             "line 2 is not a header",
		`printf '\n\nbody'`:                  "it has no headers",
		`printf 'A: b\n'`:                    "no empty line ends its headers",
		`printf 'A: b'`:                      "no empty line ends its headers",
		`printf 'A: b\nC: d\rE: f\n\n'`:      "line 2 is not a header",
		`printf 'A: b\0c\n\n'`:               "line 1 is not a header",
		`printf '%s' '{"status_code":200,"headers":{"A":"b\r\nC: d"}}'`:      "one of its headers is not valid",
		`printf '%s' '{"status_code":200,"headers":{"A\nB":"c"}}'`:           "one of its headers is not valid",
		`printf 'Status: fine\n\n'`:                                          "its Status is not a number",
		`printf 'Status: 99\n\n'`:                                            "its status is 99",
		`printf 'Status: 101 Switching\n\n'`:                                 "its status is 101",
		`printf 'Content-Length: x\n\n'`:                                     "its Content-Length is not a valid length",
		`printf 'Content-Length: 10\n\nshort'`:                               "it ends after 5 of 10 bytes",
		`printf '{"status_code":200'`:                                        "it is not JSON",
		`printf '{"body":"eA=="}'`:                                           "its status is 0",
		`printf 'A: '; head -c 2000000 /dev/zero | tr '\0' a; printf '\n\n'`: "its headers have more than",
	} {
		resp := r.call(t.Context(), r.script(script), "1")
		assert.Equal(t, task.Failed, resp.Code, script)
		assert.Contains(t, resp.Error, want, script)
	}
}

// Rule D8: the exit code is seen, before, within and after the answer, and the last
// line of standard error has the reason.
func TestAProgramThatDiesFailsTheTask(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for script, want := range map[string]string{
		`echo first >&2; echo no disk >&2; exit 3`: "exit code 3 (exit status 3) without an answer; it said: no disk",
		`kill -9 $$`:                                         "exit code 137 (signal: killed) without an answer",
		`printf 'Content-Le'; kill -SEGV $$`:                 "exit code 139 (signal: segmentation fault",
		`printf 'Content-Length: 10\n\nhalf'; exit 1`:        "exit code 1 (exit status 1) before its answer was whole",
		`printf 'Status: 204\n\n'; echo sorry >&2; exit 255`: "exit code 255 (exit status 255) after an answer with status 204; it said: sorry",
	} {
		resp := r.call(t.Context(), r.script(script), "1")
		assert.Equal(t, task.Failed, resp.Code, script)
		assert.Contains(t, resp.Error, want, script)
	}
	resp := r.call(t.Context(), r.program([]byte("\x7fELF no program")), "1")
	assert.Equal(t, task.Failed, resp.Code)
	assert.Contains(t, resp.Error, "run the program on "+runtime.GOOS+"/"+runtime.GOARCH+": ")
	assert.Contains(t, resp.Error, "exec format error")
	resp = r.call(t.Context(), r.program([]byte("#!/no/such/shell\n")), "1")
	assert.Contains(t, resp.Error, "does not exist on this machine")
}

// Regression: the program writes more than a pipe holds to standard error, and both
// sides wait for ever.
func TestAProgramThatWritesToStandardErrorFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	// It reads its input, which is more than a pipe holds, only after that.
	w := r.script(`yes 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde | head -c 10485760 >&2
printf 'Content-Type: text/plain\n\n'; wc -c | tr -d ' \n'`)
	a := r.answer(w, quote(strings.Repeat("x", 1<<20)))
	assert.Equal(t, fmt.Sprint(1<<20+2), string(a.Body))
	assert.Equal(t, 10<<20/64, strings.Count(r.logs.String(), "abcde\n"), "all of it is in the log")
}

func TestLargeBodiesBothWays(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	data := quote(strings.Repeat("0123456789abcdef", 20<<20/16))
	// Both at once, each larger than the pipes.
	a := r.answer(r.script(`printf 'Content-Length: %d\n\n' "$CONTENT_LENGTH"; cat`), data)
	assert.Equal(t, data, string(a.Body))
	// A program need not read.
	a = r.answer(r.script(`printf 'A: b\n\nok'`), data)
	assert.Equal(t, "ok", string(a.Body))
}

func TestAnAnswerIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := newGuard(t)
	resp := r.call(t.Context(), r.script(`exec 9>`+g.path+`; printf 'A: b\n\n'; exec cat /dev/zero`), "1")
	assert.Equal(t, task.Failed, resp.Code)
	assert.Contains(t, resp.Error, "larger than")
	g.requireGone(t)
}

// Rules P4 and D8: a program that does not end is stopped at the time-out of its task, with all
// processes that it started, and the code of the answer is TIMEOUT.
func TestAProgramThatNeverEndsIsStoppedInTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := newGuard(t)
	tk := r.task(r.script(`exec 9>`+g.path+`; trap "" TERM; sleep 600 & echo up >&2; while :; do sleep 600; done`), "1")
	tk.Timeout = 300
	routes := router.New(nil, router.WithNotFound(r.h), router.WithMiddleware(router.Deadline(0)))
	resp, _ := task.Serve(t.Context(), routes, tk)
	assert.Equal(t, task.Timeout, resp.Code)
	assert.Contains(t, resp.Error, "time-out of the task has passed")
	g.requireGone(t)

	// Also under a plain server, without a poller that sets the code.
	ctx, cancel := context.WithTimeout(task.NewContext(t.Context(), tk), 100*time.Millisecond)
	defer cancel()
	answer := httptest.NewRecorder()
	r.h.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil))
	assert.Equal(t, http.StatusGatewayTimeout, answer.Code)
	assert.Equal(t, task.Timeout, task.CodeOf(answer.Code, answer.Header()))
}

// Rule D8: cancel is SIGTERM, the grace, and SIGKILL for the remaining processes.
func TestAProgramThatIsAbortedHasTheGrace(t *testing.T) {
	t.Parallel()
	aborted := errors.New("aborted by a person")
	for name, script := range map[string]string{
		"goes":  `trap 'echo cleaned up >&2; exit' TERM; echo up >&2; while :; do sleep 0.02; done`,
		"stays": `trap 'echo cleaned up >&2' TERM; echo up >&2; while :; do sleep 0.02; done`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			grace := time.Minute
			if name == "stays" {
				grace = 500 * time.Millisecond
			}
			r := newRig(t, func(c *cgi.Config) { c.Grace = grace })
			g := newGuard(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				r.logs.waitFor(t, "up\n")
				cancel(aborted)
			})
			resp := r.call(ctx, r.script(`exec 9>`+g.path+"\n"+script), "1")
			wg.Wait()
			assert.Equal(t, task.Failed, resp.Code)
			assert.Contains(t, resp.Error, "aborted by a person")
			assert.Contains(t, r.logs.String(), "cleaned up\n", "the last lines of the program are in the log")
			g.requireGone(t)
		})
	}
}

// No process of the program's process group runs after the call.
func TestTheProcessGroupOfAProgramIsKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := newGuard(t)
	// One holds the outputs open, one has closed them.
	a := r.answer(r.script(`exec 9>`+g.path+`
sleep 600 &
sleep 600 >/dev/null 2>&1 &
printf 'A: b\n\nok'`), "1")
	assert.Equal(t, "ok", string(a.Body))
	g.requireGone(t)
}

// A process that left the process group is not killed, but does not delay the call.
func TestAProcessThatLeavesTheGroupDelaysNothing(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/usr/bin/setsid"); err != nil {
		testbed.Unavailable(t, "setsid", "there is no setsid on this machine")
	}
	r := newRig(t)
	g := newGuard(t)
	pid := filepath.Join(t.TempDir(), "pid")
	a := r.answer(r.script(`exec 9>`+g.path+`
setsid sh -c 'echo $$ >`+pid+`; exec sleep 600' &
while [ ! -s `+pid+` ]; do sleep 0.01; done
printf 'A: b\n\nok'`), "1")
	assert.Equal(t, "ok", string(a.Body))
	b, err := os.ReadFile(pid)
	require.NoError(t, err)
	var n int
	_, err = fmt.Sscan(string(b), &n)
	require.NoError(t, err)
	p, err := os.FindProcess(n)
	require.NoError(t, err)
	require.NoError(t, p.Kill())
	g.requireGone(t)
}

// Show: 200 at once.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := newGuard(t)
	w := r.script(`exec 9>` + g.path + `; echo "log of $(cat)" >&2; printf 'A: b\n\n%s' "$CONTENT_LENGTH"`)
	w.Executable.Executables[1].SHA256 = "" // by URL: the download is shared as well
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			data := strings.Repeat("1", i+1)
			resp, _ := task.Serve(t.Context(), r.h, r.task(w, data))
			var a cgi.Answer
			if assert.Equal(t, task.OK, resp.Code, resp.Error) && assert.NoError(t, json.Unmarshal(resp.Data, &a)) {
				assert.Equal(t, fmt.Sprint(i+1), string(a.Body))
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 1, r.store.calls.Load(), "fetched once")
	assert.Equal(t, 200, strings.Count(r.logs.String(), "log of 1"))
	g.requireGone(t)
}

// Rule D8: standard error is in the log while the program runs.
func TestStandardErrorIsLive(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	more := filepath.Join(t.TempDir(), "more")
	var wg sync.WaitGroup
	wg.Go(func() {
		r.logs.waitFor(t, "step 1\n")
		assert.NoError(t, os.WriteFile(more, nil, 0o600))
	})
	a := r.answer(r.script(`echo step 1 >&2; while [ ! -e `+more+` ]; do sleep 0.01; done; printf 'A: b\n\nok'`), "1")
	wg.Wait()
	assert.Equal(t, "ok", string(a.Body))
}

// Rule S3: the task's secrets are in no log and no error, and the answer is the
// program's.
func TestSecretsAreMasked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	routes := router.New(nil, router.WithNotFound(r.h), router.WithMiddleware(routersecrets.Resolve(secrets.ResolverConfig{})))
	serve := func(script string) *task.Response {
		tk := r.task(r.script(script), `{"password":"${{secrets.db}}"}`)
		tk.Secrets = []*task.Task{{ID: "db", Type: task.TypeSecretStatic, Data: json.RawMessage(`{"secrets":[{"value":"visibly-fake-1"}]}`)}}
		tk.Logger = &task.Logger{Masks: []string{"visibly-fake-2"}}
		resp, _ := task.Serve(t.Context(), routes, tk)
		return resp
	}
	resp := serve(`printf 'visibly-' >&2; sleep 0.05; echo fake-1 visibly-fake-2 >&2; printf 'A: b\n\n'; cat`)
	require.Equal(t, task.OK, resp.Code, resp.Error)
	var a cgi.Answer
	require.NoError(t, json.Unmarshal(resp.Data, &a))
	assert.JSONEq(t, `{"password":"visibly-fake-1"}`, string(a.Body))
	resp = serve(`echo cannot log in with visibly-fake-1 and visibly-fake-2 >&2; exit 1`)
	assert.Contains(t, resp.Error, "cannot log in with ")
	assert.NotContains(t, resp.Error, "visibly-fake")
	assert.Contains(t, r.logs.String(), "cannot log in with ")
	assert.NotContains(t, r.logs.String(), "fake-")

	// Also where no middleware looks for secrets.
	tk := r.task(r.script(`echo it is visibly-fake-2 >&2; exit 1`), "1")
	tk.Logger = &task.Logger{Masks: []string{"visibly-fake-2"}}
	resp, _ = task.Serve(t.Context(), r.h, tk)
	assert.NotContains(t, resp.Error, "visibly-fake")
	w := r.script("exit 5")
	w.Executable.Name, w.Executable.Executables = "visibly-fake-2", nil
	tk = r.task(w, "1")
	tk.Logger = &task.Logger{Masks: []string{"visibly-fake-2"}}
	resp, _ = task.Serve(t.Context(), r.h, tk)
	assert.Contains(t, resp.Error, "there is nothing")
	assert.NotContains(t, resp.Error, "visibly-fake")
}

// A CGI program can be the source of a secret (docs/protocol.md, section 2).
func TestAProgramAnswersForASecret(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	routes := router.New(router.RouteMap{"echo": task.HandlerFunc(func(_ context.Context, req *task.Request[string]) (string, error) {
		return req.Data, nil
	})}, router.WithNotFound(r.h), router.WithMiddleware(routersecrets.Resolve(secrets.ResolverConfig{})))
	source := r.task(r.script(`printf 'Content-Type: application/json\n\n{"value":"visibly-fake-3"}'`), "1")
	source.ID, source.Type = "mine", "secret/custom"
	resp, _ := task.Serve(t.Context(), routes, &task.Task{ID: "t", Type: "echo", Data: json.RawMessage(`"${{secrets.mine}}"`), Secrets: []*task.Task{source}})
	require.Equal(t, task.OK, resp.Code, resp.Error)
	assert.Equal(t, `"visibly-fake-3"`, string(resp.Data))
}

func TestATaskThatNamesNoProgramIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	missing := r.script("exit 1")
	missing.Executable.Executables = missing.Executable.Executables[:1]
	gone := r.script("exit 2")
	gone.Executable.Executables[1].URL = r.store.URL + "/gone?token=visibly-fake"
	wrong := r.script("exit 3")
	wrong.Executable.Executables[1].SHA256 = strings.Repeat("0", 64)
	change := func(f func(*wire)) *wire {
		w := r.script("exit 4")
		f(w)
		return w
	}
	for want, w := range map[string]*wire{
		`no route for task type "custom"`: nil,
		"there is plan9/mips":             missing,
		"the server answers 404":          gone,
		"the checksum is":                 wrong,
		`method "A B" is not valid`:       change(func(w *wire) { w.Method = "A B" }),
		`header "a b" is not valid`:       change(func(w *wire) { w.Headers = map[string]string{"a b": "c"} }),
		`header "A" is not valid`:         change(func(w *wire) { w.Headers = map[string]string{"A": "c\nB: d"} }),
		"variable 2 of 2":                 change(func(w *wire) { w.Envs = []string{"A=b", "visibly-fake"} }),
		"the endpoint is not valid":       change(func(w *wire) { w.Endpoint = "http://a b" }),
	} {
		resp := r.call(t.Context(), w, "1")
		assert.Equal(t, task.Failed, resp.Code, want)
		assert.Contains(t, resp.Error, want)
		assert.NotContains(t, resp.Error, "visibly-fake")
	}
	resp, _ := task.Serve(t.Context(), r.h, &task.Task{ID: "t", Type: "x", Config: json.RawMessage(`5`)})
	assert.Contains(t, resp.Error, "decoding the config")
	_, err := cgi.New(cgi.Config{Env: []string{"=x"}})
	assert.ErrorContains(t, err, "variable 1 of 1")
}

// Rule D8: downloaded once, verified and decompressed, for every process that has
// the cache.
func TestProgramsAreFetchedOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	require.NoError(t, err)
	w := r.program(z.EncodeAll([]byte("#!/bin/sh\nprintf 'A: b\\n\\nunpacked'\n"), nil))
	w.Executable.Compressed = true
	for range 3 {
		assert.Equal(t, "unpacked", string(r.answer(w, "1").Body))
	}
	other := newRig(t, func(c *cgi.Config) { c.Cache = r.cache })
	assert.Equal(t, "unpacked", string(other.answer(w, "1").Body))
	assert.EqualValues(t, 1, r.store.calls.Load())
	assert.Equal(t, 1, strings.Count(r.logs.String(), "Fetching the program from http://127.0.0.1:"))
}

// Rule D8: the cache has bounds. An entry that a call uses stays.
func TestTheCacheIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *cgi.Config) { c.CacheSize = 1 })
	more := filepath.Join(t.TempDir(), "more")
	var wg sync.WaitGroup
	wg.Go(func() {
		// A script that is read while it runs.
		assert.Equal(t, "held", string(r.answer(r.script(`echo up >&2; while [ ! -e `+more+` ]; do sleep 0.01; done
printf 'A: b\n\nheld'; [ -e "$0" ]`), "1").Body))
	})
	r.logs.waitFor(t, "up\n")
	for n := range 3 {
		assert.Equal(t, "ok", string(r.answer(r.script(fmt.Sprintf(`printf 'A: b\n\nok'; # %d`, n)), "1").Body))
	}
	assert.NoError(t, os.WriteFile(more, nil, 0o600))
	wg.Wait()
	// The previous clearing kept two programs if it came while the last of these calls ran.
	assert.Equal(t, "ok", string(r.answer(r.script(`printf 'A: b\n\nok'; # last`), "1").Body))
	require.NoError(t, r.h.Close(t.Context()))
	left, err := os.ReadDir(r.cache)
	require.NoError(t, err)
	assert.LessOrEqual(t, len(left), 2, "the program of the last call, and its lock")
	for _, unbounded := range []int64{0, -1} {
		r := newRig(t, func(c *cgi.Config) { c.CacheSize, c.CacheAge = unbounded, time.Duration(unbounded) })
		r.answer(r.script(`printf 'A: b\n\nok'`), "1")
		require.NoError(t, r.h.Close(t.Context()))
		left, err := os.ReadDir(r.cache)
		require.NoError(t, err)
		assert.Len(t, left, 2)
	}
}
