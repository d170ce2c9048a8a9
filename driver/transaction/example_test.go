//go:build unix

package transaction_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/delegate-io/dlite/driver/local"
	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
	"github.com/delegate-io/dlite/task/stage"
)

// A stage is an init, steps and a cleanup. A poller sends such tasks to the
// router; here they are sent by hand.
func Example() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	d, err := local.New(local.Config{Host: host.Config{WorkDir: dir + "/work"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = d.Close() }()
	slots := capacity.NewSlots(1)
	stages := transaction.New(d, transaction.WithLedger(dir+"/ledger"), transaction.WithSlots(slots))
	ctx := context.Background()
	if err := stages.Recover(ctx); err != nil {
		fmt.Println(err)
		return
	}
	routes := router.New(stages.Routes())
	send := func(typ string, payload any) *task.Response {
		data, _ := json.Marshal(payload)
		r, _ := task.Serve(ctx, routes, &task.Task{ID: typ, Type: typ, Data: data})
		return r
	}

	send("CI_DOCKER_INITIALIZE_TASK", stage.InitRequest{Network: stage.Network{ID: "build-1"}})
	fmt.Println("open:", stages.Open())
	step := send("CI_DOCKER_EXECUTE_TASK", stage.ExecuteRequest{GroupID: "build-1", Step: stage.Step{
		ID:  "greet",
		Run: stage.Run{Entrypoint: []string{"sh", "-ec"}, Command: []string{`echo "GREETING=hello" >> "$DRONE_OUTPUT"`}},
	}})
	var result stage.ExecuteResponse
	if err := json.Unmarshal(step.Data, &result); err != nil {
		fmt.Println(err)
	}
	fmt.Println(step.Code, result.Status, result.OutputVars["GREETING"])
	end := send("CI_DOCKER_CLEANUP_TASK", stage.CleanupRequest{Network: "build-1"})
	fmt.Println(end.Code, "open:", stages.Open())
	fmt.Println(stages.Close(ctx))
	// Output:
	// open: 1
	// OK SUCCESS hello
	// OK open: 0
	// <nil>
}
