package drone_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/delegate-io/dlite/client/drone/dronetest"
)

// A build is cancelled at each call of its stage. No step runs after it. Steps that the
// server has ended keep their status, and the slot becomes free.
func TestABuildIsCancelledInEveryState(t *testing.T) {
	t.Parallel()
	config := execPipeline("- {name: a, commands: [sleep 0.3; echo over]}\n- {name: b, commands: [echo]}\n")
	for name, point := range map[string]struct {
		method, path string
		n            int32
	}{
		"details":    {http.MethodGet, "/rpc/v2/stage/", 1},
		"create":     {http.MethodPut, "/rpc/v2/stage/", 1},
		"step runs":  {http.MethodPut, "/rpc/v2/step/", 1},
		"live lines": {http.MethodPost, "/logs/batch", 1},
		"upload":     {http.MethodPost, "/logs/upload", 1},
		"step ends":  {http.MethodPut, "/rpc/v2/step/", 2},
		"next runs":  {http.MethodPut, "/rpc/v2/step/", 3},
		"next ends":  {http.MethodPut, "/rpc/v2/step/", 4},
		"end":        {http.MethodPut, "/rpc/v2/stage/", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			build := make(chan int64, 1)
			var calls atomic.Int32
			s.OnCall = func(r *http.Request) {
				if r.Method == point.method && strings.Contains(r.URL.Path, point.path) && calls.Add(1) == point.n {
					s.Cancel(<-build)
				}
			}
			start(t, s, 1, pipelines)
			id := s.Add(dronetest.Build{Type: "exec", Config: config})
			build <- id
			got := wait(t, s, id)
			next := wait(t, s, s.Add(dronetest.Build{Type: "exec", Config: execPipeline("- {name: a, commands: [echo]}\n")}))
			assert.Equal(t, "success", next.Status, "the slot is free")
			assert.Equal(t, withoutLogs(got), withoutLogs(s.Stages(id)[0]), "the delegate changes nothing after the cancellation")
			assert.Contains(t, []string{"killed", "skipped"}, got.Status)
			assert.Zero(t, got.Ends)
			for _, step := range got.Steps {
				assert.Contains(t, []string{"killed", "skipped", "success"}, step.Status, name)
				assert.LessOrEqual(t, step.Ends, 1)
			}
		})
	}
}

// withoutLogs returns a stage without the logs of its steps, which may arrive late.
func withoutLogs(st dronetest.Stage) dronetest.Stage {
	for i := range st.Steps {
		st.Steps[i].Log, st.Steps[i].Live = nil, nil
	}
	return st
}
