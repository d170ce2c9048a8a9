package secrets_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/router"
	routersecrets "github.com/delegate-io/dlite/router/secrets"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
)

// static returns a secret task with its value.
func static(id, value string) *task.Task {
	v, _ := json.Marshal(value)
	return &task.Task{ID: id, Type: task.TypeSecretStatic, Data: json.RawMessage(`{"secrets":[{"value":` + string(v) + `}]}`)}
}

// withSecrets returns a router whose provider "p" returns the host of the
// reference.
func withSecrets(routes router.RouteMap) *router.Router {
	return router.New(routes, router.WithMiddleware(router.Recover(zerolog.Nop()), routersecrets.Resolve(secrets.ResolverConfig{
		Providers: secrets.Providers{"p": secrets.ProviderFunc(func(_ context.Context, ref *url.URL) (string, error) {
			if ref.Host == "none" {
				return "", secrets.ErrNotFound
			}
			return "from-" + ref.Host, nil
		})},
	})))
}

// S1: secret tasks of every type run first and in order, and each sees the secrets
// of the earlier ones. The handler gets the resolved data, in its context and as
// its body, without the secret tasks.
func TestSecretTasksRunFirstAndInOrder(t *testing.T) {
	t.Parallel()
	var order []string
	var body []byte
	var got task.Task
	r := withSecrets(router.RouteMap{
		"vault": task.HandlerFunc(func(_ context.Context, req *task.Request[struct{ Token string }]) (map[string]string, error) {
			order = append(order, "vault with "+req.Data.Token)
			return map[string]string{"id": "other-name", "value": "opened"}, nil
		}),
		"cgi": task.HandlerFunc(func(_ context.Context, req *task.Request[string]) (map[string]any, error) {
			order = append(order, "cgi with "+req.Data)
			return map[string]any{"status_code": 200, "body": base64.StdEncoding.EncodeToString([]byte(`{"value":"by program"}`))}, nil
		}),
		"main": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			order = append(order, "main")
			body, _ = io.ReadAll(r.Body)
			tk, _ := task.FromContext(r.Context())
			got = *tk
			set := secrets.FromContext(r.Context())
			task.WriteJSON(w, []string{set.String(), set.Mask("token-1 opened b3BlbmVk")}, http.StatusOK)
		}),
	})
	resp, _ := task.Serve(t.Context(), r, &task.Task{
		ID: "t", Type: "main",
		Data: json.RawMessage(`{"n":1e400,"a":"${{secrets.s2}} ${{secrets.other-name}} ${{secrets.s3}} ${{secrets.p://host}}","b":"<{ ${{secrets.s2}} | getAsBase64 }>"}`),
		Secrets: []*task.Task{
			static("s1", "token-1"),
			{ID: "s2", Type: "vault", Data: json.RawMessage(`{"token":"${{secrets.s1}}"}`)},
			{ID: "s3", Type: "cgi", Data: json.RawMessage(`"${{secrets.s2}}"`)},
		},
	})
	require.Equal(t, task.OK, resp.Code, resp.Error)
	assert.Equal(t, []string{"vault with token-1", "cgi with opened", "main"}, order)
	const want = `{"n":1e400,"a":"opened opened by program from-host","b":"b3BlbmVk"}`
	assert.Equal(t, want, string(got.Data))
	assert.Empty(t, got.Secrets)
	assert.Equal(t, `{"id":"t","type":"main","data":`+want+`}`, string(body))
	assert.JSONEq(t, `["secrets.Set(5 values)","****** ****** ******"]`, string(resp.Data))
}

