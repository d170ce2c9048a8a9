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
)

// A handler is tested as it will run: in a delegate, behind a manager.
func Example() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	srv := clienttest.NewServer()
	defer srv.Close()

	c, _ := client.New(srv.URL, srv.Account, srv.Secret)
	p := poller.New(c, router.New(router.RouteMap{"greet": task.HandlerFunc(greet)}))
	info, _ := p.Register(ctx)
	polling := make(chan error)
	go func() { polling <- p.Poll(ctx, 2, info.ID, time.Second) }()

	resp, err := srv.Submit(&task.Task{Type: "greet", Data: json.RawMessage(`"world"`)}).Wait(ctx)
	fmt.Println(resp.Code, string(resp.Data), err)

	stop()
	fmt.Println(<-polling)
	// Output:
	// OK "hello world" <nil>
	// <nil>
}

func greet(_ context.Context, req *task.Request[string]) (string, error) {
	return "hello " + req.Data, nil
}
