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
	"unicode"
	"unicode/utf8"

	"github.com/delegate-io/dlite/manager/internal/queue"
	"github.com/delegate-io/dlite/task"
)

// SubmitStage queues a stage. If the account already has the same stage under the
// id, SubmitStage returns that one. It fails with [ErrInvalid], and with
// [ErrConflict] if something else has the id.
func (m *Manager) SubmitStage(ctx context.Context, account string, req StageRequest) (Stage, error) {
	s, _, err := m.submitStage(ctx, account, req)
	return s, err
}

func (m *Manager) submitStage(ctx context.Context, account string, req StageRequest) (s Stage, existed bool, err error) {
	ctx, span := m.startSubmit(ctx, account)
	defer func() { endSubmit(span, err) }()
	n, err := m.newRun(ctx, account, req)
	if err != nil {
		return Stage{}, false, err
	}
	trace, id := n.Trace, n.ID // the core owns the run from here on
	r, err := m.applyCommand(ctx, &command{Account: account, SubmitStage: n})
	if err != nil || r.existed {
		m.dropSpan(trace)
	}
	if err != nil {
		return Stage{}, r.existed, err
	}
	s, err = m.Stage(account, id)
	return s, r.existed, err
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
	c.submitted(account, stageKind, &n.lifecycle)
	c.publishStage(n)
	c.updateQueueLog(n)
	return false, nil
}

// queueWork returns the part of a run that the queue uses.
func (n *run) queueWork() *queue.Work {
	w := &queue.Work{
		ID: n.ID, Stage: true, Priority: priorities[n.Priority], Selectors: n.Selectors, Groups: n.groups,
		QueueTimeout: n.queueTimeout, RunTimeout: n.timeout.Duration(),
	}
	for v := range n.kinds {
		w.Variants = append(w.Variants, queue.Variant{Types: n.kinds[v][:], Task: n.init.task(n, v, n.SubmittedAt)})
	}
	return w
}

// newRun checks a request and prepares all payloads of the stage.
func (m *Manager) newRun(ctx context.Context, account string, req StageRequest) (*run, error) {
	_, err := m.checkCommon(account, req.ID, &req.Priority, &req.Selectors, req.Timeout, req.QueueTimeout, req.InitTimeout)
	if err != nil {
		return nil, err
	}
	if err := req.completeLimits(); err != nil {
		return nil, err
	}
	req.Infra = cmp.Or(req.Infra, "local")
	kinds := infra(req.Infra)
	if kinds == nil {
		return nil, fmt.Errorf("%w: infra %q is unknown; it may be local, vm or kubernetes", ErrInvalid, req.Infra)
	}
	n := &run{
		account: account, done: make(chan struct{}), kinds: kinds, timeout: req.Timeout,
		queueTimeout: cmp.Or(req.QueueTimeout.Duration(), m.cfg.QueueTimeout),
		Stage: Stage{
			ID: cmp.Or(req.ID, rand.Text()), Name: req.Name, Status: Queued, Selectors: emptyIfNil(req.Selectors),
			Priority: req.Priority, Infra: req.Infra, SubmittedAt: m.cfg.Clock.Now(),
			Pipeline: req.Pipeline, Labels: req.Labels,
		},
		groups: req.groups(), lifecycle: lifecycle{Retry: req.Retry},
	}
	if err := m.prepare(n, &req); err != nil {
		return nil, err
	}
	if n.digest, err = digest(req); err != nil {
		return nil, err
	}
	n.current = &n.init
	n.Trace = m.startSpan(ctx, "stage", account, n.ID, n.SubmittedAt)
	return n, nil
}

// maxLabels is the largest number of labels of a stage.
const maxLabels = 20

// completeLimits checks the pipeline, labels and retry policy and sets defaults.
func (req *StageRequest) completeLimits() error {
	if err := checkID("the pipeline", req.Pipeline); err != nil {
		return err
	}
	if len(req.Labels) > maxLabels {
		return fmt.Errorf("%w: the stage has %d labels; it may have %d", ErrInvalid, len(req.Labels), maxLabels)
	}
	for name, value := range req.Labels {
		if err := cmp.Or(checkID("a label", name), checkID("the label "+name, value)); err != nil {
			return err
		}
		if name == "" || strings.Contains(name, "=") {
			return fmt.Errorf("%w: a label is named %q; it needs a name without =", ErrInvalid, name)
		}
	}
	if req.Retry == nil {
		return nil
	}
	own := *req.Retry
	req.Retry = &own
	return req.Retry.complete()
}

