//go:build unix

package local_test

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local"
	"github.com/delegate-io/dlite/task/stage"
)

// records is a ledger in memory. A real ledger is on disk, so that a cleanup is possible after a
// crash.
type records struct {
	mu   sync.Mutex
	list []driver.Resource
}

func (l *records) Record(_ context.Context, r driver.Resource) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, r)
	return nil
}

// A transaction with one host step, without the handlers around it.
func ExampleDriver() {
	ctx := context.Background()
	d, err := local.New(local.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = d.Close() }()

	env, ledger := &driver.Environment{ID: "stage-1"}, &records{}
	if err := d.Init(ctx, env, ledger); err != nil {
		fmt.Println(err)
	}
	step := &driver.Step{Step: stage.Step{
		ID:  "greet",
		Run: stage.Run{Entrypoint: []string{"sh", "-c"}, Command: []string{"echo hello; echo NAME=world >> $DRONE_OUTPUT"}},
	}}
	res, err := d.Execute(ctx, env, step, os.Stdout, ledger)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.ExitCode, res.Outputs["NAME"])
	res.End()

	left, err := d.Cleanup(ctx, ledger.list)
	fmt.Println(len(left), err)
	// Output:
	// hello
	// 0 world
	// 0 <nil>
}
