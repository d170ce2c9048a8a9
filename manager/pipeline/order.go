package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
	"github.com/delegate-io/dlite/manager/pipeline/internal/engine"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// Abort aborts a run, a stage, a group or a step. Its status is CANCELLING until the delegates
// confirm. Nothing changes if the node has ended. Abort fails with [ErrNotFound].
func (s *Service) Abort(ctx context.Context, account, id string, o api.Order) (api.Run, error) {
	return s.order(ctx, account, id, engine.Event{Kind: engine.Abort, Node: o.Node, By: o.By, Reason: o.Reason})
}

// Retry runs an ended run again from a stage. Earlier stages keep their results and outputs. While a failed step waits
// for an intervention, Retry runs its stage again from a step or group of it. It fails with [ErrNotFound], and with
// [ErrConflict] if the node cannot be retried now; the message has the reason.
func (s *Service) Retry(ctx context.Context, account, id string, o api.Order) (api.Run, error) {
	return s.order(ctx, account, id, engine.Event{Kind: engine.RetryRun, Node: o.Node, By: o.By, Reason: o.Reason})
}

// Answer answers a node that waits for a person. It fails with [ErrNotFound], and with
// [ErrConflict] if the node does not wait for this answer.
func (s *Service) Answer(ctx context.Context, account, id string, o api.Order) (api.Run, error) {
	if o.Answer == nil {
		return api.Run{}, fmt.Errorf("%w: answer is missing", ErrInvalid)
	}
	given := engine.Answer(*o.Answer)
	return s.order(ctx, account, id, engine.Event{Kind: engine.Answered, Node: o.Node, By: o.By, Answer: &given})
}

// checkOrder bounds the texts of an order, which are kept with the run.
func checkOrder(e *engine.Event) error {
	const mostInputs = 100
	texts := map[string]string{"node": e.Node, "by": e.By, "reason": e.Reason}
	if a := e.Answer; a != nil {
		texts["answer.action"], texts["answer.comment"] = a.Action, a.Comment
		if len(a.Inputs) > mostInputs {
			return fmt.Errorf("%w: answer.inputs has %d members; it may have %d", ErrInvalid, len(a.Inputs), mostInputs)
		}
		for name, value := range a.Inputs {
			texts["answer.inputs."+name] = value
		}
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if err := checkText(name, texts[name], mostOrderText); err != nil {
			return err
		}
	}
	return nil
}

// mostOrderText bounds each text of an order, in bytes.
const mostOrderText = 4096

func (s *Service) order(ctx context.Context, account, id string, e engine.Event) (api.Run, error) {
	if err := checkOrder(&e); err != nil {
		return api.Run{}, err
	}
	var run api.Run
	change := func(tx *store.Tx, live *liveRun) error {
		if e.Node != "" && live.state.Nodes[e.Node] == nil {
			return fmt.Errorf("node %s: %w", e.Node, ErrNotFound)
		}
		turn := runTurn{live: live, changed: map[string]*engine.Node{}}
		if err := turn.apply(e); err != nil {
			return err
		}
		if err := turn.save(tx); err != nil {
			return err
		}
		run = detail(live)
		return nil
	}
	err := s.edit(ctx, runKey{account, id}, func(tx *store.Tx, run *store.Run) (*liveRun, error) { return s.loadFor(tx, run, change) })
	var refused *engine.RefusedError
	if errors.As(err, &refused) {
		return api.Run{}, fmt.Errorf("%w: %s", ErrConflict, refused.Reason)
	}
	if err != nil {
		return api.Run{}, err
	}
	return run, nil
}

// Again starts a new run with the definition and the inputs of another one. It fails with
// [ErrNotFound].
func (s *Service) Again(ctx context.Context, account, id string, o api.Order) (api.Run, error) {
	head, doc, err := s.document(ctx, account, id)
	if err != nil {
		return api.Run{}, err
	}
	previous := summary(head)
	by, email := doc.Run.User, doc.Run.Email
	if o.By != "" {
		by, email = o.By, "" // the address belongs to the person behind the first run
	}
	req := request{templates: doc.Templates, RunRequest: api.RunRequest{
		YAML: string(doc.Source.Text), Name: doc.Source.Name, Inputs: doc.Inputs, Stages: doc.Run.Stages, SkipOtherStages: doc.SkipOtherStages,
		Cause: head.Cause, User: by, Email: email, Branch: head.Branch, Trigger: doc.Run.Trigger, Codebase: doc.Run.Codebase,
		Variables: doc.Run.Variables, Labels: previous.Labels,
	}}
	var f facts
	if err := json.Unmarshal(head.State, &f); err == nil && f.Commit != nil && f.Commit.Connector != "" {
		req.again, req.CommitStatus = true, &api.CommitStatus{Connector: f.Commit.Connector, Context: f.Commit.Context}
	}
	if hold := doc.Run.HoldFailed; hold > 0 {
		req.HoldFailed = strconv.FormatInt(int64(hold/time.Second), 10) + "s"
	}
	for _, set := range doc.InputSets {
		req.InputSets = append(req.InputSets, string(set.Text))
	}
	return s.startRun(ctx, account, &req)
}

// head returns a run without its nodes.
func (s *Service) head(ctx context.Context, account, id string) (*store.Run, error) {
	head, err := s.store.Head(ctx, account, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("run %s: %w", id, ErrNotFound)
	}
	return head, err
}

// rows returns a run with the rows of its nodes. It fails with [ErrNotFound].
func (s *Service) rows(ctx context.Context, account, id string) (*store.Run, []store.Node, error) {
	head, nodes, err := s.store.Run(ctx, account, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil, fmt.Errorf("run %s: %w", id, ErrNotFound)
	}
	return head, nodes, err
}

// plan returns the constant part of a run, and its pipeline. It fails with [ErrNotFound], and with [ErrConflict] if this
// version cannot read the pipeline.
func (s *Service) plan(ctx context.Context, run *store.Run) (*constant, *definition.Pipeline, error) {
	fixed, err := s.constant(ctx, run)
	if err != nil {
		return nil, nil, err
	}
	p, err := s.cache.plan(fixed.plan, fixed.doc, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: the pipeline of run %s cannot be read by this version of the service: %w", ErrConflict, run.ID, err)
	}
	return fixed, p.pipeline, nil
}

// constant returns the constant part of a run. It fails with [ErrNotFound] if the run has expired since it was read.
func (s *Service) constant(ctx context.Context, run *store.Run) (*constant, error) {
	fixed, err := s.cache.constant(run, func() ([]byte, error) { return s.store.Definition(ctx, run) })
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("run %s: %w", run.ID, ErrNotFound)
	}
	return fixed, err
}

// document returns a run and its constant part. It fails with [ErrNotFound].
func (s *Service) document(ctx context.Context, account, id string) (*store.Run, *document, error) {
	head, err := s.head(ctx, account, id)
	if err != nil {
		return nil, nil, err
	}
	fixed, err := s.constant(ctx, head)
	if err != nil {
		return nil, nil, err
	}
	return head, fixed.doc, nil
}
