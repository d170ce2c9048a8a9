// Package manager is the server that delegates work for: it hands out stages and
// single tasks by capacity, selectors and task types, sequences the steps of a
// stage and keeps what came of them: in memory, or in a [Config.Store], from which
// it goes on where it was, whatever ended it. Managers on one Redis are one
// manager, behind any load balancer.
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
//	POST /api/stages                  StageRequest -> 202 Stage; 200 when it was there already
//	GET  /api/stages                  -> {"stages":[Stage]}, oldest first
//	GET  /api/stages/{id}             -> Stage; wait=<seconds> waits until it has ended
//	POST /api/stages/{id}/abort       -> Stage
//	POST /api/tasks                   TaskRequest -> 202 Task; with "sync":true 200 at its end
//	GET  /api/tasks/{id}              -> Task; wait=<seconds> waits until it has ended
//	POST /api/tasks/{id}/abort        -> Task
//	GET  /api/events                  server-sent events, see below
//	GET  /api/delegates               -> {"delegates":[Delegate]}
//	POST /api/delegates/{id}/drain    no new work for it, whatever it says of itself
//	POST /api/delegates/{id}/resume
//	POST /api/pause                   nothing of the account is given to delegates; submissions wait
//	POST /api/resume
//	GET  /api/limits                  -> {"limits":[Limit]}
//	PUT  /api/limits                  Limit; a max of 0 removes it
//	GET  /api/schedules               -> {"schedules":[Schedule]}
//	PUT  /api/schedules/{id}          Schedule -> Schedule
//	GET  /api/schedules/{id}          -> Schedule
//	DELETE /api/schedules/{id}
//	POST /api/schedules/{id}/trigger  -> 202 {"id": that of the stage or task}
//
// Errors are {"error_msg":"..."}: 400 what was sent makes no sense, 401 and 403
// the token does not fit, 404 unknown or forgotten, 409 the id is taken by
// something else, 413 too large, 503 (with Retry-After) the store does not answer or
// the manager is closing. What ends with 503 may have happened: submit again under
// the same id.
//
// A stage:
//
//	{"id":"build-1",                     // made up when absent
//	 "name":"build",
//	 "selectors":["macos"],              // all must be tags or names of the delegate
//	 "priority":"HIGH",                  // or NORMAL, the default
//	 "infra":"local",                    // the default; or vm, kubernetes
//	 "timeout_ms":3600000,               // from its start; absent is no bound
//	 "queue_timeout_ms":600000,          // until a delegate has taken it
//	 "init_timeout_ms":60000,
//	 "pipeline":"web",                   // for limits: pipeline:web,
//	 "labels":{"env":"prod"},            // and label:env=prod
//	 "retry":{"max_attempts":3,"on":["lost"],"backoff_ms":1000},
//	 "init":{},                          // stage.InitRequest
//	 "steps":[{"id":"test","timeout_ms":60000,
//	           "run_on":"success",       // or failure, always
//	           "data":{"run":{"entrypoint":["sh","-c"],"commands":["make test"]}}}],
//	 "cleanup":{}}                       // stage.CleanupRequest
//
// The manager fills in the ids that tie the three kinds of payload together
// where they are absent: network and group_id. It announces steps with an image to
// the init (stage.InitRequest, steps), unless the init has a list of its own or the
// step an expression. It changes nothing else in them.
//
// [Stage], [StepState], [Task], [Delegate], [Limit] and [Schedule] document the
// answers.
//
// # Events
//
// GET /api/events streams an account's [Event]s, or with stage=<id> those of one
// stage: all that follow, or with since=<id>, or the header Last-Event-ID, those
// after an event, on whichever manager. The kinds: "status", something has another
// status; "place", without an id, where a stage waits, at most once a second;
// "missed", some events are not kept any more: read the state again.
//
// # What becomes of leases, answers and stages
//
//	what happens                                    what becomes of it
//	an offer is not acquired in time                the stage goes back to its place, another delegate is preferred
//	an acquire's answer is lost                     the same delegate gets the same task again
//	another delegate acquires it                    204, it is not there
//	an answer comes twice, or late                  it is accepted and changes nothing
//	an answer comes from a delegate that never had it   409
//	a delegate is lost (HeartbeatTimeout)           its stages end with FAILURE, or are run again as [Retry] says; a cleanup waits for its return
//	a lost delegate comes back                      its poll lists as aborted what it is to stop, and the cleanups; what it has of other stages it keeps
//	no manager was running, or none reached the store   delegates get a fresh time ([Config.Gap]): nothing is lost for that alone
//	a manager ends, at any moment                   what it had answered is in the store; calls without an answer may be made again
//
// # The store
//
// All that can happen is a command (command.go), carried out by the core in the
// order of the store's log: package journal says how. So each is done wholly or
// not at all, and all managers of a store decide the same without asking each
// other.
//
// Start reading at manager.go and core.go; what comes after what in a stage is in
// sequence.go, who gets what in package queue.
package manager
