// Package manager is the server side of delegates. It assigns stages and single
// tasks to delegates by capacity, selectors and task types. It runs the steps of a
// stage in order and keeps their results. The state is in memory or in a
// [Config.Store].
// With a store, a restarted manager continues where the previous one ended. Several
// managers on one Redis act as one manager, behind any load balancer.
//
//	m, err := manager.New(manager.Config{Accounts: map[string]string{"account": secret}})
//	defer m.Close()
//	go http.ListenAndServe("localhost:8080", m)
//
//	s, err := m.SubmitStage(ctx, "account", api.StageRequest{
//		Steps: []api.StepRequest{{ID: "hello", Data: step}},
//	})
//	s, err = m.WaitStage(ctx, "account", s.ID)
//
// # Delegates
//
// A [Manager] is an http.Handler that serves both delegate protocols
// (docs/protocol.md, sections 1 and 2). A poll may carry wait=<seconds>, at most 60.
// The manager then holds the poll until there is something new for the delegate. The
// answer has the header Dlite-Cursor, whose value goes into since=<cursor> of the
// next poll. Both task lists contain abortedTaskIds: acquired tasks that the
// delegate must stop.
//
// # API
//
// Submitters use the same tokens as delegates, in the header
// "Authorization: Bearer <token>" or "Delegate <token>". Every call carries
// ?accountId=A. Times are RFC 3339, durations are milliseconds.
//
//	POST /api/stages                  StageRequest -> 202 Stage; 200 if the stage existed
//	GET  /api/stages                  -> {"stages":[Stage],"next":"..."}, oldest first, see below
//	GET  /api/ended-stages            -> EndedStages in the order of their ends; after=<next>, limit
//	GET  /api/stages/{id}             -> Stage; wait=<seconds> waits for its end
//	POST /api/stages/{id}/abort       -> Stage
//	POST /api/stages/{id}/steps       {"steps":[StepRequest]} -> 202 Stage; 200 if it had them all
//	POST /api/stages/{id}/renew       -> Stage; see [api.Hold]
//	POST /api/stages/{id}/finish      -> Stage
//	GET  /api/stages/{id}/steps/{step}         -> StepState
//	POST /api/stages/{id}/steps/{step}/abort   -> Stage
//	POST /api/tasks                   TaskRequest -> 202 Task; with "sync":true 200 at its end
//	GET  /api/tasks/{id}              -> Task; wait=<seconds> waits for its end
//	POST /api/tasks/{id}/abort        -> Task
//	GET  /api/events                  server-sent events, see below
//	GET  /api/openapi.json            the description of the API, without a token
//	GET  /api/delegates               -> {"delegates":[Delegate]}
//	POST /api/delegates/{id}/drain    give the delegate no new work
//	POST /api/delegates/{id}/resume
//	GET  /api/queue                   what waits and runs, by account, pipeline and label, and why
//	POST /api/abort                   {"stages":[id]} -> {"results":[{"id","status","error_msg"}]}, at most 1,000
//	POST /api/pause                   {"note":"..."} or nothing; assign no work of the account; submissions wait
//	POST /api/resume
//	GET  /api/limits                  -> {"limits":[Limit]}
//	PUT  /api/limits                  Limit; a max of 0 removes the limit
//	GET  /api/schedules               -> {"schedules":[Schedule]}
//	PUT  /api/schedules/{id}          Schedule -> Schedule
//	GET  /api/schedules/{id}          -> Schedule
//	DELETE /api/schedules/{id}
//	POST /api/schedules/{id}/trigger  -> 202 {"id": of the stage or task}
//	GET  /api/upgrade                 -> Upgrade; without one, its version is empty
//	PUT  /api/upgrade                 Upgrade -> Upgrade
//	DELETE /api/upgrade
//	GET  /api/connectors              -> {"connectors":[Connector]}
//	PUT  /api/connectors/{id}         Connector -> Connector
//	GET  /api/connectors/{id}         -> Connector
//	DELETE /api/connectors/{id}
//	POST /api/connectors/{id}/test    ConnectorTestRequest or nothing -> ConnectorTest
//
// GET /api/stages selects stages with status=QUEUED, pipeline=NAME and label=NAME=VALUE;
// label may be repeated. An answer has at most limit stages, by default 1,000, and fewer
// if they have many steps. If there are more, after=<next> of the answer continues.
// A query parameter that a call does not know is refused.
//
// Errors are {"error_msg":"..."}:
//
//	400       the request is invalid
//	401, 403  the token does not belong to the account, or permits only reads
//	404       the id is unknown or forgotten
//	409       something else has the id, or the stage is not open
//	413       the body is too large
//	429       the call would exceed a [Budget]; with Retry-After
//	503       the store does not answer, or the manager is closing; with Retry-After
//
// After a 503, the manager may have executed the call: submit again under the same
// id.
//
// A stage:
//
//	{"id":"build-1",                     // chosen by the manager if absent
//	 "name":"build",
//	 "selectors":["macos"],              // all must be tags or the name of the delegate
//	 "priority":"HIGH",                  // or NORMAL, the default
//	 "infra":"local",                    // the default; or vm, kubernetes
//	 "timeout_ms":3600000,               // from its start; absent is no bound
//	 "queue_timeout_ms":600000,          // until a delegate has acquired it
//	 "init_timeout_ms":60000,
//	 "pipeline":"web",                   // for limits: pipeline:web,
//	 "labels":{"env":"prod"},            // and label:env=prod
//	 "hold":{"lease_ms":60000},          // takes further steps; not with retry
//	 "retry":{"max_attempts":3,"on":["lost"],"backoff_ms":1000},
//	 "init":{},                          // stage.InitRequest
//	 "steps":[{"id":"test","timeout_ms":60000,
//	           "run_on":"success",       // or failure, always
//	           "data":{"run":{"entrypoint":["sh","-c"],"commands":["make test"]}}}],
//	 "cleanup":{}}                       // stage.CleanupRequest
//
// A stage needs steps, an init or a hold. The API refuses members that it does not know, for
// example `steps[0].command: unknown member; did you mean "data.run.commands"?`.
// The payloads init, data and cleanup, and single tasks, may have members for foreign
// delegates. There the API refuses only names that are close to a known one.
//
// The manager adds the ids that connect the payloads, network and group_id, where
// they are absent. It lists the steps with an image in the init, unless the init has
// such a list or the step an expression. It changes nothing else in the payloads.
//
// [api.Stage], [api.StepState], [api.Task], [api.Delegate], [api.Limit] and [api.Schedule] document the
// answers.
//
// # Events
//
// GET /api/events streams the [api.Event] values of an account, or with stage=<id> those
// of one stage. It starts with the next event, or after the event in since=<id> or in
// the header Last-Event-ID. Any manager of a store can continue a stream. A message
// without data has the id after which the stream continues: at its start, and every 15
// seconds. There are
// three kinds: "status" is a new status; "place", without an id, is a change of the
// place where a stage waits, at most once a second; "missed" means that events up to its
// id are no longer kept and that the client must read the state again. A caller of
// several managers compares ids with the header [LastEventHeader].
//
// # Leases, answers and failures
//
//	event                                      result
//	an offer is not acquired in time           the stage returns to its place, another delegate is preferred
//	the answer to an acquire is lost           the same delegate gets the same task again
//	another delegate acquires the task         204
//	an answer is repeated or late              accepted, without effect
//	an answer from a delegate without the task 409
//	a delegate is lost (HeartbeatTimeout)      its stages end with FAILURE or run again, see [api.Retry]; a cleanup waits for its return
//	the lease of a held stage ends             its steps are aborted, the cleanup runs, the stage ends with FAILURE
//	an idle held stage loses its delegate      the stage ends with FAILURE
//	a lost delegate returns                    its poll lists the tasks to abort and the cleanups
//	no manager runs, or none reaches the store delegates get fresh deadlines ([Config.Gap]): none is lost because of the outage
//	a manager ends at any moment               the store has all that the manager answered; callers may repeat calls without an answer
//
// # The store
//
// Every change is a command (command.go). The core executes the commands in the order
// of the store's log, see package journal. So each change happens completely or not at
// all, and all managers of a store reach the same state without further messages.
//
// Start reading at manager.go and core.go. The order of a stage's parts is in
// sequence.go, that of held stages in held.go, the assignment of work to delegates in package queue.
package manager
