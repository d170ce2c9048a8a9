package poller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/client/clienttest"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
)

// A delegate with an additional task type, against a manager for tests.
func Example() {
	srv := clienttest.NewServer()
	defer srv.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	hello := task.HandlerFunc(func(_ context.Context, r *task.Request[string]) (string, error) {
		return "hello " + r.Data, nil
	})
	c, err := client.New(srv.URL, srv.Account, srv.Secret)
	if err != nil {
		panic(err)
	}
	p := poller.New(c, router.New(router.RouteMap{"hello": hello}), poller.WithName("build-7"), poller.WithTags("linux"))
	info, err := p.Register(ctx)
	if err != nil {
		panic(err)
	}
	over := make(chan error, 1)
	go func() { over <- p.Poll(ctx, 16, info.ID, time.Second) }()

	answer, err := srv.Submit(&task.Task{Type: "hello", Data: json.RawMessage(`"world"`)}).Wait(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println(answer.Code, string(answer.Data))

	err = p.Shutdown(ctx) // finishes running tasks
	fmt.Println(err, <-over)
	// Output:
	// OK "hello world"
	// <nil> <nil>
}

// At most two stages run at once, none while the CPU is above 80 %, and tasks of
// other accounts are refused.
func ExampleNew() {
	c, err := client.New("https://manager.example", "acct", "00000000000000000000000000000000")
	if err != nil {
		panic(err)
	}
	p := poller.New(c, router.New(nil),
		poller.WithSlots(capacity.NewSlots(2)),
		poller.WithThresholds(&capacity.Thresholds{CPU: 80}),
		poller.WithFilter(func(e task.Event) error {
			if e.Account != "acct" {
				return fmt.Errorf("this delegate does not serve account %s", e.Account)
			}
			return nil
		}),
		poller.WithGrace(10*time.Minute))
	fmt.Println(p.Stats().Acquired)
	// Output: 0
}
