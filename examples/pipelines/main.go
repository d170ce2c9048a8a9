// Command pipelines checks and runs pipelines on this machine, and serves them beside managers.
//
//	go run ./examples/pipelines lint .harness/build.yaml
//	go run ./examples/pipelines explain .harness/build.yaml --branch main --output version.TAG=1.2
//	go run ./examples/pipelines run .harness/build.yaml --input pipeline.variables.tag=1.2
//	go run ./examples/pipelines schema > pipeline.schema.json
//	go run ./examples/pipelines server --env-file pipelines.env
//
// run needs no server: a manager, a log service, the pipeline service and a delegate run in this process. Steps
// run on this machine, and steps with an image in a container of the Docker engine.
//
// server is the pipeline service alone: several share a PostgreSQL and call the managers by their API
// (docs/running-pipelines.md).
//
// The exit code of run is 0 if the run succeeded, 1 if it did not, and 2 if it could not start. That of explain is
// the same for the run that it describes. That of lint is 0 without errors, 1 with errors, and 2 for wrong arguments.
package main

import (
	"context"

	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/examples/internal/program"
	"github.com/delegate-io/dlite/examples/internal/storage"
)

func main() {
	host.Supervise()
	program.Run(context.Background(), "pipelines", "Checks, explains, runs and serves pipelines.",
		newRunCommand(), newLintCommand(), newExplainCommand(), newSchemaCommand(), newServerCommand(), storage.Command())
}
