package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
	"github.com/delegate-io/dlite/manager/pipeline/internal/expression"
)

// The values of a trigger's inputs stay expressions when a run starts: the engine evaluates <+trigger.prTitle> where it
// is used, as data. A rendered title would become text of the pipeline's author, which is evaluated again.

const mostTriggerInputs = 100

// checkTarget checks the pipeline, the input sets and the inputs of a trigger.
func (s *Service) checkTarget(ctx context.Context, account string, t *savedTrigger) error {
	req := t.request()
	if err := s.resolve(ctx, account, &req); err != nil {
		return err
	}
	if len(t.Inputs) > mostTriggerInputs {
		return fmt.Errorf("%w: inputs has %d members; it may have %d", ErrInvalid, len(t.Inputs), mostTriggerInputs)
	}
	for _, name := range slices.Sorted(maps.Keys(t.Inputs)) {
		if err := t.checkInput(t.Inputs[name]); err != nil {
			return fmt.Errorf("%w: inputs.%s: %w", ErrInvalid, name, err)
		}
	}
	doc := document{
		Source: Source{Name: req.Name, Text: []byte(req.YAML)}, InputSets: req.sets, Inputs: req.Inputs, SkipOtherStages: req.SkipOtherStages,
		StepTypes: stepTypes(s.cfg.Settings),
	}
	p, problems := doc.read(s.cfg.Templates, false)
	if p == nil {
		return fmt.Errorf("%w: %w", ErrInvalid, problems)
	}
	if _, err := selectStages(p, &req.RunRequest); err != nil {
		return err
	}
	return req.check()
}

// checkInput checks the expressions of an input.
func (t *savedTrigger) checkInput(text string) error {
	template, err := expression.Parse(text)
	if err != nil {
		return err
	}
	for _, ref := range template.References() {
		root, _, _ := strings.Cut(ref.Name, ".")
		if !ref.Secret && t.Kind == cronTrigger && (root == "trigger" || root == "codebase") {
			return fmt.Errorf("<+%s> has no value at a time of cron", ref.Name)
		}
	}
	return nil
}

// request returns the request that the trigger starts.
func (t *savedTrigger) request() request {
	labels := map[string]string{"trigger": t.ID}
	maps.Copy(labels, t.Labels)
	return request{RunRequest: api.RunRequest{Pipeline: t.Pipeline, InputSetNames: t.InputSetNames, Inputs: t.Inputs, Stages: t.Stages, Labels: labels, CommitStatus: t.CommitStatus}}
}

// checkValues checks the values that the inputs of a trigger have in a run against what the pipeline permits. The
// values come from outside, so that allowedValues and regex must hold for them too.
func (s *Service) checkValues(doc *document) error {
	dynamic := false
	for _, text := range doc.Inputs {
		dynamic = dynamic || strings.Contains(text, "<+")
	}
	if !dynamic {
		return nil
	}
	find := func(ref, version string) (Source, bool) {
		t, ok := doc.Templates[ref+"@"+version]
		return t, ok
	}
	inputs, problems := definition.Inputs(doc.Source, definition.Options{Templates: find, SkipOtherStages: doc.SkipOtherStages, StepTypes: doc.StepTypes})
	if problems.Errors() {
		return fmt.Errorf("%w: %w", ErrInvalid, problems)
	}
	for _, name := range slices.Sorted(maps.Keys(doc.Inputs)) {
		for i := range inputs {
			in := &inputs[i]
			if in.Path != name && !strings.HasSuffix(in.Path, "."+name) {
				continue
			}
			if err := checkValue(in, doc, doc.Inputs[name]); err != nil {
				return fmt.Errorf("%w: the value of the input %s: %w", ErrInvalid, in.Path, err)
			}
		}
	}
	return nil
}

func checkValue(in *definition.Input, doc *document, text string) error {
	if !strings.Contains(text, "<+") || len(in.Allowed) == 0 && in.Pattern == "" {
		return nil
	}
	template, err := expression.Parse(text)
	if err != nil {
		return err
	}
	value, err := template.Render(&expression.Environment{
		Scope: outsideScope{"trigger": map[string]any(doc.Run.Trigger), "codebase": map[string]any(doc.Run.Codebase)}, Time: doc.Run.StartedAt, Secrets: expression.Refuse,
	})
	if err != nil {
		return err
	}
	if value == nil {
		return errors.New("it has no value in this delivery")
	}
	return in.Check(fmt.Sprint(value))
}

// outsideScope knows the values of a trigger only.
type outsideScope map[string]map[string]any

func (s outsideScope) Lookup(name string) (any, bool) {
	v, ok := s[name]
	return v, ok
}

func (s outsideScope) Names() []string { return slices.Sorted(maps.Keys(s)) }
