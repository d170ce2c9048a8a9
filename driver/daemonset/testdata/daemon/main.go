// Command daemon is a daemon for tests in containers.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/delegate-io/dlite/driver/daemonset"
)

type printer struct{}

func (printer) Configure(_ context.Context, settings json.RawMessage) error {
	fmt.Printf("settings %s\n", settings)
	return nil
}

func (printer) Assign(_ context.Context, tasks []daemonset.Task) error {
	for _, t := range tasks {
		fmt.Printf("assign %s %s\n", t.ID, t.Params.Data)
	}
	return nil
}

func (printer) Remove(_ context.Context, ids []string) error {
	fmt.Printf("remove %v\n", ids)
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	fmt.Printf("greeting %s\n", os.Getenv("GREETING"))
	if err := daemonset.Serve(ctx, printer{}); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("stopped")
}
