package capacity_test

import (
	"context"
	"fmt"

	"github.com/delegate-io/dlite/task/capacity"
)

// The poller takes a slot before it acquires an init task, and drops it after the
// task. The transaction that the init opened keeps the slot until its cleanup.
func ExampleSlots() {
	slots := capacity.NewSlots(1)

	slot, _ := slots.Take() // poller
	slot.Keep()             // transaction
	slot.Drop()             // poller: the init task has ended
	_, free := slots.Take()
	fmt.Println(slots.Used(), "of", slots.Max(), "used, free:", free)

	slot.Release() // transaction: its cleanup is done
	_, free = slots.Take()
	fmt.Println("free:", free)
	// Output:
	// 1 of 1 used, free: false
	// free: true
}

func ExampleThresholds() {
	limits := &capacity.Thresholds{
		CPU: 80,
		Measure: func(context.Context) (capacity.Load, error) {
			return capacity.Load{CPU: 97.3, Memory: 40}, nil
		},
	}
	fmt.Println(limits.Exceeded(context.Background()))
	// Output: CPU is at 97 %, the threshold is 80 % <nil>
}

func ExampleParseMaxStages() {
	for _, s := range []string{"", "4", "many"} {
		fmt.Println(capacity.ParseMaxStages(s))
	}
	// Output:
	// 0 <nil>
	// 4 <nil>
	// 0 MAX_STAGES is "many": it must be a positive integer, or unset for no limit
}
