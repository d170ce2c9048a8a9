package router_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"

	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
	"github.com/rs/zerolog"
)

func greet(_ context.Context, req *task.Request[string]) (string, error) {
	return "hello " + req.Data, nil
}

func Example() {
	r := router.New(router.RouteMap{
		"greet": task.HandlerFunc(greet),
	}, router.WithMiddleware(router.Recover(zerolog.New(os.Stderr))))

	resp, _ := task.Serve(context.Background(), r, &task.Task{
		ID: "1", Type: "greet", Data: json.RawMessage(`"world"`),
	})
	fmt.Println(resp.Code, string(resp.Data))
	// Output: OK "hello world"
}

// A task type without a route fails with a reason, unless there is a fallback.
func ExampleWithNotFound() {
	fallback := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t, _ := task.Decode(r, nil)
		task.WriteJSON(w, "another program runs "+t.Type, http.StatusOK)
	})
	for _, r := range []*router.Router{
		router.New(router.RouteMap{"greet": task.HandlerFunc(greet)}),
		router.New(router.RouteMap{"greet": task.HandlerFunc(greet)}, router.WithNotFound(fallback)),
	} {
		resp, _ := task.Serve(context.Background(), r, &task.Task{ID: "1", Type: "deploy"})
		fmt.Printf("%s %s\n", resp.Code, cmp.Or(resp.Error, string(resp.Data)))
	}
	// Output:
	// FAILED this delegate has no route for task type "deploy"; it has ["greet"]
	// OK "another program runs deploy"
}

func ExampleRecover() {
	r := router.New(router.RouteMap{
		"broken": http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("no disk") }),
	}, router.WithMiddleware(router.Recover(zerolog.Nop())))

	resp, _ := task.Serve(context.Background(), r, &task.Task{ID: "1", Type: "broken"})
	fmt.Println(resp.Code, resp.Error)
	// Output: FAILED the handler panicked: no disk
}

func ExampleDeadline() {
	r := router.New(router.RouteMap{
		"slow": task.HandlerFunc(func(ctx context.Context, _ *task.Request[any]) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}),
	}, router.WithMiddleware(router.Deadline(0)))

	resp, _ := task.Serve(context.Background(), r, &task.Task{ID: "1", Type: "slow", Timeout: 10})
	fmt.Println(resp.Code, resp.Error)
	// Output: TIMEOUT context deadline exceeded
}

func ExampleLog() {
	r := router.New(router.RouteMap{
		"greet": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			zerolog.Ctx(r.Context()).Info().Msg("greeting")
			task.WriteJSON(w, "hello", http.StatusOK)
		}),
	}, router.WithMiddleware(router.Log(zerolog.New(os.Stdout).Level(zerolog.InfoLevel).Hook(onlyGreeting{}))))

	_, _ = task.Serve(context.Background(), r, &task.Task{ID: "1", Type: "greet"})
	// Output: {"level":"info","task":"1","task_type":"greet","kind":"standalone","message":"greeting"}
}

// onlyGreeting drops the events of the middleware, which have a duration.
type onlyGreeting struct{}

func (onlyGreeting) Run(e *zerolog.Event, _ zerolog.Level, msg string) {
	if msg != "greeting" {
		e.Discard()
	}
}

func ExampleMetrics() {
	r := router.New(router.RouteMap{
		"greet": task.HandlerFunc(greet),
	}, router.WithMiddleware(router.Metrics(func(o router.Observation) {
		fmt.Println(o.Type, o.Kind, o.Code, o.Status)
	})))

	_, _ = task.Serve(context.Background(), r, &task.Task{ID: "1", Type: "greet", Data: json.RawMessage(`5`)})
	// Output: greet standalone FAILED 400
}

// The supplied middleware in the right order: a panic is answered.
func ExampleStandard() {
	r := router.New(router.RouteMap{
		"broken": http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("no disk") }),
	}, router.Standard(zerolog.Nop()))

	resp, _ := task.Serve(context.Background(), r, &task.Task{ID: "1", Type: "broken"})
	fmt.Println(resp.Code, resp.Error)
	// Output: FAILED the handler panicked: no disk
}
