package engine

import (
	"maps"
	"slices"
	"strings"
)

// exportedObject has the outputs of steps with an outputAlias, by its scope and its key, as a node sees them.
func (s *scope) exportedObject() *object {
	scopes := []string{"pipeline", "stage", "stepGroup"}
	return members(scopes, func(scope string) (any, bool) {
		if !slices.Contains(scopes, scope) {
			return nil, false
		}
		all := s.exported(scope)
		return &object{
			member: func(key string) (any, bool) { value, ok := all[key]; return value, ok },
			names:  func() []string { return slices.Collect(maps.Keys(all)) },
		}, true
	})
}

// exported returns the outputs of ended steps by the key of their alias. Of several steps with one key, the last
// one counts.
func (s *scope) exported(scope string) map[string]any {
	within := ""
	if scope != "pipeline" {
		kind := map[string]Kind{"stage": StageNode, "stepGroup": GroupNode}[scope]
		around := s.n
		for around != nil && around.Kind != kind {
			around = s.t.parent(around)
		}
		if around == nil {
			return nil
		}
		within = around.Path + "."
	}
	var steps []*Node
	for path, n := range s.t.s.Nodes {
		if e := s.t.element(n); n.Kind == StepNode && n.Status.Ended() && e.step.Spec.Get("outputAlias") != nil && strings.HasPrefix(path, within) {
			steps = append(steps, n)
		}
	}
	slices.SortFunc(steps, func(a, b *Node) int {
		if byTime := a.EndedAt.Compare(b.EndedAt); byTime != 0 {
			return byTime
		}
		return strings.Compare(a.Path, b.Path)
	})
	all := map[string]any{}
	for _, n := range steps {
		alias := s.t.element(n).step.Spec.Get("outputAlias")
		of := alias.Get("scope").Text()
		if of == "" {
			of = "Pipeline"
		}
		if !strings.EqualFold(of, scope) {
			continue
		}
		outputs := make(map[string]any, len(n.Outputs))
		for name, value := range n.Outputs {
			outputs[name] = value
		}
		all[alias.Get("key").Text()] = outputs
	}
	return all
}
