// Package api is a client of the manager's HTTP API: stages, single tasks, delegates, limits and schedules, the runs of
// pipelines with their triggers, and logs. It links neither the manager nor a database.
//
//	c, err := api.New(api.Config{URL: "https://manager.example.com", Account: "acme", Token: token})
//	stage, err := c.SubmitStage(ctx, api.StageRequest{Steps: []api.StepRequest{{
//		ID: "test", Data: json.RawMessage(`{"run":{"entrypoint":["sh","-ec"],"commands":["make test"]}}`),
//	}}})
//	stage, err = c.WaitStage(ctx, stage.ID)
//	for line, err := range c.FollowLog(ctx, stage.Steps[0].LogKey, 0) {
//		...
//	}
//
// The types have the members of the wire format. The manager and the pipeline service use the same types, in Go and on the
// wire. [OpenAPI] is its description, which a manager serves as
// GET /api/openapi.json.
//
// # Errors and repeated calls
//
// A call that the manager refuses fails with an [Error]. A call whose answer is lost, or that the manager cannot execute
// now, is repeated if that is safe: reads, changes that mean the same twice, and submissions, which always have an id.
// The documentation of a method says so if it repeats nothing. Calls are repeated for [Config.RetryFor].
//
// Lists, feeds and logs are iterators. Those that follow something connect again after a lost connection, and continue
// where they were.
//
// Start reading at client.go.
package api
