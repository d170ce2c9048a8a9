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
)

// A handler of perpetual tasks that counts its runs, and a test of it.
func ExampleWithPerpetual() {
	count := func(_ context.Context, run *task.PerpetualRun) (*task.PerpetualResult, error) {
		n := 0
		if len(run.State) > 0 { // empty in the first run
			if err := json.Unmarshal(run.State, &n); err != nil {
				return nil, err
			}
		}
		state, err := json.Marshal(n + 1)
		return &task.PerpetualResult{State: state, Events: []json.RawMessage{state}}, err
	}
	srv := clienttest.NewServer()
	defer srv.Close()
	c, err := client.New(srv.URL, srv.Account, srv.Secret)
	if err != nil {
		panic(err)
	}
	p := poller.New(c, router.New(nil), poller.WithPerpetual("count", task.PerpetualFunc(count)))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	over := make(chan error, 1)
	go func() { over <- p.Run(ctx, 1) }()

	result, err := srv.RunPerpetual(ctx, "count", nil, json.RawMessage(`41`))
	fmt.Println(string(result.State), err)
	fmt.Println(p.Shutdown(ctx), <-over)
	// Output:
	// 42 <nil>
	// <nil> <nil>
}
