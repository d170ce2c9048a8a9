package definition

import (
	"fmt"
	"strings"
)

// checkStages checks the relations between stages: unique identifiers, dependsOn and
// useFromStage.
func (r *reader) checkStages(p *Pipeline) {
	stages := p.All()
	byName := make(map[string]*Stage, len(stages))
	var names []string
	for _, s := range stages {
		if first := byName[s.Identifier]; first != nil && s.Identifier != "" {
			r.error(s.Position, "duplicate-identifier", nil, fmt.Sprintf("a stage with the identifier %s is already in line %d", quote(s.Identifier), first.Line), "rename one of the two")
			continue
		}
		byName[s.Identifier] = s
		names = append(names, s.Identifier)
	}
	for _, s := range stages {
		r.uniqueSteps(s.Steps, map[string]Position{})
		p.Graph = p.Graph || s.DependsOn != nil
	}
	if p.Graph {
		r.checkGraph(p, byName, names)
	}
	for _, s := range stages {
		r.useFrom(s, byName, names)
	}
}

// uniqueSteps reports identifiers that stand twice on one level. Groups open a level, parallel
// blocks do not.
func (r *reader) uniqueSteps(items []StepItem, seen map[string]Position) {
	unique := func(identifier string, at Position) {
		if first, twice := seen[identifier]; twice && identifier != "" {
			r.error(at, "duplicate-identifier", nil, fmt.Sprintf("the identifier %s is already in line %d of the same stage or group", quote(identifier), first.Line), "rename one of the two")
			return
		}
		seen[identifier] = at
	}
	for _, item := range items {
		switch {
		case item.Step != nil:
			unique(item.Step.Identifier, item.Step.Position)
		case item.Group != nil:
			unique(item.Group.Identifier, item.Group.Position)
			r.uniqueSteps(item.Group.Steps, map[string]Position{})
		default:
			r.uniqueSteps(item.Parallel, seen)
		}
	}
}

// checkGraph checks dependsOn: known names, no parallel blocks, no cycles.
func (r *reader) checkGraph(p *Pipeline, byName map[string]*Stage, names []string) {
	for _, item := range p.Stages {
		if item.Parallel != nil {
			r.error(item.Position, "bad-dependency", nil, "a pipeline with dependsOn cannot have parallel blocks",
				"write the stages one after another: stages without a common dependency run at the same time")
		}
	}
	for _, id := range names {
		s := byName[id]
		for _, name := range s.DependsOn {
			if byName[name] == nil {
				r.error(s.Position, "bad-dependency", nil, fmt.Sprintf("the stage %s depends on the unknown stage %s", quote(s.Identifier), quote(name)), r.suggest(name, names))
			}
		}
	}
	if cycle := findCycle(names, byName); cycle != nil {
		r.error(byName[cycle[0]].Position, "dependency-cycle", nil, "stages depend on each other in a cycle: "+bounded(strings.Join(cycle, " -> ")), "remove one of the dependencies")
	}
}

// findCycle returns the stages of a cycle, with the first one also at the end. It keeps its own
// stack: a chain may be as long as the pipeline.
func findCycle(names []string, byName map[string]*Stage) []string {
	const visiting, visited = 1, 2
	state := make(map[string]int, len(names))
	next := make(map[string]int, len(names))
	for _, start := range names {
		if state[start] != 0 {
			continue
		}
		stack := []string{start}
		state[start] = visiting
		for len(stack) > 0 {
			top := stack[len(stack)-1]
			depends := byName[top].DependsOn
			if next[top] == len(depends) {
				state[top] = visited
				stack = stack[:len(stack)-1]
				continue
			}
			name := depends[next[top]]
			next[top]++
			switch {
			case byName[name] == nil || state[name] == visited:
			case state[name] == visiting:
				for i, open := range stack {
					if open == name {
						return append(stack[i:], name)
					}
				}
			default:
				state[name] = visiting
				stack = append(stack, name)
			}
		}
	}
	return nil
}

// useFrom copies the infrastructure of the stage that useFromStage names.
func (r *reader) useFrom(s *Stage, byName map[string]*Stage, names []string) {
	ref := s.Spec.Get("infrastructure").Get("useFromStage")
	if ref == nil || s.Infrastructure == nil || ref.Kind != Scalar {
		return
	}
	from := byName[ref.Text()]
	switch {
	case from == nil:
		r.error(ref.Position, "bad-use-from-stage", nil, fmt.Sprintf("useFromStage names the unknown stage %s", quote(ref.Text())), r.suggest(ref.Text(), names))
	case from == s:
		r.error(ref.Position, "bad-use-from-stage", nil, fmt.Sprintf("useFromStage of the stage %s names the stage itself", quote(s.Identifier)), "name another stage, or write the infrastructure")
	case from.Spec.Get("infrastructure").Get("useFromStage") != nil:
		r.error(ref.Position, "bad-use-from-stage", nil, fmt.Sprintf("the stage %s takes its infrastructure from another stage as well", quote(from.Identifier)), "name the stage that has the infrastructure")
	case from.Skip != "":
		r.error(ref.Position, "bad-use-from-stage", nil, fmt.Sprintf("the stage %s is left out and has no infrastructure", quote(from.Identifier)), "write the infrastructure")
	default:
		s.Platform, s.Runtime = from.Platform, from.Runtime
		s.Infrastructure = nil
		if from.Infrastructure != nil {
			copied := *from.Infrastructure
			s.Infrastructure = &copied
		}
	}
}
