package secrets_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/delegate-io/dlite/router"
	routersecrets "github.com/delegate-io/dlite/router/secrets"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
)

func greet(_ context.Context, req *task.Request[string]) (string, error) {
	return "hello " + req.Data, nil
}

// A task's secrets are resolved before its handler runs.
func ExampleResolve() {
	r := router.New(router.RouteMap{
		"greet": task.HandlerFunc(greet),
		"fail": task.HandlerFunc(func(_ context.Context, req *task.Request[string]) (string, error) {
			return "", fmt.Errorf("cannot log in as %s", req.Data)
		}),
	}, router.WithMiddleware(routersecrets.Resolve(secrets.ResolverConfig{})))

	for _, typ := range []string{"greet", "fail"} {
		resp, _ := task.Serve(context.Background(), r, &task.Task{
			ID: "1", Type: typ, Data: json.RawMessage(`"${{secrets.user}}"`),
			Secrets: []*task.Task{{
				ID: "user", Type: task.TypeSecretStatic, Data: json.RawMessage(`{"secrets":[{"value":"not-a-real-user"}]}`),
			}},
		})
		fmt.Println(resp.Code, cmp.Or(resp.Error, string(resp.Data)))
	}
	// Output:
	// OK "hello not-a-real-user"
	// FAILED cannot log in as ******
}
