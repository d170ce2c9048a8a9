package clienttest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/client/clienttest"
	"github.com/delegate-io/dlite/internal/clientfaults"
	"github.com/delegate-io/dlite/task"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newClient(t *testing.T, srv *clientfaults.Server, opts ...client.Option) *client.HTTP {
	t.Helper()
	opts = append([]client.Option{
		client.WithRetries(client.Retries{Attempts: 4, MinWait: time.Millisecond, MaxWait: 4 * time.Millisecond}),
	}, opts...)
	c, err := client.New(srv.URL, srv.Account, srv.Secret, opts...)
	require.NoError(t, err)
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// run polls for the only pending task, acquires it and responds.
func run(ctx context.Context, c client.Client, delegate string, wait time.Duration) (*client.Pending, *task.Task, error) {
	p, err := c.Poll(ctx, delegate, client.PollQuery{Wait: wait})
	if err != nil {
		return nil, nil, fmt.Errorf("polling: %w", err)
	}
	if len(p.Events) != 1 {
		return nil, nil, fmt.Errorf("%d events", len(p.Events))
	}
	got, err := c.Acquire(ctx, delegate, p.Events[0])
	if err != nil || got == nil {
		return nil, nil, fmt.Errorf("acquiring: %v, %w", got, err)
	}
	return p, got, c.Respond(ctx, delegate, got, &task.Response{
		ID: got.ID, Type: got.Type, Code: task.OK, Data: json.RawMessage(`{"did":"it"}`),
	})
}

// Rule C1: the client and this manager work together in both protocols, in all
// forms of an answer, with and without the extensions.
func TestClientSpeaksBothProtocols(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		protocol client.Protocol
		runner   bool
		plain    bool
		want     string
	}{
		"v1 legacy":             {client.V1, false, false, "legacy"},
		"v1 runner":             {client.V1, true, false, "runner"},
		"v2":                    {client.V2, false, false, "v2"},
		"v1 at a plain manager": {client.V1, false, true, "legacy"},
		"v2 at a plain manager": {client.V2, true, true, "v2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := clientfaults.NewServer(clienttest.Config{Prefix: "/pre/fix", Plain: tc.plain})
			defer srv.Close()
			c := newClient(t, srv, client.WithProtocol(tc.protocol))
			d, err := c.Register(t.Context(), &client.Registration{DelegateName: "n", SupportedTaskTypes: []string{"x"}})
			require.NoError(t, err)
			require.NoError(t, c.ReportCapacity(t.Context(), d.ID, 2))
			require.NoError(t, c.Heartbeat(t.Context(), &client.Registration{DelegateID: d.ID, Draining: true}))

			sub := srv.Submit(&task.Task{Type: "x", Data: json.RawMessage(`{"n":1}`), RunnerResponse: tc.runner})
			p, got, err := run(t.Context(), c, d.ID, 10*time.Second)
			require.NoError(t, err)
			assert.Equal(t, !tc.plain, p.Held)
			assert.Equal(t, sub.ID, got.ID)
			assert.JSONEq(t, `{"n":1}`, string(got.Data))

			resp, err := sub.Wait(t.Context())
			require.NoError(t, err)
			assert.Equal(t, tc.want, resp.Form)
			assert.Equal(t, task.OK, resp.Code)
			assert.JSONEq(t, `{"did":"it"}`, string(resp.Data))
			assert.Equal(t, d.ID, resp.DelegateID)

			require.NoError(t, c.Unregister(t.Context(), &client.Unregistration{DelegateID: d.ID}))
			known := srv.Delegates()
			require.Len(t, known, 1)
			assert.Equal(t, 2, known[0].Capacity)
			assert.True(t, known[0].Registration.Draining)
			assert.True(t, known[0].Unregistration != nil)
		})
	}
}

// Rules C2, C3, C6: after one fault of each kind on each call the task is answered
// once.
func TestClientSurvivesEveryTemporaryFault(t *testing.T) {
	t.Parallel()
	faults := []clientfaults.Fault{
		{}, {Status: 500}, {Status: 429}, {Status: 502, Late: true},
		{Kind: clientfaults.DropRequest}, {Kind: clientfaults.DropResponse}, {Kind: clientfaults.Truncate},
		{Kind: clientfaults.Hang}, {Kind: clientfaults.Slow, Delay: 5 * time.Millisecond},
	}
	for _, protocol := range []client.Protocol{client.V1, client.V2} {
		for _, call := range []string{
			"register", "poll", "acquire", "respond",
		} {
			for _, fault := range faults {
				fault.Call, fault.Times = call, 1
				t.Run(fmt.Sprintf("v%d/%s/%s %d", protocol, call, fault.Kind, fault.Status), func(t *testing.T) {
					t.Parallel()
					srv := clientfaults.NewServer(clienttest.Config{})
					defer srv.Close()
					injected := srv.Inject(fault)
					timeout := 5 * time.Second
					if fault.Kind == clientfaults.Hang {
						timeout = 200 * time.Millisecond
					}
					c := newClient(t, srv, client.WithProtocol(protocol), client.WithTimeout(timeout))
					sub := srv.Submit(&task.Task{Type: "x"})

					d, err := c.Register(t.Context(), &client.Registration{DelegateName: "n"})
					require.NoError(t, err)
					_, _, err = run(t.Context(), c, d.ID, 0)
					require.NoError(t, err)

					resp, err := sub.Wait(t.Context())
					require.NoError(t, err)
					assert.Equal(t, task.OK, resp.Code)
					assert.Equal(t, 1, injected.Count())
				})
			}
		}
	}
}

// Rules C1, C2: permanent errors are classified and not retried. After a 401 the
// client tries once with a new token.
func TestClientClassifiesPermanentErrors(t *testing.T) {
	t.Parallel()
	for status, tc := range map[int]struct {
		want error
		sent int
	}{
		401: {client.ErrUnauthorized, 2}, 403: {client.ErrUnauthorized, 1},
		404: {client.ErrGone, 1}, 409: {client.ErrConflict, 1},
	} {
		srv := clientfaults.NewServer(clienttest.Config{})
		defer srv.Close()
		injected := srv.Inject(clientfaults.Fault{Status: status})
		_, err := newClient(t, srv).Poll(t.Context(), "d", client.PollQuery{})
		assert.ErrorIs(t, err, tc.want)
		assert.Equal(t, tc.sent, injected.Count(), "requests that met a %d", status)
	}
}
