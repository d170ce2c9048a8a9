package definition

import (
	"fmt"
	"strings"
)

func (r *reader) stageItems(n *Node, at *path) []StageItem {
	if n == nil || n.Kind != List {
		return nil
	}
	var result []StageItem
	for i, item := range n.Items {
		here := at.item(i)
		built := StageItem{Position: item.Position}
		if stage := item.Get("stage"); stage != nil {
			built.Stage = r.stage(stage, here.at("stage"))
		}
		if parallel := item.Get("parallel"); parallel != nil && parallel.Kind == List {
			for j, branch := range parallel.Items {
				if stage := r.stage(branch.Get("stage"), here.at("parallel").item(j).at("stage")); stage != nil {
					built.Parallel = append(built.Parallel, stage)
				}
			}
		}
		if built.Stage != nil || built.Parallel != nil {
			result = append(result, built)
		}
	}
	return result
}

func (r *reader) stage(n *Node, at *path) *Stage {
	if n == nil || n.Kind != Map {
		return nil
	}
	s := &Stage{Position: n.Position, Type: n.Get("type").Text(), Description: n.Get("description").Text()}
	s.Identifier, s.Name = r.identity(n, at)
	s.Tags = tags(n.Get("tags"))
	s.Variables = r.variables(n.Get("variables"), at.at("variables"))
	s.When = when(n.Get("when"), "pipelineStatus")
	s.DependsOn = dependsOn(n.Get("dependsOn"))
	if !r.checkStageType(s, n, at) {
		return s
	}
	s.Strategy = r.strategy(n.Get("strategy"), at.at("strategy"))
	s.FailureStrategies = r.failureStrategies(n.Get("failureStrategies"), at.at("failureStrategies"))
	s.Selectors, s.Timeout = n.Get("delegateSelectors"), n.Get("timeout")
	s.Spec = n.Get("spec")
	r.stageSpec(s, at.at("spec"))
	return s
}

// checkStageType reports whether the stage is a CI stage that can be built. Stages of another
// type are errors, or are left out with a warning.
func (r *reader) checkStageType(s *Stage, n *Node, at *path) bool {
	where := n.Position
	if node := n.Get("type"); node != nil {
		where = node.Position
	}
	switch {
	case s.Type == "CI":
		if n.Get("spec") == nil {
			r.error(n.Position, "missing-key", at, fmt.Sprintf("the stage %s has no spec", quote(s.Identifier)), "write spec: {execution: {steps: []}}")
			return false
		}
		return true
	case s.Type == "":
		r.error(where, "missing-key", at, fmt.Sprintf("the stage %s needs the key type", quote(s.Identifier)), "write type: CI")
	case r.opts.SkipOtherStages:
		s.Skip = "stages of the type " + s.Type + " do not run here"
		r.warn(where, "skipped-stage", at.at("type"), fmt.Sprintf("the stage %s of the type %s is left out", quote(s.Identifier), bounded(s.Type)), "only stages of the type CI run here")
	default:
		hint := "only stages of the type CI run here: remove the stage, or ask to leave out stages of other types"
		if nearest(s.Type, []string{"CI"}) != "" && len(s.Type) <= 3 {
			hint = "write type: CI"
		}
		r.error(where, "unsupported-stage-type", at.at("type"), fmt.Sprintf("the stage %s has the type %s, which cannot run here", quote(s.Identifier), quote(s.Type)), hint)
	}
	return false
}

func (r *reader) stageSpec(s *Stage, at *path) {
	spec := s.Spec
	s.Clone, s.Platform, s.Runtime = spec.Get("cloneCodebase"), spec.Get("platform"), spec.Get("runtime")
	s.Caching, s.SharedPaths = spec.Get("caching"), spec.Get("sharedPaths")
	if services := spec.Get("serviceDependencies"); services != nil {
		s.Services = services.Items
	}
	if n := spec.Get("infrastructure"); n != nil && n.Kind == Map {
		s.Infrastructure = &Infrastructure{Position: n.Position, Type: n.Get("type").Text(), Spec: n.Get("spec")}
		r.oneMachine(s, at.at("infrastructure"))
	}
	steps := spec.Get("execution").Get("steps")
	where := at.at("execution").at("steps")
	s.Steps = r.stepItems(steps, where)
	r.stageCache(s, at.at("caching"))
	if steps != nil && steps.Kind == List && len(steps.Items) == 0 {
		r.error(steps.Position, "missing-key", where, fmt.Sprintf("the stage %s has no steps", quote(s.Identifier)), "write at least one step")
	}
}

// oneMachine decides between infrastructure and runtime, as Harness does.
func (r *reader) oneMachine(s *Stage, at *path) {
	in := s.Infrastructure
	if s.Runtime != nil {
		r.warn(in.Position, "exactly-one", at, fmt.Sprintf("the stage %s has infrastructure and runtime: the runtime is ignored", quote(s.Identifier)), "remove one of the two")
		s.Runtime = nil
	}
	if in.Type != "Cloud" {
		return
	}
	s.Infrastructure = nil
	s.Runtime = &Node{Position: in.Position, Kind: Map, Fields: []Field{
		{Key: "type", At: in.Position, Value: &Node{Position: in.Position, Kind: Scalar, Value: "Cloud"}},
		{Key: "spec", At: in.Position, Value: &Node{Position: in.Position, Kind: Map}},
	}}
	if size := in.Spec.field("size"); size != nil {
		s.Runtime.Fields[1].Value.Fields = []Field{*size}
	}
	if s.Platform == nil {
		s.Platform = &Node{Position: in.Position, Kind: Map}
		for _, name := range []string{"os", "arch"} {
			if f := in.Spec.field(name); f != nil {
				s.Platform.Fields = append(s.Platform.Fields, *f)
			}
		}
	}
}

// when builds a condition. The key of its status differs between stages and steps.
func when(n *Node, status string) *When {
	if n == nil || n.Kind != Map {
		return nil
	}
	return &When{Position: n.Position, Status: n.Get(status).Text(), Condition: conditionOf(n, "condition")}
}

// conditionOf returns a condition, or nil if it is absent or empty: editors write an empty one.
func conditionOf(n *Node, key string) *Node {
	c := n.Get(key)
	if c != nil && c.Kind == Scalar && strings.TrimSpace(c.Text()) == "" {
		return nil
	}
	return c
}

// dependsOn returns nil if the key is absent, and an empty list for [].
func dependsOn(n *Node) []string {
	if n == nil || n.Kind != List {
		return nil
	}
	names := make([]string, 0, len(n.Items))
	for _, item := range n.Items {
		names = append(names, item.Text())
	}
	return names
}
