package manager

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/delegate-io/dlite/internal/taskkind"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/internal/queue"
	"github.com/delegate-io/dlite/task"
)

// SubmitStage queues a stage. If the account already has the same stage under the
// id, SubmitStage returns that one. It fails with [ErrInvalid] and [ErrBudget], and
// with [ErrConflict] if something else has the id.
func (m *Manager) SubmitStage(ctx context.Context, account string, req api.StageRequest) (api.Stage, error) {
	s, _, err := m.submitStage(ctx, account, req)
	return s, err
}

func (m *Manager) submitStage(ctx context.Context, account string, req api.StageRequest) (s api.Stage, existed bool, err error) {
	ctx, span := m.startSubmit(ctx, account)
	defer func() { endSubmit(span, err) }()
	n, err := m.newRun(ctx, account, req)
	if err != nil {
		return api.Stage{}, false, err
	}
	release, err := m.takeWork(account, n.ID, n.size)
	if err != nil {
		m.dropSpan(n.Trace)
		return api.Stage{}, false, err
	}
	defer release()
	trace, id := n.Trace, n.ID // the core owns the run from here on
	r, err := m.applyCommand(ctx, &command{Account: account, SubmitStage: n})
	if err != nil || r.existed {
		m.dropSpan(trace)
	}
	if err != nil {
		return api.Stage{}, r.existed, err
	}
	s, err = m.Stage(account, id)
	return s, r.existed, err
}

// takeWork books a stage or single task, unless the account has one with the id. The
// booking lasts until the state contains the work.
func (m *Manager) takeWork(account, id string, size int) (release func(), err error) {
	if m.core.exists(key{account, id}) {
		return func() {}, nil
	}
	return m.budgets.take(account, workAmounts(size))
}

func (c *core) exists(k key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stages[k] != nil || c.tasks[k] != nil
}

// submitStage adds a run, unless it exists.
func (c *core) submitStage(account string, n *run) (existed bool, err error) {
	k := key{account, n.ID}
	if old := c.stages[k]; old != nil {
		if old.digest != n.digest {
			return true, fmt.Errorf("%w: there is another stage %q", ErrConflict, n.ID)
		}
		return true, nil
	}
	n.SubmittedAt = c.at
	if err := c.queue.Submit(account, n.queueWork()); err != nil {
		return false, fmt.Errorf("%w: %w", ErrConflict, err)
	}
	c.order++
	n.order = c.order
	c.stages[k] = n
	c.addToList(n)
	if n.held != nil {
		c.opened(account, 1)
	}
	c.occupy(account, workAmounts(n.size), 1)
	c.submitted(account, stageKind, &n.lifecycle)
	c.publishStage(n)
	c.updateQueueLog(n)
	return false, nil
}

// queueWork returns the part of a run that the queue uses.
func (n *run) queueWork() *queue.Work {
	w := &queue.Work{
		ID: n.ID, Stage: true, Priority: priorities[n.Priority], Selectors: n.Selectors, Groups: n.groups,
		QueueTimeout: n.queueTimeout, RunTimeout: n.timeout.Duration(), Lease: n.leaseTime(), Size: n.keptSize(),
	}
	for v := range n.kinds {
		w.Variants = append(w.Variants, queue.Variant{Types: n.kinds[v][:], Task: n.init.task(n, v, n.SubmittedAt)})
	}
	return w
}

// newRun checks a request and prepares all payloads of the stage.
func (m *Manager) newRun(ctx context.Context, account string, req api.StageRequest) (*run, error) {
	if err := firstError(m.checkAccount(account), checkStage(&req)); err != nil {
		return nil, err
	}
	if _, err := checkPriority(&req.Priority); err != nil {
		return nil, err
	}
	req.Selectors, req.Retry = withoutBlank(req.Selectors), completeRetry(req.Retry)
	req.Infra = cmp.Or(req.Infra, "local")
	kinds := infra(req.Infra)
	if kinds == nil {
		return nil, checkOneOf("infra", req.Infra, "local", "vm", "kubernetes")
	}
	n := &run{
		account: account, done: make(chan struct{}), kinds: kinds, timeout: task.Millis(req.TimeoutMS),
		queueTimeout: cmp.Or(task.Millis(req.QueueTimeoutMS).Duration(), m.cfg.QueueTimeout),
		Stage: api.Stage{
			ID: cmp.Or(req.ID, rand.Text()), Name: req.Name, Status: api.Queued, Selectors: emptyIfNil(req.Selectors),
			Priority: req.Priority, Infra: req.Infra, SubmittedAt: m.cfg.Clock.Now(),
			Pipeline: req.Pipeline, Labels: req.Labels,
		},
		groups: groupsOf(&req), lifecycle: lifecycle{Retry: req.Retry},
	}
	if req.Hold != nil {
		n.held = newHeld(req.Hold)
	}
	if err := m.prepare(n, &req); err != nil {
		return nil, err
	}
	n.indexSteps()
	var err error
	if n.digest, n.size, err = digest(req, submissionBounds); err != nil {
		return nil, err
	}
	n.size += (len(n.steps) + 2) * partSize
	n.current = &n.init
	n.Trace = m.startSpan(ctx, "stage", account, n.ID, n.SubmittedAt)
	return n, nil
}

