package poller

import (
	"container/heap"
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/delegate-io/dlite/internal/perpetual"
	"github.com/delegate-io/dlite/task"
)

// WithPerpetual registers the handler of a type of perpetual tasks (rule G1). The poller
// then asks the manager for such tasks, and runs each when it is due. The runs take no
// slot and no executor of stages. A drain and a maintenance cancel the runs and hand the
// tasks back at once. The manager must be ours, and the client must be a [client.HTTP].
// Without this option the poller makes no such calls.
func WithPerpetual(taskType string, h task.Perpetual) Option {
	if taskType == "" || h == nil {
		panic("poller: WithPerpetual needs a type and a handler")
	}
	return func(c *config) {
		if c.perpetual == nil {
			c.perpetual = map[string]task.Perpetual{}
		}
		c.perpetual[taskType] = h
	}
}

// mostPerpetualRuns bounds the runs that are active at once.
const mostPerpetualRuns = 32

// The causes with which the poller cancels a run.
var (
	errLeaseLost = errors.New("the lease of the perpetual task was lost")
	errWithdrawn = errors.New("the manager has asked for the perpetual task")
	errHandBack  = errors.New("the delegate drains or is in maintenance")
)

// perpetualClient is a client of a manager with perpetual tasks.
type perpetualClient interface {
	ReconcilePerpetual(ctx context.Context, delegateID string, r *perpetual.Report, wait time.Duration) (*perpetual.Answer, error)
}

// perpetuals runs the perpetual tasks of a session. One loop renews the lease and
// receives assignments, one starts runs, and one reports results.
type perpetuals struct {
	s      *session
	client perpetualClient
	id     string // of the leases
	types  []string
	wake   chan struct{} // for the loop that starts runs
	report chan struct{} // for the loop that reports
	runs   sync.WaitGroup

	mu             sync.Mutex
	tasks          map[string]*perpetualTask
	due            dueTasks
	running        int
	lease          time.Duration // 0 before the first answer
	leaseEnd       time.Time     // when runs must stop
	fresh          bool          // the next call asks for everything
	interrupt      context.CancelFunc
	results        []*pendingResult // in their order
	released       []perpetual.Claim
	count          uint64 // of results
	leaving        bool   // everything is being handed back
	lapsed         bool   // the lease has ended: everything was lost
	leaseLoopEnded bool   // no assignments will follow
	late           uint64 // results that the manager took after their tasks were lost here
}

// perpetualTask is a task that this delegate has, or whose run has not returned yet.
type perpetualTask struct {
	perpetual.Assignment
	at         time.Time // of the next run
	index      int       // in due; -1 is not there
	cancel     context.CancelCauseFunc
	kick       uint64 // that the last run had
	unreported int    // results that the manager has not taken
	gone       bool   // it is not ours any more: only its run is left
	next       *perpetual.Assignment
}

func (t *perpetualTask) isRunning() bool { return t.cancel != nil }

// pendingResult is a result that was not reported yet.
type pendingResult struct {
	perpetual.Result
	began, ended time.Time
	queued       time.Time // when the first of its runs ended
	lazy         bool      // it changes nothing and may wait
	notBefore    time.Time // the manager had no room for it
	sent         bool
}

func newPerpetuals(s *session) *perpetuals {
	if len(s.perpetual) == 0 {
		return nil
	}
	c, ok := s.client.(perpetualClient)
	if !ok {
		s.log.Warn().Msgf("perpetual tasks do not run: the client %T does not support them", s.client)
		return nil
	}
	p := &perpetuals{
		s: s, client: c, id: rand.Text(), tasks: map[string]*perpetualTask{}, fresh: true, lapsed: true,
		wake: make(chan struct{}, 1), report: make(chan struct{}, 1),
	}
	for t := range s.perpetual {
		p.types = append(p.types, t)
	}
	slices.Sort(p.types)
	return p
}

// run runs the tasks until the drain, and returns when they were handed back.
func (p *perpetuals) run() {
	var loops sync.WaitGroup
	loops.Go(p.leaseLoop)
	loops.Go(p.startLoop)
	loops.Go(p.reportLoop)
	select {
	case <-p.s.draining:
	case <-p.s.polling.Done():
	}
	p.reconsider()
	loops.Wait()
	p.runs.Wait()
}

// reconsider makes the loops look at the drain and the maintenance.
func (p *perpetuals) reconsider() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.interrupt != nil {
		p.interrupt()
	}
	p.updateLeaving()
	wakeUp(p.wake)
	wakeUp(p.report)
}

// ending reports whether the session drains.
func (p *perpetuals) ending() bool { return p.s.isDraining() || p.s.polling.Err() != nil }

// updateLeaving begins or ends the return of all tasks.
func (p *perpetuals) updateLeaving() {
	leaving := p.ending() || p.s.maintained() != nil
	if leaving && !p.leaving {
		for _, t := range p.tasks {
			p.withdraw(t, errHandBack)
		}
	}
	if p.leaving && !leaving {
		p.fresh = true
	}
	p.leaving = leaving
}

// withdraw cancels the run of a task, and hands the task back when there is none.
func (p *perpetuals) withdraw(t *perpetualTask, why error) {
	t.Withdraw = perpetual.WithdrawNow
	if t.isRunning() {
		t.cancel(why)
		return
	}
	p.handBack(t)
}

