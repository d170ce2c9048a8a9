package api

// operation is a call in the description of the API. The description is made from these and from the types of the
// package; each server tests that its routes, parameters and types are the described ones.
type operation struct {
	tag, method, path, id, summary string

	query    []string // see parameters; "*" after a name permits several
	body     any      // of the request; nil is none
	anyBody  string   // content type of a request body without a schema
	optional bool     // the body may be absent
	status   int      // of a success
	repeated int      // status of a success that has happened before
	answer   any      // body of a success; nil is none
	media    string   // content type of an answer that is not JSON
	errors   []int    // besides the errors of the tag
}

// commonErrors are the errors of every call of a tag. Every call has 429, because a server limits the requests of a token or
// an address that run at the same time.
var commonErrors = map[string][]int{
	"manager":  {400, 401, 403, 429, 500, 503},
	"runs":     {400, 401, 403, 429, 500, 503},
	"webhooks": {401, 413, 422, 429, 503},
	"logs":     {400, 401, 429, 500, 503},
	"upload":   {400, 403, 410, 413, 429, 500, 503, 507},
	"open":     {429},
}

var tags = map[string]string{
	"manager":  "Stages, single tasks, delegates, limits, schedules, connectors, perpetual tasks, daemon sets and upgrades.",
	"runs":     "Runs of pipelines, stored pipelines and triggers.",
	"webhooks": "Calls of Git providers. They have no token: a signature of the body proves their origin (docs/triggers.md).",
	"logs":     "The log service (docs/protocol.md). Its token is in the header X-Harness-Token.",
	"upload":   "Archives by a link of the log service, which needs no token.",
	"open":     "Calls that need no token.",
}