// S1: the error names the reference and shows no value.
func TestATaskFailsWithItsSecrets(t *testing.T) {
	t.Parallel()
	fails := func(err error) task.Handler {
		return task.HandlerFunc(func(context.Context, *task.Request[any]) (any, error) { return nil, err })
	}
	answers := func(v any) task.Handler {
		return task.HandlerFunc(func(context.Context, *task.Request[any]) (any, error) { return v, nil })
	}
	for name, tc := range map[string]struct {
		data    string
		secrets []*task.Task
		want    string
	}{
		"unknown reference":   {`"${{secrets.x}}"`, nil, "secret reference ${{secrets.x}}: there is no such secret"},
		"nothing at provider": {`"${{secrets.p://none}}"`, nil, "${{secrets.p://none}}: there is no such secret"},
		"later secret":        {`1`, []*task.Task{{ID: "s", Type: "broken", Data: json.RawMessage(`"${{secrets.later}}"`)}, static("later", "v")}, `secret task "s": secret reference ${{secrets.later}}`},
		"secret task fails":   {`1`, []*task.Task{static("one", "known-value"), {ID: "s", Type: "broken"}}, `secret task "s" (broken): no access with ******`},
		"no route":            {`1`, []*task.Task{{ID: "s", Type: "unknown"}}, `secret task "s" (unknown): this delegate has no route`},
		"no value":            {`1`, []*task.Task{{ID: "s", Type: "empty"}}, `secret task "s" (empty): its answer has no value`},
		"no object":           {`1`, []*task.Task{{ID: "s", Type: "text"}}, `secret task "s" (text): its answer is not of the form`},
		"program fails":       {`1`, []*task.Task{{ID: "s", Type: "cgi500"}}, `secret task "s" (cgi500): its program answered with status 500`},
		"static is broken":    {`1`, []*task.Task{{ID: "s", Type: task.TypeSecretStatic, Data: json.RawMessage(`{"secrets":"known-value"}`)}}, "does not have the form"},
		"static of two":       {`1`, []*task.Task{{ID: "s", Type: task.TypeSecretStatic, Data: json.RawMessage(`{"secrets":[{},{}]}`)}}, "must have one secret, this one has 2"},
		"static no base64":    {`1`, []*task.Task{{ID: "s", Type: task.TypeSecretStatic, Data: json.RawMessage(`{"secrets":[{"value":"known-value","base64":true}]}`)}}, "the value is not base64"},
		"id twice":            {`1`, []*task.Task{static("s", "known-value"), static("s", "other")}, "${{secrets.s}}: two secrets have this id"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ran := false
			r := withSecrets(router.RouteMap{
				"main":   http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran = true }),
				"broken": fails(errors.New("no access with known-value")), "empty": answers(map[string]any{}), "text": answers("known-value"),
				"cgi500": answers(map[string]any{"status_code": 500, "body": "a25vd24tdmFsdWU="}),
			})
			resp, _ := task.Serve(t.Context(), r, &task.Task{ID: "t", Type: "main", Data: json.RawMessage(tc.data), Secrets: tc.secrets})
			assert.Equal(t, task.Failed, resp.Code)
			assert.Contains(t, resp.Error, tc.want)
			assert.NotContains(t, resp.Error+string(resp.Data), "known-value")
			assert.False(t, ran, "the handler must not run")
		})
	}
}

func TestStaticSecretsMayBeEncoded(t *testing.T) {
	t.Parallel()
	r := withSecrets(router.RouteMap{"main": task.HandlerFunc(func(_ context.Context, req *task.Request[string]) (string, error) { return req.Data, nil })})
	resp, _ := task.Serve(t.Context(), r, &task.Task{
		ID: "t", Type: "main", Data: json.RawMessage(`"${{secrets.task-id}}/${{secrets.own-id}}"`),
		Secrets: []*task.Task{{ID: "task-id", Type: task.TypeSecretStatic, Data: json.RawMessage(`{"secrets":[{"id":"own-id","value":"aGVsbG8=","base64":true}]}`)}},
	})
	assert.Equal(t, `"hello/hello"`, string(resp.Data), resp.Error)
}

// S3: errors and panics are masked, a successful answer is not.
func TestErrorsAndPanicsAreMasked(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		main http.HandlerFunc
		want string
	}{
		"typed error": {func(w http.ResponseWriter, _ *http.Request) { task.WriteError(w, errors.New("no: hush-hush")) }, "no: ******"},
		"plain status": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "hush-hush", http.StatusServiceUnavailable)
		}, "the handler answered with status 503: ******"},
		"in pieces": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			_, _ = io.WriteString(w, "hush")
			_, _ = io.WriteString(w, "-hush")
		}, "the handler answered with status 500: ******"},
		"panic": {func(http.ResponseWriter, *http.Request) { panic("with hush-hush") }, "the handler panicked: with ******"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp, _ := task.Serve(t.Context(), withSecrets(router.RouteMap{"main": tc.main}),
				&task.Task{ID: "t", Type: "main", Secrets: []*task.Task{static("s", "hush-hush")}})
			assert.Equal(t, task.Failed, resp.Code)
			assert.Equal(t, tc.want, resp.Error)
			assert.NotContains(t, string(resp.Data), "hush")
		})
	}
}

