package drone

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/delegate-io/dlite/client/drone/yaml"
	"github.com/delegate-io/dlite/task"
)

// phase is the part of its life in which a stage is.
type phase int

const (
	// phaseLoading: the details of a stage of an earlier process are not read yet.
	phaseLoading phase = iota
	// phaseInit: the stage is offered, or its init runs.
	phaseInit
	// phaseSteps: steps run.
	phaseSteps
	// phaseCleanup: all steps have ended.
	phaseCleanup
	// phaseOver: the server knows the end of the stage, or the stage is not ours.
	phaseOver
)

// run is a stage that the server offered or that is open here.
//
// The states of a stage and its steps change under mu. Calls to the server are made without
// mu. Only one goroutine at a time changes a step: first the one that acquires its task, then
// the one that answers it.
type run struct {
	c   *Client
	id  int64
	key string // id of the transaction, prefix of the ids of its tasks

	resumed   bool          // an earlier process had the stage
	maybeOurs bool          // an earlier process may have accepted it
	decided   chan struct{} // closed when the stage is accepted, or will not be
	decide    sync.Once
	loaded    chan struct{} // closed when a resumed stage has left phaseLoading

	accepting sync.Mutex // held by the goroutine that opens the stage

	mu       sync.Mutex
	phase    phase
	progress progress
	details  *details
	plan     *yaml.Plan
	record   record // the stage
	steps    []*step
	initRuns bool   // the init was handed out and is not answered
	killed   bool   // the build was cancelled, or its time is over
	timedOut bool   // its time is over: the server does not know yet
	problem  string // the error of the stage
	failCode int64  // the exit code of the first step that failed
	early    bool   // a step has ended the stage: no further step begins
	halted   bool   // a step has ended the stage as a failure: running steps are stopped
	endWatch context.CancelFunc
}

// step is a step that the server knows.
type step struct {
	plan   *yaml.Step
	record record
	status stepStatus

	reporting sync.Mutex // held by the goroutine that reports the step
	reported  string     // the status that the server has
	unsure    bool       // an earlier process may have reported more than it stored
}

type stepStatus int

const (
	stepWaiting stepStatus = iota // for its dependencies
	stepReady                     // its task may be acquired
	stepRunning                   // its task was acquired
	stepStarted                   // it is detached and continues in the background
	stepEnded
)

func (c *Client) newRun(id int64) *run {
	return &run{
		c: c, id: id, key: c.prefix + strconv.FormatInt(id, 10),
		decided: make(chan struct{}), loaded: make(chan struct{}), progress: progress{Stage: id},
	}
}

// list returns the tasks that may be acquired, and the ids of those that must be stopped.
func (r *run) list() (events []task.Event, aborted []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch r.phase {
	case phaseInit:
		if r.killed && r.initRuns {
			aborted = append(aborted, r.taskID(partInit))
		}
		events = append(events, task.Event{TaskID: r.taskID(partInit), TaskType: task.TypeLocalInit})
	case phaseSteps:
		for _, s := range r.steps {
			id := r.taskID(strconv.Itoa(s.plan.Number))
			switch {
			case s.status == stepReady, s.status == stepRunning && !r.killed && !r.halted:
				events = append(events, task.Event{TaskID: id, TaskType: task.TypeLocalExecute})
			case s.status == stepRunning:
				aborted = append(aborted, id)
			}
		}
	case phaseCleanup:
		events = append(events, task.Event{TaskID: r.taskID(partCleanup), TaskType: task.TypeLocalCleanup})
	}
	return events, aborted
}

func (r *run) taskID(part string) string { return r.key + "/" + part }

// step returns the step with a number, nil if there is none.
func (r *run) step(number int) *step {
	for _, s := range r.steps {
		if s.plan.Number == number {
			return s
		}
	}
	return nil
}

// advance releases the steps whose dependencies have ended, and ends those that must not run.
// When all steps have ended, it releases the cleanup. It returns the steps that it skipped:
// the caller reports them. The caller holds mu.
func (r *run) advance() (skipped []*step) {
	if r.phase != phaseSteps {
		return nil
	}
	for again := true; again; {
		again = false
		for _, s := range r.steps {
			switch {
			case s.status <= stepReady && (r.killed || r.early):
			case s.status != stepWaiting || !r.dependenciesEnded(s):
				continue
			case r.failed() && s.plan.OnFailure, !r.failed() && s.plan.OnSuccess:
				s.status = stepReady
				continue
			}
			s.status, again = stepEnded, true
			s.record = s.record.with(map[string]any{"status": statusSkipped, "started": unix(), "stopped": unix()})
			skipped = append(skipped, s)
		}
	}
	r.releaseCleanup()
	return skipped
}

// releaseCleanup begins the cleanup when no step is left to end. The caller holds mu.
func (r *run) releaseCleanup() {
	left := slices.ContainsFunc(r.steps, func(s *step) bool { return s.status < stepStarted })
	if r.phase == phaseSteps && !left {
		r.phase = phaseCleanup
	}
}

// dependenciesEnded reports whether all steps that s waits for have ended, or have started if
// they are detached. The caller holds mu.
func (r *run) dependenciesEnded(s *step) bool {
	return !slices.ContainsFunc(r.steps, func(other *step) bool {
		return other.status < stepStarted && slices.Contains(s.plan.DependsOn, other.plan.Name)
	})
}

// failed reports whether a step has failed whose failure counts. The caller holds mu.
func (r *run) failed() bool {
	return r.problem != "" || slices.ContainsFunc(r.steps, func(s *step) bool {
		switch s.record.text("status") {
		case statusFailure, statusError, statusKilled:
			return !s.plan.IgnoreFailure
		}
		return false
	})
}

// cancel ends the stage as killed.
func (r *run) cancel() {
	r.mu.Lock()
	if r.killed || r.phase == phaseOver {
		r.mu.Unlock()
		return
	}
	r.killed = true
	r.advance() // the server has ended the steps already, or the end of the stage does
	r.mu.Unlock()
	r.c.news()
}

// status returns the final status of the stage. The caller holds mu.
func (r *run) status() string {
	switch {
	case r.killed:
		return statusKilled
	case r.problem != "":
		return statusError
	case r.failed():
		return statusFailure
	}
	return statusSuccess
}

// failedSteps returns the names of the steps that have failed. The caller holds mu.
func (r *run) failedSteps() (names []string) {
	for _, s := range r.steps {
		switch s.record.text("status") {
		case statusFailure, statusError, statusKilled:
			names = append(names, s.plan.Name)
		}
	}
	return names
}

// drop forgets an offer that was not accepted.
func (r *run) drop() {
	if !r.accepting.TryLock() {
		return // it is being accepted
	}
	defer r.accepting.Unlock()
	r.mu.Lock()
	offered := r.phase == phaseInit && r.details == nil
	if offered {
		r.phase = phaseOver
	}
	r.mu.Unlock()
	if offered {
		r.decide.Do(func() { close(r.decided) })
		r.c.remove(r)
	}
}

// unix returns the current time as the server counts it.
func unix() int64 { return time.Now().Unix() }

// merge returns a copy of all with other values for some names.
func merge(all map[string]string, more map[string]string) map[string]string {
	out := maps.Clone(all)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, more)
	return out
}
