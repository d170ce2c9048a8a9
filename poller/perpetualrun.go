package poller

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/delegate-io/dlite/internal/perpetual"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/task"
)

// begin starts a run.
func (p *perpetuals) begin(t *perpetualTask) {
	ctx, cancel := context.WithCancelCause(p.s.work)
	t.cancel, t.kick = cancel, t.Kick
	p.running++
	run := &task.PerpetualRun{
		ID: t.ID, Type: t.Type, Account: t.Account, Token: t.Token, Failures: t.Failures,
		Config: slices.Clone(t.Config), State: slices.Clone(t.State),
	}
	timeout := time.Duration(t.TimeoutMS) * time.Millisecond
	p.runs.Go(func() {
		defer cancel(nil)
		began := time.Now()
		ctx := logger.NewContext(ctx, logger.Labels{Account: run.Account, Task: run.ID, TaskType: run.Type}.Apply(p.s.log))
		ctx = logger.ContextWithLabels(ctx, logger.Labels{Delegate: p.s.name})
		r, err := p.call(ctx, timeout, run)
		p.finish(t, r, err, context.Cause(ctx), began)
	})
}

// call calls the handler. A panic is an error.
func (p *perpetuals) call(ctx context.Context, timeout time.Duration, run *task.PerpetualRun) (r *task.PerpetualResult, err error) {
	if timeout > 0 {
		var end context.CancelFunc
		ctx, end = context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the run took longer than its time-out of %s", timeout))
		defer end()
	}
	defer func() {
		if v := recover(); v != nil {
			p.s.taskLog(run.ID, run.Type).Error().Bytes("stack", debug.Stack()).Msgf("the handler of a perpetual task panicked: %v", v)
			r, err = nil, fmt.Errorf("the handler panicked: %v", v)
		}
	}()
	r, err = p.s.perpetual[run.Type].RunPerpetual(ctx, run)
	if err != nil && ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
		err = fmt.Errorf("%w (%w)", err, context.Cause(ctx))
	}
	return r, err
}

// finish records the end of a run.
func (p *perpetuals) finish(t *perpetualTask, r *task.PerpetualResult, err, cancelled error, began time.Time) {
	if err == nil {
		if err = r.Check(); err != nil {
			err = fmt.Errorf("the result of the run: %w", err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t.cancel = nil
	p.running--
	now := time.Now()
	if err == nil || cancelled == nil {
		p.addResult(t, r, err, began, now)
	} else {
		p.s.counters.perpetualRan(perpetualCancelled)
	}
	switch {
	case t.gone:
		p.remove(t)
		if t.next != nil {
			p.install(t.next, now)
		}
	case t.Withdraw != "" || p.leaving:
		p.handBack(t)
	case t.unreported == 0:
		p.scheduleNext(t, now.Sub(began))
	}
	wakeUp(p.wake)
	wakeUp(p.report)
}

// addResult queues a result for the report. One that changes nothing may wait, together
// with others of its kind.
func (p *perpetuals) addResult(t *perpetualTask, r *task.PerpetualResult, err error, began, now time.Time) {
	p.count++
	res := &pendingResult{began: began, ended: now, queued: now, Result: perpetual.Result{Claim: t.Claim, Run: p.count, Runs: 1, Kick: t.kick}}
	switch {
	case err != nil:
		p.s.counters.perpetualRan(perpetualFailed)
		res.Error = strings.ToValidUTF8(err.Error(), "\uFFFD")
		if len(res.Error) > perpetual.MaxError {
			res.Error = strings.ToValidUTF8(res.Error[:perpetual.MaxError], "")
		}
		if res.Error == "" {
			res.Error = "the handler returned an error without a text"
		}
		t.Failures++
		p.s.taskLog(t.ID, t.Type).Warn().Err(err).Int("failures", t.Failures).Msg("a run of a perpetual task failed")
	default:
		p.s.counters.perpetualRan(perpetualOK)
		if r != nil && len(r.State) > 0 && string(r.State) != string(t.State) {
			res.State = slices.Clone(r.State)
		}
		if r != nil {
			res.Events = r.Events
		}
		res.lazy = len(res.State) == 0 && len(res.Events) == 0 && t.Failures == 0
		t.Failures = 0
	}
	if res.lazy {
		for _, old := range p.results {
			if old.lazy && !old.sent && old.Claim == res.Claim {
				res.Runs, res.queued = res.Runs+old.Runs, old.queued
				*old = *res
				return
			}
		}
	} else {
		t.unreported++
	}
	p.results = append(p.results, res)
}

// taken notes that the manager has taken or refused a result for good.
func (p *perpetuals) taken(r *pendingResult, refused string) {
	t := p.tasks[r.ID]
	if refused != "" {
		p.s.counters.perpetualRefused.Add(1)
		p.s.taskLog(r.ID, "").Warn().Str("reason", refused).Uint64("token", r.Token).Msg("the manager refused the result of a perpetual task")
	}
	if r.lazy {
		return
	}
	if t == nil || t.Token != r.Token {
		if refused == "" {
			p.late++
			p.askAgain()
		}
		return
	}
	t.unreported--
	if refused != "" {
		p.lose(t)
		p.askAgain()
		return
	}
	if len(r.State) > 0 {
		t.State = r.State
	}
	if !t.gone && !t.isRunning() && t.unreported == 0 && t.index < 0 {
		p.scheduleNext(t, r.ended.Sub(r.began))
	}
}

// dueTasks is a heap of tasks by the time of their next run.
type dueTasks []*perpetualTask

func (d dueTasks) Len() int           { return len(d) }
func (d dueTasks) Less(i, j int) bool { return d[i].at.Before(d[j].at) }
func (d dueTasks) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}

func (d *dueTasks) Push(x any) {
	t, _ := x.(*perpetualTask)
	t.index = len(*d)
	*d = append(*d, t)
}

func (d *dueTasks) Pop() any {
	old := *d
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*d = old[:len(old)-1]
	t.index = -1
	return t
}
