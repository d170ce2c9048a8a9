package manager_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// A stage waits until a suitable delegate is registered.
func ExampleManager_SubmitStage() {
	m, err := manager.New(manager.Config{Accounts: map[string]string{"account": "00000000000000000000000000000001"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = m.Close() }()
	server := httptest.NewServer(m) // delegates connect to server.URL
	defer server.Close()

	step, _ := json.Marshal(stage.ExecuteRequest{Step: stage.Step{
		Run: stage.Run{Entrypoint: []string{"sh", "-c"}, Command: []string{"make test"}},
	}})
	ctx := context.Background()
	s, err := m.SubmitStage(ctx, "account", api.StageRequest{
		ID: "build-1", Selectors: []string{"linux"}, Priority: "HIGH",
		Steps: []api.StepRequest{{ID: "test", Data: step}},
	})
	fmt.Println(s.ID, s.Status, s.Place, s.Reason, err)

	s, _ = m.AbortStage(ctx, "account", "build-1")
	fmt.Println(s.Status, s.Steps[0].Status)
	// Output:
	// build-1 QUEUED 1 no delegate is registered: start one <nil>
	// ABORTED SKIPPED
}

// A single task needs no stage.
func ExampleManager_SubmitTask() {
	m, err := manager.New(manager.Config{Accounts: map[string]string{"account": "00000000000000000000000000000001"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = m.Close() }()

	t, err := m.SubmitTask(context.Background(), "account", manager.TaskRequest{
		Task: task.Task{ID: "t1", Type: "greet", Data: json.RawMessage(`{"name":"world"}`), Timeout: 5000},
	})
	fmt.Println(t.ID, t.Status, t.Reason, err)
	// Output: t1 QUEUED no delegate is registered: start one <nil>
}
