// Package machine is a manager, its log service, the pipeline service and a delegate in one
// process. They talk over HTTP on the loopback interface, as they would across a network.
//
//	m, err := machine.Start(ctx, machine.Config{Dir: dir})
//	defer m.Close(ctx)
//	run, err := m.Pipelines.Start(ctx, machine.Account, pipeline.Request{YAML: text})
//	run, err = m.Follow(ctx, run.ID, os.Stdout)
//
// Start reading at machine.go.
package machine
