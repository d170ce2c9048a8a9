package clienttest_test

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
	"github.com/delegate-io/dlite/task/stage"
)

// runDelegate runs a delegate until stop is called.
func runDelegate(ctx context.Context, srv *clienttest.Server, routes router.RouteMap) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	c, _ := client.New(srv.URL, srv.Account, srv.Secret)
	done := make(chan error)
	go func() { done <- poller.New(c, router.New(routes)).Run(ctx, 2) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			fmt.Println(err)
		}
		c.CloseIdleConnections()
	}
}

// A test runs a handler in a delegate that is connected to a manager.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	srv := clienttest.NewServer()
	defer srv.Close()
	greet := func(_ context.Context, req *task.Request[string]) (string, error) { return "hello " + req.Data, nil }
	stop := runDelegate(ctx, srv, router.RouteMap{"greet": task.HandlerFunc(greet)})
	defer stop()

	resp, err := srv.Submit(&task.Task{Type: "greet", Data: json.RawMessage(`"world"`)}).Wait(ctx)
	fmt.Println(resp.Code, string(resp.Data), err)
	// Output: OK "hello world" <nil>
}

// A test runs a whole stage and reads its outputs. A real runner takes its handlers
// from the package driver/transaction.
func ExampleServer_RunStage() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	srv := clienttest.NewServer()
	defer srv.Close()
	stop := runDelegate(ctx, srv, router.RouteMap{
		task.TypeDockerInit: task.HandlerFunc(func(context.Context, *task.Request[stage.InitRequest]) (stage.InitResponse, error) {
			return stage.InitResponse{Status: stage.Success}, nil
		}),
		task.TypeDockerExecute: task.HandlerFunc(func(_ context.Context, req *task.Request[stage.ExecuteRequest]) (stage.ExecuteResponse, error) {
			return stage.ExecuteResponse{Status: stage.Success, OutputVars: map[string]string{"ran": req.Data.Run.Command[0]}}, nil
		}),
		task.TypeDockerCleanup: task.HandlerFunc(func(context.Context, *task.Request[stage.CleanupRequest]) (stage.CleanupResponse, error) {
			return stage.CleanupResponse{Status: stage.Success}, nil
		}),
	})
	defer stop()

	result, err := srv.RunStage(ctx, clienttest.Stage{Steps: []stage.Step{
		{ID: "test", Run: stage.Run{Command: []string{"make test"}}},
	}})
	fmt.Println(result.Status(), result.Steps["test"].OutputVars["ran"], err)
	// Output: SUCCESS make test <nil>
}
