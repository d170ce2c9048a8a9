// Package stage holds the payloads of the tasks that make up a stage: init,
// execute and cleanup (PROTOCOL 3), which use the types of the agent API
// (PROTOCOL 5). One set of types serves the manager that sends them, the
// transaction that handles them and every driver that runs them.
//
//	data, err := json.Marshal(stage.ExecuteRequest{Step: stage.Step{
//		ID:  "test",
//		Run: stage.Run{Entrypoint: []string{"sh", "-ec"}, Command: []string{"make test"}},
//	}})
//
// Start reading at [InitRequest], [Step] and [CleanupRequest].
package stage
