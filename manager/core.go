package manager

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	wire "github.com/delegate-io/dlite/internal/perpetual"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/internal/perpetual"
	"github.com/delegate-io/dlite/manager/internal/queue"
	"github.com/delegate-io/dlite/task"
)

// core is the manager's state and its rules. It implements [journal.Machine]. Only
// commands change the state. The same commands in the same order result in the same
// state in every process.
type core struct {
	mu         sync.Mutex
	queue      *queue.Queue
	stages     map[key]*run
	tasks      map[key]*single
	attempts   map[key]string   // ids of single tasks, by the ids of their later attempts
	feeds      map[string]*feed // by account
	schedules  map[key]*api.Schedule
	connectors map[key]*api.Connector
	perpetual  *perpetual.Set
	rollouts   map[string]*rollout // by account
	daemons    map[string]*daemons // by account
	// firstDaemons is closed when an account gets its first daemon set.
	firstDaemons chan struct{}
	order        uint64
	set          settings
	leader       leader
	inOrder      map[string][]*run   // stages by account, the oldest first; some are forgotten
	forgotten    map[string]int      // how many of them
	endings      map[string]*endings // ended stages by account
	open         map[string]int      // the number of open stages by account
	usage        map[string]*amounts // by account: works, their bytes, and schedules
	usageSum     amounts

	// The command that is being executed: its time, and whether this process sent
	// it.
	at  time.Time
	own bool

	// effects are actions outside the state that commands lead to. The manager takes
	// and runs them. A silent core has no effects.
	silent   bool
	unwaited bool // a caller left before its command was executed, so no call may run its effects
	effects  []func(*Manager)
	wake     chan struct{} // receives a value when the loop has to run the effects
}

// key identifies a stage, task, schedule or connector by its account and id.
type key struct{ account, id string }

func (k key) compare(o key) int {
	return cmp.Or(cmp.Compare(k.account, o.account), cmp.Compare(k.id, o.id))
}

func newCore(silent bool) *core {
	c := &core{
		stages: map[key]*run{}, tasks: map[key]*single{}, attempts: map[key]string{},
		feeds: map[string]*feed{}, schedules: map[key]*api.Schedule{}, connectors: map[key]*api.Connector{},
		daemons: map[string]*daemons{}, firstDaemons: make(chan struct{}), rollouts: map[string]*rollout{}, usage: map[string]*amounts{},
		inOrder: map[string][]*run{}, forgotten: map[string]int{}, endings: map[string]*endings{}, open: map[string]int{},
		silent: silent, wake: make(chan struct{}, 1), at: time.Unix(0, 0),
	}
	c.queue = queue.New(queue.Config{Now: func() time.Time { return c.at }}) // the first command sets the configuration
	c.perpetual = perpetual.New(c.delegateFacts)
	return c
}

func (s *settings) queue(now func() time.Time) queue.Config {
	return queue.Config{
		HeartbeatTimeout: s.HeartbeatTimeout, AcquireTimeout: s.AcquireTimeout,
		AbortGrace: s.AbortGrace, AnswerGrace: s.AnswerGrace, ForgetLost: s.ForgetLost,
		Retention: s.Retention, MaxFinished: s.MaxFinished,
		MaxFinishedBytes: s.MaxFinishedBytes, MaxAttempts: s.MaxAttempts, Gap: s.Gap, Epoch: s.Epoch,
		FairRetention: s.FairRetention,
		Now:           now,
	}
}

// result is the result of a command.
type result struct {
	err        error
	id         string
	task       *task.Task
	existed    bool
	schedule   *api.Schedule
	connector  *api.Connector
	refused    []wire.Refusal // results of perpetual tasks
	permission permission
}