// operations lists the calls in the order of the description.
var operations = []operation{
	{tag: "open", method: "GET", path: "/api/openapi.json", id: "describe", summary: "Describe the API, in this form.", status: 200, media: "application/json"},

	{tag: "manager", method: "POST", path: "/api/stages", id: "submitStage", summary: "Queue a stage. The same stage under a known id changes nothing.", body: StageRequest{}, status: 202, repeated: 200, answer: Stage{}, errors: []int{409, 413}},
	{tag: "manager", method: "GET", path: "/api/stages", id: "listStages", summary: "List the stages, the oldest first.", query: []string{"status", "pipeline", "label*", "limit", "after"}, status: 200, answer: stagePage{}},
	{tag: "manager", method: "GET", path: "/api/ended-stages", id: "listEndedStages", summary: "List the stages that have ended, in the order of their ends, with numbers without a gap: a program that keeps them continues after the last one.", query: []string{"afterNumber", "limit"}, status: 200, answer: NumberedStages{}},
	{tag: "manager", method: "GET", path: "/api/stages/{id}", id: "showStage", summary: "Show a stage. With wait, the call ends when the stage has ended.", query: []string{"wait"}, status: 200, answer: Stage{}, errors: []int{404}},
	{tag: "manager", method: "POST", path: "/api/stages/{id}/abort", id: "abortStage", summary: "Abort a stage.", status: 200, answer: Stage{}, errors: []int{404}},
	{tag: "manager", method: "POST", path: "/api/stages/{id}/steps", id: "appendSteps", summary: "Append steps to a stage that is held open. Steps that it has already change nothing.", body: StepsRequest{}, status: 202, repeated: 200, answer: Stage{}, errors: []int{404, 409, 413}},
	{tag: "manager", method: "GET", path: "/api/stages/{id}/steps/{step}", id: "showStep", summary: "Show a step of a stage.", status: 200, answer: StepState{}, errors: []int{404}},
	{tag: "manager", method: "POST", path: "/api/stages/{id}/steps/{step}/abort", id: "abortStep", summary: "Abort a step of a stage. A step that waits never starts.", status: 200, answer: Stage{}, errors: []int{404}},
	{tag: "manager", method: "POST", path: "/api/stages/{id}/renew", id: "renewStage", summary: "Begin the lease of a held stage anew.", status: 200, answer: Stage{}, errors: []int{404, 409}},
	{tag: "manager", method: "POST", path: "/api/stages/{id}/finish", id: "finishStage", summary: "End a held stage: no more steps will come.", status: 200, answer: Stage{}, errors: []int{404, 409}},
	{tag: "manager", method: "POST", path: "/api/tasks", id: "submitTask", summary: "Queue a single task. With sync, the call ends when the task has ended.", body: TaskRequest{}, status: 202, repeated: 200, answer: Task{}, errors: []int{409, 413}},
	{tag: "manager", method: "GET", path: "/api/tasks/{id}", id: "showTask", summary: "Show a single task. With wait, the call ends when the task has ended.", query: []string{"wait"}, status: 200, answer: Task{}, errors: []int{404}},
	{tag: "manager", method: "POST", path: "/api/tasks/{id}/abort", id: "abortTask", summary: "Abort a single task.", status: 200, answer: Task{}, errors: []int{404}},
	{tag: "manager", method: "GET", path: "/api/events", id: "streamEvents", summary: "Stream the events of the account, or of a stage. The data of each message is an Event, and its kind is status, place or missed. A message without data tells the position of the stream.", query: []string{"stage", "since"}, status: 200, answer: Event{}, media: "text/event-stream", errors: []int{404}},
	{tag: "manager", method: "GET", path: "/api/delegates", id: "listDelegates", summary: "List the delegates, with lost ones.", status: 200, answer: delegateList{}},
	{tag: "manager", method: "POST", path: "/api/delegates/{id}/drain", id: "drainDelegate", summary: "Let a delegate finish its stages and take no new ones.", status: 204, errors: []int{404}},
	{tag: "manager", method: "POST", path: "/api/delegates/{id}/resume", id: "resumeDelegate", summary: "Let a drained delegate take new stages.", status: 204, errors: []int{404}},
	{tag: "manager", method: "GET", path: "/api/queue", id: "showQueue", summary: "Show what waits and runs, and why.", status: 200, answer: Queue{}},
	{tag: "manager", method: "GET", path: "/api/demand", id: "showDemand", summary: "Count the stages for delegates of one kind, to scale them.", query: []string{"tags", "infra", "pipeline", "label*"}, status: 200, answer: Demand{}},
	{tag: "manager", method: "POST", path: "/api/abort", id: "abortStages", summary: "Abort several stages. The answer has a result for each.", body: AbortRequest{}, status: 200, answer: abortResults{}, errors: []int{413}},
	{tag: "manager", method: "POST", path: "/api/pause", id: "pause", summary: "Assign no work of the account. Submissions wait.", body: PauseRequest{}, optional: true, status: 204, errors: []int{413}},
	{tag: "manager", method: "POST", path: "/api/resume", id: "resume", summary: "End a pause of the account.", status: 204},
	{tag: "manager", method: "GET", path: "/api/limits", id: "listLimits", summary: "List the limits.", status: 200, answer: limitList{}},
	{tag: "manager", method: "PUT", path: "/api/limits", id: "setLimit", summary: "Set or remove a limit.", body: Limit{}, status: 204, errors: []int{413}},
	{tag: "manager", method: "GET", path: "/api/daemon-sets", id: "listDaemonSets", summary: "List the daemon sets, with their tasks and their state on each delegate.", status: 200, answer: daemonSetList{}},
	{tag: "manager", method: "PUT", path: "/api/daemon-sets/{id}", id: "setDaemonSet", summary: "Add or replace a daemon set. Its tasks stay.", body: DaemonSet{}, status: 200, answer: DaemonSet{}, errors: []int{404, 413}},
	{tag: "manager", method: "GET", path: "/api/daemon-sets/{id}", id: "showDaemonSet", summary: "Show a daemon set.", status: 200, answer: DaemonSet{}, errors: []int{404}},
	{tag: "manager", method: "DELETE", path: "/api/daemon-sets/{id}", id: "deleteDaemonSet", summary: "Remove a daemon set with its tasks.", status: 204, errors: []int{404}},
	{tag: "manager", method: "PUT", path: "/api/daemon-sets/{id}/tasks/{task}", id: "setDaemonTask", summary: "Add a task to a daemon set. The same task under a known id changes nothing.", body: DaemonTask{}, status: 200, answer: DaemonTask{}, errors: []int{404, 409, 413}},
	{tag: "manager", method: "DELETE", path: "/api/daemon-sets/{id}/tasks/{task}", id: "deleteDaemonTask", summary: "Remove a task from a daemon set.", status: 204, errors: []int{404}},
	{tag: "manager", method: "GET", path: "/api/schedules", id: "listSchedules", summary: "List the schedules.", status: 200, answer: scheduleList{}},
	{tag: "manager", method: "PUT", path: "/api/schedules/{id}", id: "setSchedule", summary: "Add or replace a schedule.", body: Schedule{}, status: 200, answer: Schedule{}, errors: []int{413}},
	{tag: "manager", method: "GET", path: "/api/schedules/{id}", id: "showSchedule", summary: "Show a schedule.", status: 200, answer: Schedule{}, errors: []int{404}},
	{tag: "manager", method: "DELETE", path: "/api/schedules/{id}", id: "deleteSchedule", summary: "Remove a schedule.", status: 204, errors: []int{404}},
	{tag: "manager", method: "POST", path: "/api/schedules/{id}/trigger", id: "triggerSchedule", summary: "Submit the stage or task of a schedule now.", status: 202, answer: triggered{}, errors: []int{404}},
	{tag: "manager", method: "GET", path: "/api/upgrade", id: "showUpgrade", summary: "Show the update of the delegates. Without one, the version in the answer is empty.", status: 200, answer: Upgrade{}},
	{tag: "manager", method: "PUT", path: "/api/upgrade", id: "setUpgrade", summary: "Begin, change or continue the update of the delegates.", body: Upgrade{}, status: 200, answer: Upgrade{}, errors: []int{413}},
	{tag: "manager", method: "DELETE", path: "/api/upgrade", id: "deleteUpgrade", summary: "End the update of the delegates.", status: 204, errors: []int{404}},
	{tag: "manager", method: "GET", path: "/api/connectors", id: "listConnectors", summary: "List the connectors.", status: 200, answer: connectorList{}},
	{tag: "manager", method: "PUT", path: "/api/connectors/{id}", id: "setConnector", summary: "Add or replace a connector.", body: Connector{}, status: 200, answer: Connector{}, errors: []int{413}},
	{tag: "manager", method: "GET", path: "/api/connectors/{id}", id: "showConnector", summary: "Show a connector.", status: 200, answer: Connector{}, errors: []int{404}},
	{tag: "manager", method: "DELETE", path: "/api/connectors/{id}", id: "deleteConnector", summary: "Remove a connector.", status: 204, errors: []int{404}},
	{tag: "manager", method: "POST", path: "/api/connectors/{id}/test", id: "testConnector", summary: "Test a connector from a delegate, and wait for the result.", body: ConnectorTestRequest{}, optional: true, status: 200, answer: ConnectorTest{}, errors: []int{404, 413}},
	{tag: "manager", method: "GET", path: "/api/perpetual", id: "listPerpetualTasks", summary: "List the perpetual tasks without their configs and states, in the order of their ids.", query: []string{"limit", "after"}, status: 200, answer: perpetualPage{}},
	{tag: "manager", method: "PUT", path: "/api/perpetual/{id}", id: "setPerpetualTask", summary: "Add or replace a perpetual task.", body: PerpetualTask{}, status: 200, answer: PerpetualTask{}, errors: []int{413}},
	{tag: "manager", method: "GET", path: "/api/perpetual/{id}", id: "showPerpetualTask", summary: "Show a perpetual task.", status: 200, answer: PerpetualTask{}, errors: []int{404}},
	{tag: "manager", method: "DELETE", path: "/api/perpetual/{id}", id: "deletePerpetualTask", summary: "Remove a perpetual task. Its run is cancelled.", status: 204, errors: []int{404}},
	{tag: "manager", method: "POST", path: "/api/perpetual/{id}/pause", id: "pausePerpetualTask", summary: "Take a perpetual task from its delegate. Its run is cancelled.", body: PauseRequest{}, optional: true, status: 200, answer: PerpetualTask{}, errors: []int{404, 413}},
	{tag: "manager", method: "POST", path: "/api/perpetual/{id}/resume", id: "resumePerpetualTask", summary: "End the pause of a perpetual task.", status: 200, answer: PerpetualTask{}, errors: []int{404}},
	{tag: "manager", method: "POST", path: "/api/perpetual/{id}/run", id: "runPerpetualTask", summary: "Ask for a run of a perpetual task now.", status: 200, answer: PerpetualTask{}, errors: []int{404, 409}},

	{tag: "runs", method: "POST", path: "/api/runs", id: "startRun", summary: "Start a run of a pipeline. A second call with the id returns the first run.", body: RunRequest{}, status: 202, answer: Run{}, errors: []int{404, 413}},
	{tag: "runs", method: "GET", path: "/api/runs", id: "listRuns", summary: "List the runs without their nodes, the newest first.", query: []string{"pipeline", "runStatus", "branch", "runDelegate", "label*", "text", "createdAfter", "before", "runLimit", "page"}, status: 200, answer: RunPage{}},
	{tag: "runs", method: "GET", path: "/api/run-events", id: "streamRuns", summary: "Stream the runs of the account that change, without their nodes, each at most once a second. The message missed means that changes were lost. A change by another manager is noticed within some seconds, and only of the 50 newest runs.", status: 200, answer: Run{}, media: "text/event-stream"},
	{tag: "runs", method: "GET", path: "/api/runs/{id}", id: "showRun", summary: "Show a run with its nodes. With wait, the call ends when the run has ended.", query: []string{"wait"}, status: 200, answer: Run{}, errors: []int{404}},
	{tag: "runs", method: "GET", path: "/api/runs/{id}/definition", id: "showDefinition", summary: "Return the YAML of a run.", status: 200, media: "application/yaml", errors: []int{404}},
	{tag: "runs", method: "GET", path: "/api/runs/{id}/resolved", id: "showResolved", summary: "Return the YAML of a run with its templates, its inputs, the values of its expressions and the children of its strategies in place.", status: 200, media: "application/yaml", errors: []int{404, 409}},
	{tag: "runs", method: "GET", path: "/api/runs/{id}/inputs", id: "showInputs", summary: "List the inputs of a run.", status: 200, answer: inputList{}, errors: []int{404}},
	{tag: "runs", method: "GET", path: "/api/runs/{id}/diff", id: "diffRuns", summary: "Compare a run with another one.", query: []string{"with"}, status: 200, answer: RunDiff{}, errors: []int{404, 409}},
	{tag: "runs", method: "GET", path: "/api/runs/{id}/events", id: "streamRun", summary: "Stream the changes of a run until it ends. The data of each message is a RunChange, and its id a version. 204 means that nothing will follow.", query: []string{"sinceVersion"}, status: 200, repeated: 204, answer: RunChange{}, media: "text/event-stream", errors: []int{404}},
	{tag: "runs", method: "GET", path: "/api/runs/{id}/logs", id: "streamRunLogs", summary: "Stream the logs of all steps of a run until it ends. The data of each message is a RunLog, and its id the place after it. The message end has the status of the run. 204 means that nothing will follow.", query: []string{"sincePlace", "streamFormat"}, status: 200, repeated: 204, answer: RunLog{}, media: "text/event-stream", errors: []int{404}},
	{tag: "runs", method: "POST", path: "/api/runs/{id}/abort", id: "abortRun", summary: "Abort a run or a node.", body: Order{}, optional: true, status: 200, answer: Run{}, errors: []int{404, 409, 413}},
	{tag: "runs", method: "POST", path: "/api/runs/{id}/retry", id: "retryRun", summary: "Run an ended run again from a stage, or a stage that a failed step holds open from a step.", body: Order{}, optional: true, status: 200, answer: Run{}, errors: []int{404, 409, 413}},
	{tag: "runs", method: "POST", path: "/api/runs/{id}/answer", id: "answerRun", summary: "Answer a node that waits for a person, or mark a running step as failed.", body: Order{}, optional: true, status: 200, answer: Run{}, errors: []int{404, 409, 413}},
	{tag: "runs", method: "POST", path: "/api/runs/{id}/again", id: "runAgain", summary: "Start a new run with the definition and the inputs of another one.", body: Order{}, optional: true, status: 202, answer: Run{}, errors: []int{404, 409, 413}},
	{tag: "runs", method: "POST", path: "/api/lint", id: "lint", summary: "Check a pipeline without running it.", body: RunRequest{}, status: 200, answer: problemList{}, errors: []int{413}},
	{tag: "runs", method: "GET", path: "/api/history/stages", id: "listHistory", summary: "List the stages without a run that have ended, the last one first. A page can be short, or empty, before the last one.", query: []string{"pipeline", "status", "stageBranch", "delegate", "label*", "stageText", "endedAfter", "endedBefore", "runLimit", "page"}, status: 200, answer: EndedPage{}},
	{tag: "runs", method: "GET", path: "/api/history/stages/{id}", id: "showEndedStage", summary: "Show a stage without a run that has ended, with its steps.", status: 200, answer: Stage{}, errors: []int{404}},
	{tag: "runs", method: "GET", path: "/api/history/outcomes", id: "listOutcomes", summary: "List what ended on each day, by status, with the durations.", query: []string{"outcomesOf", "pipeline", "firstDay", "lastDay"}, status: 200, answer: outcomesList{}},
	{tag: "runs", method: "GET", path: "/api/pipelines", id: "listPipelines", summary: "List the stored pipelines without their YAML.", query: []string{"page"}, status: 200, answer: pipelinePage{}},
	{tag: "runs", method: "PUT", path: "/api/pipelines/{id}", id: "setPipeline", summary: "Add or replace a stored pipeline. The answer has no YAML.", body: Pipeline{}, status: 200, answer: Pipeline{}, errors: []int{409, 413}},
	{tag: "runs", method: "GET", path: "/api/pipelines/{id}", id: "showPipeline", summary: "Show a stored pipeline.", status: 200, answer: Pipeline{}, errors: []int{404}},
	{tag: "runs", method: "DELETE", path: "/api/pipelines/{id}", id: "deletePipeline", summary: "Remove a stored pipeline.", status: 204, errors: []int{404}},
	{tag: "runs", method: "GET", path: "/api/triggers", id: "listTriggers", summary: "List the triggers.", query: []string{"page"}, status: 200, answer: triggerPage{}},
	{tag: "runs", method: "PUT", path: "/api/triggers/{id}", id: "setTrigger", summary: "Add or replace a trigger.", body: Trigger{}, status: 200, answer: Trigger{}, errors: []int{404, 409, 413}},
	{tag: "runs", method: "GET", path: "/api/triggers/{id}", id: "showTrigger", summary: "Show a trigger.", status: 200, answer: Trigger{}, errors: []int{404}},
	{tag: "runs", method: "DELETE", path: "/api/triggers/{id}", id: "deleteTrigger", summary: "Remove a trigger.", status: 204, errors: []int{404}},
	{tag: "runs", method: "GET", path: "/api/letters", id: "listLetters", summary: "List the dead letters, the oldest first.", query: []string{"page"}, status: 200, answer: LetterPage{}},
	{tag: "runs", method: "POST", path: "/api/letters/{id}/deliver", id: "deliverLetter", summary: "Deliver a dead letter again.", status: 204, errors: []int{404}},
	{tag: "runs", method: "DELETE", path: "/api/letters/{id}", id: "deleteLetter", summary: "Remove a dead letter.", status: 204, errors: []int{404}},

	{tag: "webhooks", method: "POST", path: "/api/hooks/{account}/{trigger}", id: "callWebhook", summary: "Call a webhook. 202 means that it started runs.", anyBody: "application/json", status: 202, repeated: 200, answer: HookAnswer{}},

	{tag: "logs", method: "POST", path: "/stream", id: "openLog", summary: "Open a live log.", query: []string{"key"}, status: 204, errors: []int{507}},
	{tag: "logs", method: "PUT", path: "/stream", id: "appendLog", summary: "Append lines to a live log: a JSON list of LogLine.", query: []string{"key"}, body: []LogLine{}, status: 204, errors: []int{404, 408, 409, 413, 507}},
	{tag: "logs", method: "DELETE", path: "/stream", id: "closeLog", summary: "Close a live log.", query: []string{"key", "snapshot"}, status: 204, errors: []int{404, 507}},
	{tag: "logs", method: "GET", path: "/stream", id: "followLog", summary: "Stream a log as it arrives. The data of each message is a LogLine, and its id the number of the line. The message eof ends a complete log.", query: []string{"key", "from", "streamFormat", "logWait"}, status: 200, answer: LogLine{}, media: "text/event-stream", errors: []int{404}},
	{tag: "logs", method: "POST", path: "/blob", id: "archiveLog", summary: "Store a complete log.", query: []string{"key"}, anyBody: "application/x-ndjson", status: 204, errors: []int{413, 507}},
	{tag: "logs", method: "GET", path: "/blob", id: "readLog", summary: "Return a complete log: one LogLine in each line, or text.", query: []string{"key", "archiveFormat"}, status: 200, answer: LogLine{}, media: "application/x-ndjson", errors: []int{404}},
	{tag: "logs", method: "POST", path: "/blob/link/upload", id: "linkLog", summary: "Return a link by which a complete log can be stored without a token. expires is the time until then, in nanoseconds.", query: []string{"key"}, status: 200, answer: uploadLink{}},
	{tag: "upload", method: "PUT", path: "/blob/upload/{link}", id: "uploadLog", summary: "Store a complete log.", anyBody: "application/x-ndjson", status: 200},
}

