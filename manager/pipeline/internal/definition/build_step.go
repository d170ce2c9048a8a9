package definition

import (
	"fmt"
	"maps"
	"slices"
)

func (r *reader) stepItems(n *Node, at *path) []StepItem {
	if n == nil || n.Kind != List {
		return nil
	}
	result := make([]StepItem, 0, len(n.Items))
	for i, item := range n.Items {
		here := at.item(i)
		built := StepItem{Position: item.Position}
		switch {
		case item.Get("step") != nil:
			built.Step = r.step(item.Get("step"), here.at("step"))
		case item.Get("stepGroup") != nil:
			built.Group = r.group(item.Get("stepGroup"), here.at("stepGroup"))
		case item.Get("parallel") != nil:
			built.Parallel = r.stepItems(item.Get("parallel"), here.at("parallel"))
		}
		if built.Step != nil || built.Group != nil || len(built.Parallel) > 0 {
			result = append(result, built)
		}
	}
	return result
}

func (r *reader) step(n *Node, at *path) *Step {
	if n.Kind != Map {
		return nil
	}
	s := &Step{Position: n.Position, Type: n.Get("type").Text(), Description: n.Get("description").Text(), Spec: n.Get("spec"),
		Timeout: n.Get("timeout"), When: when(n.Get("when"), "stageStatus")}
	s.Identifier, s.Name = r.identity(n, at)
	s.Strategy = r.strategy(n.Get("strategy"), at.at("strategy"))
	s.FailureStrategies = r.failureStrategies(n.Get("failureStrategies"), at.at("failureStrategies"))
	r.checkStepType(s, n, at)
	return s
}

// checkStepType reports steps that cannot run.
func (r *reader) checkStepType(s *Step, n *Node, at *path) {
	variants := known().variants["step types"]
	where := n.Position
	if node := n.Get("type"); node != nil {
		where = node.Position
	}
	if _, ok := variants[s.Type]; ok {
		r.checkStepSpec(s, at)
		return
	}
	if r.types[s.Type] {
		return
	}
	subject := fmt.Sprintf("the step %s", quote(s.Identifier))
	switch {
	case s.Type == "":
		r.error(where, "missing-key", at, subject+" needs the key type", "write type: Run for a script")
	case refusedSteps()[s.Type] != "":
		r.error(where, "unsupported-step-type", at.at("type"), fmt.Sprintf("%s has the type %s, which cannot run here", subject, s.Type), refusedSteps()[s.Type])
	default:
		r.error(where, "unknown-step-type", at.at("type"), fmt.Sprintf("%s has the unknown type %s", subject, quote(s.Type)),
			r.suggest(s.Type, slices.Collect(maps.Keys(variants))))
	}
}

// checkStepSpec reports settings of a step without which it cannot run.
func (r *reader) checkStepSpec(s *Step, at *path) {
	has := func(name string) bool { return s.Spec.Get(name) != nil }
	missing := ""
	switch s.Type {
	case "Run", "Background", "Test":
		if !has("command") && !has("image") && !has("entrypoint") {
			missing = "command"
		}
	case "Plugin":
		if !has("image") {
			missing = "image"
		}
	case "BuildAndPushDockerRegistry":
		if !has("repo") {
			missing = "repo"
		}
		if !has("connectorRef") && !has("registryRef") {
			missing = "connectorRef"
		}
	case "RunTests":
		if !has("buildTool") {
			missing = "buildTool"
		}
	default:
		if s.Spec == nil {
			missing = "spec"
		}
	}
	if s.Type == "Background" && len(s.FailureStrategies) > 0 {
		r.warn(s.Position, "ignored-key", at.at("failureStrategies"), fmt.Sprintf("failureStrategies of the Background step %s are ignored", quote(s.Identifier)),
			"a Background step runs beside the others and its end decides nothing")
	}
	if missing == "" || isInput(s.Spec) {
		return
	}
	position := s.Position
	if s.Spec != nil {
		position = s.Spec.Position
	}
	r.error(position, "missing-key", at.at("spec"), fmt.Sprintf("the %s step %s needs the key %s", s.Type, quote(s.Identifier), missing), "")
}

func (r *reader) group(n *Node, at *path) *Group {
	if n.Kind != Map {
		return nil
	}
	g := &Group{Position: n.Position, When: when(n.Get("when"), "stageStatus"), Selectors: n.Get("delegateSelectors"), SharedPaths: n.Get("sharedPaths"), Timeout: n.Get("timeout")}
	g.Identifier, g.Name = r.identity(n, at)
	g.Strategy = r.strategy(n.Get("strategy"), at.at("strategy"))
	g.FailureStrategies = r.failureStrategies(n.Get("failureStrategies"), at.at("failureStrategies"))
	g.Variables = r.variables(n.Get("variables"), at.at("variables"))
	g.Steps = r.stepItems(n.Get("steps"), at.at("steps"))
	if len(g.Steps) == 0 && !isInput(n.Get("steps")) {
		r.error(n.Position, "missing-key", at, fmt.Sprintf("the group %s has no steps", quote(g.Identifier)), "write at least one step below steps")
	}
	return g
}
