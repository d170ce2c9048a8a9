package endtoend_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
)

// Rule P4: if the delegate sees a TIMEOUT, our manager has the status TIMEOUT, for a single
// task and for a step. This holds for every form of the answer, also for forms whose codes do
// not distinguish it from a failure.
func TestEveryFormOfAnswerCanReportATimeOut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		protocol client.Protocol
		types    [3]string
		runner   string
	}{
		"v1, legacy": {client.V1, [3]string{"CI_DOCKER_INITIALIZE_TASK", "CI_DOCKER_EXECUTE_TASK", "CI_DOCKER_CLEANUP_TASK"}, `false`},
		"v1, runner": {client.V1, [3]string{"local_init", "local_execute", "local_cleanup"}, `true`},
		"v2":         {client.V2, [3]string{"local_init", "local_execute", "local_cleanup"}, `false`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := manager.New(manager.Config{Accounts: map[string]string{account: secret}, AnswerGrace: time.Hour}) // long enough that the manager's own time-out does not interfere
			require.NoError(t, err)
			srv := httptest.NewServer(m)
			t.Cleanup(func() { assert.NoError(t, m.Close()); srv.Close() })
			c1, err := client.New(srv.URL, account, secret, client.WithProtocol(c.protocol))
			require.NoError(t, err)
			t.Cleanup(c1.CloseIdleConnections)
			done := task.HandlerFunc(func(context.Context, *task.Request[any]) (any, error) {
				return map[string]string{"command_execution_status": "SUCCESS"}, nil
			})
			late := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				task.WriteError(w, context.Cause(r.Context()))
			})
			p := poller.New(c1, router.New(router.RouteMap{c.types[0]: done, c.types[1]: late, c.types[2]: done, "late": late}))
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			info, err := p.Register(ctx)
			require.NoError(t, err)
			over := make(chan error, 1)
			go func() { over <- p.Poll(ctx, 2, info.ID, time.Minute) }()

			var req manager.TaskRequest
			require.NoError(t, req.UnmarshalJSON([]byte(`{"type":"late","timeout":1000,"runnerResponse":`+c.runner+`}`)))
			single, err := m.SubmitTask(ctx, account, req)
			require.NoError(t, err)
			st, err := m.SubmitStage(ctx, account, api.StageRequest{Steps: []api.StepRequest{{ID: "slow", TimeoutMS: 1000}}})
			require.NoError(t, err)
			single, err = m.WaitTask(ctx, account, single.ID)
			require.NoError(t, err)
			assert.Equal(t, api.Timeout, single.Status)
			assert.Contains(t, single.Error, "context deadline exceeded")
			st, err = m.WaitStage(ctx, account, st.ID)
			require.NoError(t, err)
			assert.Equal(t, api.Timeout, st.Status)
			assert.Equal(t, api.Timeout, st.Steps[0].Status)
			assert.Contains(t, st.Steps[0].Error, "context deadline exceeded")
			require.NoError(t, p.Shutdown(ctx))
			require.NoError(t, <-over)
		})
	}
}