// Apply executes a command at a time. Own means that this process sent it.
func (c *core) Apply(at time.Time, cmd *command, own bool) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.own = at, own
	before, complete := len(c.effects), false
	defer func() {
		if !complete { // the command panics: the journal undoes its changes
			c.effects = c.effects[:before]
		}
	}()
	c.perpetual.Reach(at)
	r := c.executeCommand(cmd)
	c.observeDelegates(cmd, r.id)
	for events := c.queue.Events(); len(events) > 0; events = c.queue.Events() {
		for i := range events {
			c.handleEvent(&events[i])
			if k := events[i].Kind; k == queue.Lost || k == queue.Returned {
				c.moveDaemons(events[i].Account)
			}
		}
	}
	if len(c.effects) > 0 && (!own || c.unwaited) {
		c.wakeLoop()
	}
	complete = true
	return r
}

func (c *core) executeCommand(cmd *command) (r result) {
	a := cmd.Account
	switch {
	case cmd.Tick != nil:
		c.queue.Tick(c.at)
		c.perpetual.Tick()
	case cmd.Configure != nil:
		epoch := c.set.Epoch
		c.set = *cmd.Configure
		c.set.Epoch = cmp.Or(epoch, c.set.Epoch)
		c.queue.Configure(c.set.queue(nil))
		c.perpetual.Configure(perpetual.Config{Lease: c.set.PerpetualLease, Gap: c.set.Gap})
	case cmd.Register != nil:
		r.id = c.queue.Register(a, *cmd.Register)
		c.moveDaemons(a)
	case cmd.Heartbeat != nil:
		r.err = c.queue.Heartbeat(a, *cmd.Heartbeat)
	case cmd.Unregister != nil:
		r.err = c.queue.Unregister(a, cmd.Unregister.ID)
		c.moveDaemons(a)
	case cmd.Capacity != nil:
		r.err = c.queue.SetCapacity(a, cmd.Capacity.ID, cmd.Capacity.MaxStages)
	case cmd.Acquire != nil:
		r.task, r.err = c.queue.Acquire(a, cmd.Acquire.Delegate, cmd.Acquire.Task)
	case cmd.Answer != nil:
		r.err = c.answer(a, cmd.Answer)
	case cmd.SubmitStage != nil:
		r.existed, r.err = c.submitStage(a, cmd.SubmitStage)
		c.noteTrigger(a, cmd.OfSchedule, cmd.SubmitStage.ID, r.err)
	case cmd.AbortStage != nil:
		if n := c.stages[key{a, cmd.AbortStage.ID}]; n != nil {
			c.stopStage(n, api.Aborted, api.FailureAborted, "the stage was aborted")
		}
	case cmd.SubmitTask != nil:
		r.existed, r.err = c.submitTask(a, cmd.SubmitTask)
		c.noteTrigger(a, cmd.OfSchedule, cmd.SubmitTask.Task.ID, r.err)
	case cmd.AbortTask != nil:
		r.err = c.abortTask(a, cmd.AbortTask.ID)
	case cmd.AppendSteps != nil:
		r.existed, r.err = c.appendSteps(a, cmd.AppendSteps)
	case cmd.FinishStage != nil:
		r.err = c.finishHeld(a, cmd.FinishStage.ID)
	case cmd.RenewStage != nil:
		r.err = c.renewHeld(a, cmd.RenewStage.ID)
	case cmd.AbortStep != nil:
		r.err = c.abortStep(a, cmd.AbortStep)
	case cmd.Lead != nil:
		c.setLeader(cmd.Lead.ID)
	case cmd.SetLimit != nil:
		c.queue.SetLimit(a, strings.TrimPrefix(cmd.SetLimit.Group, wholeAccount), cmd.SetLimit.Max)
	case cmd.Drain != nil:
		r.err = c.queue.SetDraining(a, cmd.Drain.ID, cmd.Drain.On)
		c.moveDaemons(a)
	case cmd.Unaware != nil:
		r.err = c.queue.SetUnaware(a, cmd.Unaware.ID, cmd.Unaware.On)
	case cmd.Pause != nil:
		for _, account := range cmd.Pause.Accounts {
			c.queue.Pause(account, cmd.Pause.On, cmd.Pause.Note)
		}
	case cmd.SetSchedule != nil:
		r.schedule, r.err = c.setSchedule(a, *cmd.SetSchedule)
	case cmd.DeleteSchedule != nil:
		k := key{a, cmd.DeleteSchedule.ID}
		if c.schedules[k] == nil {
			r.err = fmt.Errorf("schedule %q: %w", k.id, ErrNotFound)
			break
		}
		delete(c.schedules, k)
		c.occupy(a, amounts{budgetSchedules: 1}, -1)
	case cmd.SetConnector != nil:
		r.connector, r.err = c.setConnector(a, *cmd.SetConnector)
	case cmd.DeleteConnector != nil:
		r.err = c.deleteConnector(a, cmd.DeleteConnector.ID)
	case cmd.SetDaemonSet != nil:
		c.setDaemonSet(a, *cmd.SetDaemonSet)
	case cmd.DeleteDaemonSet != nil:
		r.err = c.deleteDaemonSet(a, cmd.DeleteDaemonSet.ID)
	case cmd.SetDaemonTask != nil:
		r.existed, r.err = c.setDaemonTask(a, cmd.SetDaemonTask)
	case cmd.DeleteDaemonTask != nil:
		r.err = c.deleteDaemonTask(a, cmd.DeleteDaemonTask)
	case cmd.ReportDaemons != nil:
		c.reportDaemons(a, cmd.ReportDaemons)
	case cmd.SetUpgrade != nil:
		r.err = c.setUpgrade(a, cmd.SetUpgrade)
	case cmd.AskUpgrade != nil:
		r.permission = c.ask(a, cmd.AskUpgrade)
	case cmd.Fire != nil:
		r.existed = c.fire(a, cmd.Fire)
	case cmd.Perpetual != nil:
		r.refused, r.existed, r.err = c.executePerpetual(a, cmd.Perpetual)
	default:
		r.err = errors.New("the store holds a command that this version does not know; run the version that wrote it, or a newer one")
	}
	return r
}

