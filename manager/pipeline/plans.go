package pipeline

import (
	"fmt"
	"strings"

	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
)

// plansOf returns what the author has written about each stage, group and step, by its path in
// the definition.
func plansOf(p *definition.Pipeline) map[string]Plan {
	plans := map[string]Plan{}
	for _, item := range p.Stages {
		stages := item.Parallel
		if item.Stage != nil {
			stages = append(stages, item.Stage)
		}
		for _, st := range stages {
			path := "pipeline.stages." + st.Identifier
			plans[path] = planOf(st.When, st.FailureStrategies)
			addSteps(plans, path+".spec.execution.steps.", st.Steps)
		}
	}
	return plans
}

func addSteps(plans map[string]Plan, prefix string, items []definition.StepItem) {
	for _, item := range items {
		switch {
		case item.Step != nil:
			plans[prefix+item.Step.Identifier] = planOf(item.Step.When, item.Step.FailureStrategies)
		case item.Group != nil:
			path := prefix + item.Group.Identifier
			plans[path] = planOf(item.Group.When, item.Group.FailureStrategies)
			addSteps(plans, path+".steps.", item.Group.Steps)
		}
		addSteps(plans, prefix, item.Parallel)
	}
}

func planOf(when *definition.When, strategies []*definition.FailureStrategy) Plan {
	var p Plan
	if when != nil {
		p.When = when.Status
		if when.Condition != nil {
			p.Condition = strings.TrimSpace(fmt.Sprint(when.Condition.Value))
		}
	}
	for _, f := range strategies {
		action := "none"
		if f.Action != nil {
			action = f.Action.Type
		}
		p.Failure = append(p.Failure, strings.Join(f.Errors, ", ")+": "+action)
	}
	return p
}