// checkAccount returns an error if the manager does not know an account.
func (m *Manager) checkAccount(account string) error {
	if _, ok := m.auth.secrets[account]; !ok {
		return fmt.Errorf("%w: there is no account %q", ErrInvalid, account)
	}
	return nil
}

// withoutBlank returns the selectors that name a tag.
func withoutBlank(selectors []string) []string {
	return slices.DeleteFunc(slices.Clone(selectors), func(s string) bool { return strings.TrimSpace(s) == "" })
}

var priorities = map[string]queue.Priority{"NORMAL": queue.Normal, "HIGH": queue.High}

// digest returns a hash by which equal requests are recognized, and the size of the JSON
// of the request. It fails if the JSON exceeds the bounds.
func digest(req any, bounds textBounds) (sum string, size int, err error) {
	b, err := json.Marshal(req)
	if err != nil {
		return "", 0, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := bounds.check(b, ""); err != nil {
		return "", 0, err
	}
	hash := sha256.Sum256(b)
	return base64.RawStdEncoding.EncodeToString(hash[:]), len(b), nil
}

// prepare builds the payloads. It normalizes the request, so that equal requests
// have equal digests.
func (m *Manager) prepare(n *run, req *api.StageRequest) error {
	var t stageIDs
	var err error
	n.init = newStep("init", taskkind.Init, cmp.Or(task.Millis(req.InitTimeoutMS), toMillis(m.cfg.TaskTimeout)))
	if n.init.data.text, err = payload("init", &req.Init, func(o object) error {
		if t, err = fillInit(o, n.ID); err != nil {
			return err
		}
		if n.init.LogKey, err = m.fillLog(o, n, "init", initLogKey(n.ID)); err != nil {
			return err
		}
		n.init.firstLog = n.init.LogKey
		n.log = o.logConfig()
		if err := m.checkLogURL(n.account, n.ID, n.log); err != nil {
			return err
		}
		announceSteps(o, announced(req))
		return nil
	}); err != nil {
		return err
	}
	if n.held != nil {
		n.held.ids = t
	}
	req.Steps = slices.Clone(req.Steps)
	seen := map[string]bool{}
	for i := range req.Steps {
		s, path := &req.Steps[i], fmt.Sprintf("steps[%d]", i)
		completeStep(s, i)
		if seen[s.ID] {
			return repeatedStep(path, s.ID)
		}
		seen[s.ID] = true
		p, err := m.prepareStep(n, t, path, s)
		if err != nil {
			return err
		}
		n.steps = append(n.steps, p)
	}
	n.cleanup = newStep("cleanup", taskkind.Cleanup, toMillis(m.cfg.CleanupTimeout))
	n.cleanup.data.text, err = payload("cleanup", &req.Cleanup, func(o object) error {
		fillCleanup(o, t)
		return nil
	})
	return err
}

// prepareStep builds the payload of a step. It normalizes the request like prepare.
func (m *Manager) prepareStep(n *run, t stageIDs, path string, s *api.StepRequest) (step, error) {
	p := newStep(s.ID, taskkind.Execute, task.Millis(s.TimeoutMS))
	p.Name, p.runOn = s.Name, s.RunOn
	var err error
	if p.data.text, err = payload(path+".data", &s.Data, func(o object) error {
		p.timeout = cmp.Or(p.timeout, o.seconds("timeout"), toMillis(m.cfg.TaskTimeout))
		if err := checkDuration("the milliseconds of "+path+".data.timeout", p.timeout); err != nil {
			return err
		}
		fillStep(o, s, t, n.Infra)
		p.LogKey, err = m.fillLog(o, n, path+".data", logKey(n.ID, s.ID))
		p.firstLog = p.LogKey
		return err
	}); err != nil {
		return step{}, err
	}
	p.data = pack(p.data.text)
	return p, nil
}

// repeatedStep returns the error for a step with the id of an earlier one.
func repeatedStep(path, id string) error {
	return fmt.Errorf("%w: %s.id is %q, like that of an earlier step", ErrInvalid, path, id)
}

// complete sets the defaults of the step with index i.
func completeStep(s *api.StepRequest, i int) {
	s.ID = cmp.Or(s.ID, fmt.Sprintf("step%d", i+1))
	s.Name = cmp.Or(s.Name, s.ID)
	s.RunOn = cmp.Or(s.RunOn, runOnSuccess)
}

func toMillis(d time.Duration) task.Millis { return task.Millis(d.Milliseconds()) }
