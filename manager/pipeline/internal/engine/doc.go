// Package engine is the state machine of a run: it takes an event and returns the nodes that
// changed and the commands that follow. It does no I/O, reads no clock and starts no goroutine.
//
//	machine, err := engine.New(pipeline)
//	state, commands, err := machine.Start(engine.Run{ID: "r1", Account: "acme", StartedAt: now})
//	changed, commands, err := machine.Apply(state, engine.Event{
//		Kind: engine.StageOpened, Node: "pipeline.stages.build", Attempt: 1, Time: now,
//	})
//
// A caller that saves the changed nodes and the commands in one transaction can stop at any
// instant, and any other process can continue. An event that has been applied, or that belongs
// to an earlier attempt of its node, changes nothing.
//
// Start reading at state.go, then event.go, command.go and turn.go.
package engine
