// Package machine is a manager, its log service, the pipeline service and a delegate in one
// process. They talk over HTTP on the loopback interface, as they would across a network.
//
// Run is the whole life of a machine for one run:
//
//	run, err := machine.Run(ctx, machine.Config{}, api.RunRequest{YAML: text}, machine.NewTerminal(os.Stdout), signals)
//
// Its parts:
//
//	m, err := machine.Start(ctx, machine.Config{Dir: dir})
//	defer m.Close(ctx)
//	run, err := m.Pipelines.Start(ctx, machine.Account, api.RunRequest{YAML: text})
//	run, err = m.Follow(ctx, run.ID, machine.NewTerminal(os.Stdout))
//
// Start reading at machine.go.
package machine
