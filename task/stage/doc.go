// Package stage defines the payloads of the tasks of a stage: init, execute and
// cleanup (docs/protocol.md 3). They share the types of the agent API
// (docs/protocol.md 5). The manager sends them, the transaction handles them, and
// the drivers run them.
//
//	data, err := json.Marshal(stage.ExecuteRequest{Step: stage.Step{
//		ID:  "test",
//		Run: stage.Run{Entrypoint: []string{"sh", "-ec"}, Command: []string{"make test"}},
//	}})
//
// Start reading at [InitRequest], [Step] and [CleanupRequest].
package stage
