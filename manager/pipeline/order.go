package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/delegate-io/dlite/manager/pipeline/internal/engine"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// Order is what a person asks of a run.
type Order struct {
	// Node is the path of the node. An abort without it is for the whole run, and a retry
	// without it begins with the first stage that did not succeed.
	Node string `json:"node,omitempty"`
	// By names the person, and Reason says why, for an abort.
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Answer belongs to [Service.Answer].
	Answer *Answer `json:"answer,omitempty"`
}

// Answer is the answer to a node that waits for a person: an action for INTERVENTION_WAITING,
// an approval for APPROVAL_WAITING, and inputs for INPUT_WAITING.
type Answer = engine.Answer

// Abort aborts a run, a stage, a group or a step. Its status is CANCELLING until the delegates
// confirm. Abort fails with [ErrNotFound], and with [ErrConflict] if the node has ended.
func (s *Service) Abort(ctx context.Context, account, id string, o Order) (Run, error) {
	return s.order(ctx, account, id, engine.Event{Kind: engine.Abort, Node: o.Node, By: o.By, Reason: o.Reason})
}

// Retry runs an ended run again from a stage. Earlier stages keep their results and outputs. It
// fails with [ErrNotFound], and with [ErrConflict] if the run has not ended.
func (s *Service) Retry(ctx context.Context, account, id string, o Order) (Run, error) {
	return s.order(ctx, account, id, engine.Event{Kind: engine.RetryRun, Node: o.Node, By: o.By, Reason: o.Reason})
}

// Answer answers a node that waits for a person. It fails with [ErrNotFound], and with
// [ErrConflict] if the node does not wait for this answer.
func (s *Service) Answer(ctx context.Context, account, id string, o Order) (Run, error) {
	if o.Answer == nil {
		return Run{}, fmt.Errorf("%w: answer is missing", ErrInvalid)
	}
	return s.order(ctx, account, id, engine.Event{Kind: engine.Answered, Node: o.Node, By: o.By, Answer: o.Answer})
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

func (s *Service) order(ctx context.Context, account, id string, e engine.Event) (Run, error) {
	if err := checkOrder(&e); err != nil {
		return Run{}, err
	}
	var run Run
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
		return Run{}, fmt.Errorf("%w: %s", ErrConflict, refused.Reason)
	}
	if err != nil {
		return Run{}, err
	}
	return run, nil
}

// Again starts a new run with the definition and the inputs of another one. It fails with
// [ErrNotFound].
func (s *Service) Again(ctx context.Context, account, id string, o Order) (Run, error) {
	head, doc, err := s.document(ctx, account, id)
	if err != nil {
		return Run{}, err
	}
	previous := summary(head)
	by, email := doc.Run.User, doc.Run.Email
	if o.By != "" {
		by, email = o.By, "" // the address belongs to the person behind the first run
	}
	req := Request{
		YAML: string(doc.Source.Text), Name: doc.Source.Name, Inputs: doc.Inputs, Stages: doc.Run.Stages, SkipOtherStages: doc.SkipOtherStages,
		Cause: head.Cause, User: by, Email: email, Branch: head.Branch, Trigger: doc.Run.Trigger, Codebase: doc.Run.Codebase,
		Variables: doc.Run.Variables, Labels: previous.Labels, templates: doc.Templates,
	}
	for _, set := range doc.InputSets {
		req.InputSets = append(req.InputSets, string(set.Text))
	}
	return s.Start(ctx, account, req)
}

// head returns a run without its nodes.
func (s *Service) head(ctx context.Context, account, id string) (*store.Run, error) {
	head, err := s.store.Head(ctx, account, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("run %s: %w", id, ErrNotFound)
	}
	return head, err
}

// definition returns the definition of a run. It fails with [ErrNotFound] if the run has expired since it was read.
func (s *Service) definition(ctx context.Context, run *store.Run) ([]byte, error) {
	definition, err := s.store.Definition(ctx, run)
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("run %s: %w", run.ID, ErrNotFound)
	}
	return definition, err
}

// document returns a run and its constant part. It fails with [ErrNotFound].
func (s *Service) document(ctx context.Context, account, id string) (*store.Run, *document, error) {
	head, err := s.head(ctx, account, id)
	if err != nil {
		return nil, nil, err
	}
	definition, err := s.definition(ctx, head)
	if err != nil {
		return nil, nil, err
	}
	var doc document
	if err := json.Unmarshal(definition, &doc); err != nil {
		return nil, nil, broken("decoding run %s: %w", id, err)
	}
	return head, &doc, nil
}
