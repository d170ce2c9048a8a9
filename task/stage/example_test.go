package stage_test

import (
	"encoding/json"
	"fmt"

	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// The tasks of a stage share the id of their transaction.
func Example() {
	for _, t := range []struct {
		taskType string
		data     any
	}{
		{task.TypeLocalInit, stage.InitRequest{GroupID: "build-7"}},
		{task.TypeLocalExecute, stage.ExecuteRequest{GroupID: "build-7", Step: stage.Step{
			ID: "test", Run: stage.Run{Entrypoint: []string{"sh", "-ec"}, Command: []string{"make test"}},
			Environment: map[string]string{},
		}}},
		{task.TypeLocalCleanup, stage.CleanupRequest{GroupID: "build-7"}},
	} {
		data, err := json.Marshal(t.data)
		fmt.Println(t.taskType, string(data), err)
	}
	// Output:
	// local_init {"group_id":"build-7","network":{}} <nil>
	// local_execute {"id":"test","run":{"entrypoint":["sh","-ec"],"commands":["make test"]},"environment":{},"group_id":"build-7"} <nil>
	// local_cleanup {"group_id":"build-7"} <nil>
}