type uploadLink struct {
	Link    string `json:"link"`
	Expires int64  `json:"expires"`
}

// parameter is a member of a query. Name is the wire name, if it differs from the key.
type parameter struct {
	name, text, kind string
	required         bool
	values           []string
}

var parameters = map[string]parameter{
	"status":        {text: "Selects stages with the status.", values: []string{"QUEUED", "RUNNING", "SUCCESS", "FAILURE", "TIMEOUT", "ABORTED"}},
	"pipeline":      {text: "Selects the name of a pipeline."},
	"label":         {text: "NAME=VALUE. All must match."},
	"tags":          {text: "Comma-separated tags of the delegates: counts the stages whose selectors are all among them."},
	"infra":         {text: "Counts the stages for an infrastructure.", values: []string{"local", "vm", "kubernetes"}},
	"limit":         {text: "The largest number of elements, up to 1,000, which is the default.", kind: "integer"},
	"after":         {text: "The next of the previous page."},
	"wait":          {text: "Whole seconds for which the call waits for the end, at most 60.", kind: "integer"},
	"stage":         {text: "Selects the events of a stage."},
	"since":         {text: "The id of an event: those after it follow. The header Last-Event-ID has precedence. Absent means from now on.", kind: "integer"},
	"runStatus":     {name: "status", text: "Selects runs with the status."},
	"branch":        {text: "Selects the branch."},
	"text":          {text: "Words. Each must be a word, or the beginning of one, of the pipeline's identifier or name, the branch or the user, without regard to case."},
	"runDelegate":   {name: "delegate", text: "Selects runs by the name of a delegate that had one of their stages, or its id if it has no name."},
	"delegate":      {text: "Selects the name of the delegate, or its id if it has no name."},
	"stageBranch":   {name: "branch", text: "Selects the label branch."},
	"stageText":     {name: "text", text: "Words. Each must be a word, or the beginning of one, of the id, the name, the pipeline, the labels or the error, without regard to case."},
	"endedAfter":    {name: "after", text: "Selects stages that ended after a time, in the form of RFC 3339."},
	"endedBefore":   {name: "before", text: "Selects stages that ended before a time."},
	"outcomesOf":    {name: "of", text: "runs, which is the default, or stages without a run.", values: []string{"runs", "stages"}},
	"firstDay":      {name: "after", text: "The first day in UTC, such as 2026-01-31. Absent means 29 days before the last one."},
	"lastDay":       {name: "before", text: "The last day in UTC. Absent means today."},
	"afterNumber":   {name: "after", text: "The next of the previous answer. Absent means from the first one.", kind: "integer"},
	"createdAfter":  {name: "after", text: "Selects runs that were created after a time, in the form of RFC 3339."},
	"before":        {text: "Selects runs that were created before a time."},
	"runLimit":      {name: "limit", text: "The largest number of elements, up to 50, which is the default.", kind: "integer"},
	"page":          {text: "The next of the previous page."},
	"sinceVersion":  {name: "since", text: "A version of the run: the changes after it follow. The header Last-Event-ID has precedence. Absent means everything.", kind: "integer"},
	"with":          {text: "The id of the run to compare with.", required: true},
	"sincePlace":    {name: "since", text: "The id of a message: the lines after it follow. The header Last-Event-ID has precedence. Absent means everything."},
	"key":           {text: "The key of the log.", required: true},
	"snapshot":      {text: "true makes the content of the live log the archived one.", values: []string{"true"}},
	"from":          {text: "The number of the first line. The header Last-Event-ID has the number of the line before.", kind: "integer"},
	"streamFormat":  {name: "format", text: "text is the text of the lines. Absent means sse.", values: []string{"sse", "text"}},
	"archiveFormat": {name: "format", text: "text is the text of the lines. Absent means ndjson.", values: []string{"ndjson", "text"}},
	"logWait":       {name: "wait", text: "Whole seconds for which the call waits until the log exists, at most 300. Absent means 30 with the format text, and otherwise 0.", kind: "integer"},
}

// requestRequired are the members that a request must have, for the types of requests.
var requestRequired = map[string][]string{
	"StageRequest": {}, "StepRequest": {}, "TaskRequest": {"type"}, "RunRequest": {}, "Limit": {"group"}, "Upgrade": {"version"},
	"Schedule": {"cron"}, "PerpetualTask": {"type"}, "Connector": {"kind"}, "DaemonSet": {"type"}, "DaemonTask": {}, "ConnectorTestRequest": {}, "Pipeline": {}, "Trigger": {"kind", "pipeline"}, "LogLine": {"out"},
}

// closed are the types of requests that have no further members. Types that are answers too may get some.
var closed = []string{"StageRequest", "StepRequest", "Retry", "Hold", "StepsRequest", "RunRequest", "Order", "Answer", "PauseRequest", "AbortRequest", "ConnectorTestRequest"}
