package queue_test

import (
	"fmt"

	"github.com/delegate-io/dlite/manager/internal/queue"
	"github.com/delegate-io/dlite/task"
)

// The life of a stage: it waits, is offered, acquired, answered and released.
func ExampleQueue() {
	q := queue.New(queue.Config{})
	init := &task.Task{ID: "t1", Type: "local_init"}
	_ = q.Submit("account", &queue.Work{
		ID: "build", Stage: true, Selectors: []string{"macos"},
		Variants: []queue.Variant{{Types: []string{"local_init"}, Task: init}},
	})
	p, _ := q.Place("account", "build")
	fmt.Println(p.Number, p.Reason)

	d := q.Register("account", queue.Registration{Name: "mac-1", Tags: []string{"macOS"}})
	list, _ := q.List("account", d, "")
	fmt.Println(list.Events[0].TaskID, list.Events[0].TaskType)

	t, _ := q.Acquire("account", d, "t1")
	_ = q.Complete("account", d, t.ID, queue.Answer{Outcome: queue.Success, Code: task.OK})
	fmt.Println(q.Delegates("account")[0].Stages)
	_ = q.Release("account", "build")
	fmt.Println(q.Delegates("account")[0].Stages)
	// Output:
	// 1 no delegate is registered: start one
	// t1 local_init
	// 1
	// 0
}