// handBack releases a task without a run.
func (p *perpetuals) handBack(t *perpetualTask) {
	p.remove(t)
	p.released = append(p.released, t.Claim)
	wakeUp(p.report)
}

// remove forgets a task without a run.
func (p *perpetuals) remove(t *perpetualTask) {
	if t.index >= 0 {
		heap.Remove(&p.due, t.index)
	}
	if p.tasks[t.ID] == t {
		delete(p.tasks, t.ID)
	}
}

// apply carries out the answer to a call that began at a time, when there were some late
// results. It reports whether there was news. If the manager has taken a late result
// meanwhile, the answer may have the state from before it, and the next call asks again.
func (p *perpetuals) apply(a *perpetual.Answer, begun time.Time, late uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.late != late {
		p.fresh = true
		return true
	}
	p.renewed(time.Duration(a.LeaseMS)*time.Millisecond, begun, true)
	if a.HeldGiven {
		held := make(map[perpetual.Claim]bool, len(a.Held))
		for _, c := range a.Held {
			held[c] = true
		}
		for _, t := range p.tasks {
			if !held[t.Claim] {
				p.lose(t)
			}
		}
	}
	now := time.Now()
	for i := range a.Assigned {
		p.assign(&a.Assigned[i], now)
	}
	wakeUp(p.wake)
	return a.HeldGiven || len(a.Assigned) > 0 || a.More
}

// lose forgets a task that is not ours any more.
func (p *perpetuals) lose(t *perpetualTask) {
	t.gone, t.next = true, nil
	if t.isRunning() {
		t.cancel(errLeaseLost)
		return
	}
	p.remove(t)
}

// assign takes over a new or changed task.
func (p *perpetuals) assign(a *perpetual.Assignment, now time.Time) {
	t := p.tasks[a.ID]
	switch {
	case t == nil:
		p.install(a, now)
	case t.Token > a.Token: // an answer from before
	case t.Token < a.Token, t.gone:
		p.lose(t)
		if p.tasks[a.ID] == nil {
			p.install(a, now)
		} else {
			t.next = a // after its run
		}
	default:
		kicked := a.Kick > t.Kick
		t.IntervalMS, t.Loop, t.TimeoutMS, t.Kick = a.IntervalMS, a.Loop, a.TimeoutMS, a.Kick
		if a.Withdraw != "" {
			p.asked(t, a.Withdraw)
			return
		}
		if !t.isRunning() && t.unreported == 0 {
			at := now.Add(time.Duration(a.DueMS) * time.Millisecond)
			if kicked || at.Before(t.at) {
				p.schedule(t, at)
			}
		}
	}
}

// asked carries out that the manager asks for a task.
func (p *perpetuals) asked(t *perpetualTask, how string) {
	if how == perpetual.WithdrawNow || !t.isRunning() {
		p.withdraw(t, errWithdrawn)
		return
	}
	t.Withdraw = how
}

// install adds a task.
func (p *perpetuals) install(a *perpetual.Assignment, now time.Time) {
	t := &perpetualTask{Assignment: *a, index: -1}
	for _, r := range p.results {
		if r.Claim == t.Claim && !r.lazy {
			t.unreported++
		}
	}
	p.tasks[t.ID] = t
	switch {
	case p.leaving || t.Withdraw != "":
		p.handBack(t)
	case p.s.perpetual[t.Type] == nil: // the manager has a list of types of another process
		p.handBack(t)
	case t.unreported == 0:
		p.schedule(t, now.Add(time.Duration(t.DueMS)*time.Millisecond))
	}
}

// schedule sets the time of the next run.
func (p *perpetuals) schedule(t *perpetualTask, at time.Time) {
	t.at = at
	if t.index >= 0 {
		heap.Fix(&p.due, t.index)
	} else {
		heap.Push(&p.due, t)
	}
	wakeUp(p.wake)
}

// scheduleNext sets the time of the run after one that has ended now.
func (p *perpetuals) scheduleNext(t *perpetualTask, took time.Duration) {
	interval := time.Duration(t.IntervalMS) * time.Millisecond
	wait := perpetual.Next(t.Failures, interval, took)
	if t.Kick > t.kick {
		wait = 0
	} else if spread := wait / 10; spread > 0 { // tasks that began together drift apart
		wait += mathrand.N(spread) - spread/2
	}
	p.schedule(t, time.Now().Add(wait))
}

// startLoop starts the runs that are due, and cancels all when the lease is lost.
func (p *perpetuals) startLoop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next, done := p.start()
		if done {
			return
		}
		timer.Reset(next)
		select {
		case <-timer.C:
		case <-p.wake:
		}
	}
}

// start starts what is due, and returns the time until the next change. Done means that
// the session drains and nothing runs.
func (p *perpetuals) start() (next time.Duration, done bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.updateLeaving()
	p.expire(now)
	for !p.lapsed && p.running < mostPerpetualRuns && len(p.due) > 0 && !p.due[0].at.After(now) {
		t, _ := heap.Pop(&p.due).(*perpetualTask)
		p.begin(t)
	}
	next = time.Minute
	if !p.lapsed {
		next = min(next, p.leaseEnd.Sub(now))
	}
	if !p.lapsed && p.running < mostPerpetualRuns && len(p.due) > 0 {
		next = min(next, p.due[0].at.Sub(now))
	}
	return max(next, 0), p.ending() && p.running == 0
}

// counts returns the number of tasks and of active runs.
func (p *perpetuals) counts() (held, running int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.tasks), p.running
}
