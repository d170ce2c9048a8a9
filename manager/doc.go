// Package manager is the server that delegates work for: it hands out stages and
// single tasks by capacity, selectors and task types, sequences the steps of a
// stage and keeps what came of them, in memory.
//
//	m, err := manager.New(manager.Config{Accounts: map[string]string{"account": secret}})
//	defer m.Close()
//	go http.ListenAndServe("localhost:8080", m)
//
//	s, err := m.SubmitStage(ctx, "account", manager.StageRequest{
//		Steps: []manager.StepRequest{{ID: "hello", Data: step}},
//	})
//	s, err = m.WaitStage(ctx, "account", s.ID)
//
// # Delegates
//
// A [Manager] is an http.Handler that speaks both delegate protocols (PROTOCOL 1
// and 2) to clients of any origin. A poll may carry wait=<seconds>, at most 60:
// it is then held until there is something new for the delegate, and answered
// with the header Dlite-Cursor, whose value goes into the next poll's
// since=<cursor>. Both lists carry abortedTaskIds, the tasks that the delegate
// has acquired and is to stop.
//
// # Submitting and watching
//
// The same tokens open the API for whoever submits work, with the header
// "Authorization: Bearer <token>" or "Delegate <token>". Every call carries
// ?accountId=A. Times are RFC 3339, durations milliseconds.
//
//	POST /api/stages             StageRequest -> 202 Stage; 200 when it was there already
//	GET  /api/stages             -> {"stages":[Stage]}, oldest first
//	GET  /api/stages/{id}        -> Stage; wait=<seconds> waits until it has ended
//	POST /api/stages/{id}/abort  -> Stage
//	POST /api/tasks              TaskRequest -> 202 Task; with "sync":true 200 at its end
//	GET  /api/tasks/{id}         -> Task; wait=<seconds> waits until it has ended
//	POST /api/tasks/{id}/abort   -> Task
//	GET  /api/delegates          -> {"delegates":[Delegate]}
//
// Errors are {"error_msg":"..."}: 400 what was sent makes no sense, 401 and 403
// the token does not fit, 404 unknown or forgotten, 409 the id is taken by
// something else, 413 too large.
//
// A stage:
//
//	{"id":"build-1",                     // made up when absent
//	 "name":"build",
//	 "selectors":["macos"],              // all must be tags or names of the delegate
//	 "priority":"HIGH",                  // or NORMAL, the default
//	 "infra":"local",                    // the default
//	 "timeout_ms":3600000,               // from its start; absent is no bound
//	 "queue_timeout_ms":600000,          // until a delegate has taken it
//	 "init":{},                          // stage.InitRequest
//	 "steps":[{"id":"test","timeout_ms":60000,
//	           "run_on":"success",       // or failure, always
//	           "data":{"run":{"entrypoint":["sh","-c"],"commands":["make test"]}}}],
//	 "cleanup":{}}                       // stage.CleanupRequest
//
// The manager fills in the ids that tie the three kinds of payload together
// where they are absent: network and group_id. It changes nothing else in them.
//
// [Stage], [StepState], [Task] and [Delegate] document the answers.
//
// Start reading at manager.go; what comes after what in a stage is in
// sequence.go, who gets what in package queue.
package manager