// S3: the Content-Length of a masked error is set anew, so that a server sends all
// of it.
func TestAMaskedErrorGetsThroughAnHTTPServer(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(withSecrets(router.RouteMap{"main": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		set := secrets.FromContext(r.Context())
		set.Add("a-rather-long-secret")
		w.Header().Set("Content-Length", "20")
		w.WriteHeader(500)
		_, _ = io.WriteString(w, "a-rather-long-secret")
	})}))
	defer srv.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, strings.NewReader(`{"id":"1","type":"main"}`))
	require.NoError(t, err)
	resp, err := srv.Client().Do(req)
	require.NoError(t, err)
	defer resp.Body.Close() //nolint:errcheck // read to its end
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, secrets.Replacement, string(b))
}

// S3: a panic without a secret keeps its type, and the set of an outer middleware
// is used.
func TestValuesWithoutSecretsStayAsTheyAre(t *testing.T) {
	t.Parallel()
	set := &secrets.Set{}
	h := routersecrets.Resolve(secrets.ResolverConfig{})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		assert.Same(t, set, secrets.FromContext(r.Context()))
		panic(http.ErrAbortHandler)
	}))
	ctx := task.NewContext(secrets.NewContext(t.Context(), set), &task.Task{ID: "t", Type: "x"})
	assert.PanicsWithValue(t, http.ErrAbortHandler, func() {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil))
	})
}

// P4: the time-out of a provider is a failure, the task's own is TIMEOUT.
func TestTimeOutsOfProvidersAndTasksDiffer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		timeout task.Millis
		want    task.Code
	}{"the provider's": {0, task.Failed}, "the task's": {1000, task.Timeout}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := router.New(router.RouteMap{"main": answer("")}, router.WithMiddleware(router.Deadline(0), routersecrets.Resolve(secrets.ResolverConfig{
					Timeout: 2 * time.Second,
					Providers: secrets.Providers{"slow": secrets.ProviderFunc(func(ctx context.Context, _ *url.URL) (string, error) {
						<-ctx.Done()
						return "", ctx.Err()
					})},
				})))
				resp, _ := task.Serve(t.Context(), r, &task.Task{ID: "t", Type: "main", Data: json.RawMessage(`"${{secrets.slow://x}}"`), Timeout: tc.timeout})
				assert.Equal(t, tc.want, resp.Code)
				assert.Contains(t, resp.Error, "slow://x")
			})
		})
	}
}

// L1, S3: the log of a handler is masked by its task's set of secrets, with the
// standard middleware and no other wiring: zerolog and slog, in keys and values.
func TestHandlersLogNoSecret(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h := task.HandlerFunc(func(ctx context.Context, req *task.Request[map[string]string]) (string, error) {
		value := req.Data["password"]
		require.Equal(t, "hun\"ter2\nnot-real", value)
		logger.FromContext(ctx).Warn().Str("value", value).Interface(value, map[string]any{"list": []string{value}}).
			Err(errors.New("bad " + value)).Msg("connecting with " + value)
		logger.Slog(zerolog.Nop()).With("value", value).ErrorContext(ctx, value)
		secrets.FromContext(ctx).Add("learned-later")
		zerolog.Ctx(ctx).Info().Msg("learned-later")
		return "done", nil
	})
	r := router.New(router.RouteMap{"deploy": h}, router.Standard(zerolog.New(&log), routersecrets.Resolve(secrets.ResolverConfig{})))
	resp, _ := task.Serve(t.Context(), r, &task.Task{
		ID: "t1", Type: "deploy", Data: json.RawMessage(`{"password":"${{secrets.db}}"}`),
		Secrets: []*task.Task{static("db", "hun\"ter2\nnot-real")},
	})
	require.Equal(t, task.OK, resp.Code, resp.Error)
	text := log.String()
	assert.NotContains(t, text, "ter2")
	assert.NotContains(t, text, "learned-later")
	assert.Contains(t, text, `"task":"t1","task_type":"deploy","kind":"standalone","value":"******","******":{"list":["******"]},"error":"bad ******","message":"connecting with ******"`)
	assert.Equal(t, 5, strings.Count(text, "\n"), "three events of the handler, and the start and end of the task")
}