// answer records a delegate's answer to a task. It accepts a repeated or late answer
// like the first one, because the delegate has done its work.
func (c *core) answer(account string, a *answerCommand) error {
	s, err := c.queue.Task(account, a.Task)
	if err == nil {
		err = c.queue.Complete(account, a.Delegate, a.Task, parseAnswer(s.Task.Type, a))
	}
	if err != nil {
		return fmt.Errorf("task %s: %w", a.Task, err)
	}
	return nil
}

// addOwnEffect adds an action outside the state. Only the process that sent the
// command runs it.
func (c *core) addOwnEffect(f func(*Manager)) {
	if c.own {
		c.addEffect(f)
	}
}

// addEffect adds an action outside the state that every process runs.
func (c *core) addEffect(f func(*Manager)) {
	if !c.silent {
		c.effects = append(c.effects, f)
	}
}

// runEffects runs the actions that commands have led to.
func (m *Manager) runEffects() {
	m.core.mu.Lock()
	effects := m.core.effects
	m.core.effects = nil
	m.core.mu.Unlock()
	for _, f := range effects {
		f(m)
	}
}

// logEntry is an entry for the manager's log.
type logEntry struct {
	account, stage, delegate, status string
	trace                            tracing
}

func (c *core) log(level zerolog.Level, message string, n logEntry) {
	c.addOwnEffect(func(m *Manager) {
		e := m.cfg.Logger.WithLevel(level).Str("account_id", n.account)
		if n.stage != "" {
			e = e.Str("stage_id", n.stage)
		}
		if n.delegate != "" {
			e = e.Str("delegate_id", n.delegate)
		}
		if n.status != "" {
			e = e.Str("status", n.status)
		}
		if span := n.trace.span(); span.IsValid() {
			e = e.Stringer("trace_id", span.TraceID()).Stringer("span_id", span.SpanID())
		}
		e.Msg(message)
	})
}
