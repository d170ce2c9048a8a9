package endtoend_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/client/clienttest"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	routersecrets "github.com/delegate-io/dlite/router/secrets"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
)

// syncBuffer is a buffer that several goroutines can log to.
type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Rule S3: a handler that fails, in any possible way, with a secret in its error reveals it
// neither to the manager nor to the delegate's log.
func TestNoBrokenHandlerTellsASecret(t *testing.T) {
	t.Parallel()
	value := fakes()["PLAIN"]
	var n needles
	n.add("PLAIN", value)
	routes := router.RouteMap{}
	for name, f := range map[string]func(w http.ResponseWriter, text string){
		"panics":            func(_ http.ResponseWriter, text string) { panic("it is " + text) },
		"panics_with_error": func(_ http.ResponseWriter, text string) { panic(errors.New("it is " + text)) },
		"panics_late": func(w http.ResponseWriter, text string) {
			_, _ = w.Write([]byte(`{"half":"` + text))
			panic(text)
		},
		"fails":        func(w http.ResponseWriter, text string) { task.WriteError(w, errors.New("no login with "+text)) },
		"is_forbidden": func(w http.ResponseWriter, text string) { http.Error(w, "no login with "+text, http.StatusForbidden) },
	} {
		routes[name] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			tk, _ := task.FromContext(r.Context())
			f(w, string(tk.Data))
		})
	}
	for _, protocol := range []client.Protocol{client.V1, client.V2} {
		server := clienttest.NewServer()
		t.Cleanup(server.Close)
		var output syncBuffer
		log := zerolog.New(&output).Level(zerolog.TraceLevel)
		c, err := client.New(server.URL, server.Account, server.Secret, client.WithProtocol(protocol), client.WithLogger(log))
		require.NoError(t, err)
		t.Cleanup(c.CloseIdleConnections)
		p := poller.New(c, router.New(routes, router.WithMiddleware(router.Recover(log), router.Log(log), routersecrets.Resolve(secrets.ResolverConfig{
			Providers: secrets.Providers{"own": secrets.ProviderFunc(func(context.Context, *url.URL) (string, error) { return value, nil })},
		}))), poller.WithLogger(log))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		info, err := p.Register(ctx)
		require.NoError(t, err)
		var polling sync.WaitGroup
		polling.Go(func() { _ = p.Poll(ctx, 2, info.ID, 10*time.Millisecond) })
		for name := range routes {
			data, err := json.Marshal("${{secrets.own://x}}")
			require.NoError(t, err)
			res, err := server.Submit(&task.Task{Type: name, Data: data}).Wait(ctx)
			require.NoError(t, err)
			assert.Equal(t, task.Failed, res.Code, name)
			assert.Contains(t, res.Error+string(res.Data), secrets.Replacement, name)
			assert.Empty(t, n.find([]byte(res.Error+string(res.Data))), name)
		}
		cancel()
		polling.Wait()
		for _, call := range server.Calls() {
			assert.Empty(t, n.find(call.Body), call.Path)
			var answer struct{ Data string }
			if json.Unmarshal(call.Body, &answer) == nil {
				plain, _ := base64.StdEncoding.DecodeString(answer.Data) // only if the form encodes the data
				assert.Empty(t, n.find(plain), call.Path)
			}
		}
		assert.Empty(t, n.find([]byte(output.String())))
		assert.True(t, strings.Contains(output.String(), "the handler of a task did not return"), output.String())
	}
}