// checkCommon checks the values that stages and single tasks have in common, and
// normalizes them.
func (m *Manager) checkCommon(account, id string, priority *string, selectors *[]string, timeouts ...task.Millis) (queue.Priority, error) {
	if _, ok := m.secrets[account]; !ok {
		return 0, fmt.Errorf("%w: there is no account %q", ErrInvalid, account)
	}
	if err := checkID("the id", id); err != nil {
		return 0, err
	}
	for _, t := range timeouts {
		if t < 0 {
			return 0, fmt.Errorf("%w: a time-out is negative", ErrInvalid)
		}
	}
	*selectors = slices.DeleteFunc(slices.Clone(*selectors), func(s string) bool { return strings.TrimSpace(s) == "" })
	*priority = cmp.Or(*priority, "NORMAL")
	p, ok := priorities[*priority]
	if !ok {
		return 0, fmt.Errorf("%w: priority is %q; it may be NORMAL or HIGH", ErrInvalid, *priority)
	}
	return p, nil
}

var priorities = map[string]queue.Priority{"NORMAL": queue.Normal, "HIGH": queue.High}

// maxID is the longest id that a submitter may choose, in bytes. Ids are parts of
// paths.
const maxID = 256

// maxSteps is the largest number of steps of a stage. An empty step takes three
// bytes in a request, but hundreds in memory.
const maxSteps = 10_000

// checkID refuses an id that cannot be a segment of a path. Delegates could not
// acquire such a task.
func checkID(what, id string) error {
	switch {
	case len(id) > maxID:
		return fmt.Errorf("%w: %s is longer than %d bytes", ErrInvalid, what, maxID)
	case id == "." || id == "..":
		return fmt.Errorf("%w: %s is %q, which has another meaning in a path", ErrInvalid, what, id)
	case strings.ContainsFunc(id, unicode.IsControl) || !utf8.ValidString(id):
		return fmt.Errorf("%w: %s contains a character that cannot be printed", ErrInvalid, what)
	}
	return nil
}

// digest returns a hash by which equal requests are recognized.
func digest(req any) (string, error) {
	b, err := json.Marshal(req)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	sum := sha256.Sum256(b)
	return base64.RawStdEncoding.EncodeToString(sum[:]), nil
}

// prepare builds the payloads. It normalizes the request, so that equal requests
// have equal digests.
func (m *Manager) prepare(n *run, req *StageRequest) error {
	var t stageIDs
	var err error
	n.init = newStep("init", task.Init, cmp.Or(req.InitTimeout, toMillis(m.cfg.TaskTimeout)))
	if n.init.data, err = payload("init", &req.Init, func(o object) error {
		t, err = fillInit(o, n.ID)
		n.init.LogKey = m.fillLog(o, n, initLogKey(n.ID))
		n.init.firstLog = n.init.LogKey
		n.log = o.logConfig()
		announceSteps(o, req.Steps)
		return err
	}); err != nil {
		return err
	}
	if len(req.Steps) > maxSteps {
		return fmt.Errorf("%w: the stage has %d steps; it may have %d", ErrInvalid, len(req.Steps), maxSteps)
	}
	req.Steps = slices.Clone(req.Steps)
	seen := map[string]bool{}
	for i := range req.Steps {
		s := &req.Steps[i]
		if err := s.complete(i); err != nil {
			return err
		}
		if seen[s.ID] {
			return fmt.Errorf("%w: two steps have the id %q", ErrInvalid, s.ID)
		}
		seen[s.ID] = true
		p := newStep(s.ID, task.Execute, s.Timeout)
		p.Name, p.runOn = s.Name, s.RunOn
		if p.data, err = payload("the data of step "+s.ID, &s.Data, func(o object) error {
			p.timeout = cmp.Or(p.timeout, o.seconds("timeout"), toMillis(m.cfg.TaskTimeout))
			fillStep(o, s, t, n.Infra)
			p.LogKey = m.fillLog(o, n, logKey(n.ID, s.ID))
			p.firstLog = p.LogKey
			return nil
		}); err != nil {
			return err
		}
		n.steps = append(n.steps, p)
	}
	n.cleanup = newStep("cleanup", task.Cleanup, toMillis(m.cfg.CleanupTimeout))
	n.cleanup.data, err = payload("cleanup", &req.Cleanup, func(o object) error {
		fillCleanup(o, t)
		return nil
	})
	return err
}

// complete checks the step with index i and sets its defaults.
func (s *StepRequest) complete(i int) error {
	s.ID = cmp.Or(s.ID, fmt.Sprintf("step%d", i+1))
	if err := checkID("the id of a step", s.ID); err != nil {
		return err
	}
	s.Name = cmp.Or(s.Name, s.ID)
	s.RunOn = cmp.Or(s.RunOn, runOnSuccess)
	switch s.RunOn {
	case runOnSuccess, runOnFailure, runOnAlways:
	default:
		return fmt.Errorf("%w: run_on of step %q is %q; it may be success, failure or always", ErrInvalid, s.ID, s.RunOn)
	}
	if s.Timeout < 0 {
		return fmt.Errorf("%w: the time-out of step %q is negative", ErrInvalid, s.ID)
	}
	return nil
}

func toMillis(d time.Duration) task.Millis { return task.Millis(d.Milliseconds()) }
