package pipeline

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
)

// diff compares a run with another one of the account. It fails with [ErrNotFound].
func (s *Service) diff(ctx context.Context, account, id, other string) (api.RunDiff, error) {
	var d api.RunDiff
	a, err := s.side(ctx, account, id)
	if err != nil {
		return d, err
	}
	b, err := s.side(ctx, account, other)
	if err != nil {
		return d, err
	}
	d.Inputs, d.Nodes = diffValues(a.values, b.values), diffNodes(&a.run, &b.run)
	if d.Inputs == nil {
		d.Inputs = []api.ValueDiff{}
	}
	d.Run, d.Other = a.run, b.run
	d.Run.Nodes, d.Other.Nodes = nil, nil
	if a.text != b.text {
		d.Definition, err = udiff.ToUnified(id, other, a.text, udiff.Lines(a.text, b.text), udiff.DefaultContextLines)
	}
	return d, err
}

// side is one of the runs of a diff.
type side struct {
	run    api.Run
	text   string            // the definition
	values map[string]string // inputs by their names
}

func (s *Service) side(ctx context.Context, account, id string) (*side, error) {
	head, nodes, err := s.rows(ctx, account, id)
	if err != nil {
		return nil, err
	}
	fixed, pipeline, err := s.plan(ctx, head)
	if err != nil {
		return nil, err
	}
	text, err := pipeline.YAML()
	if err != nil {
		return nil, err
	}
	out := &side{text: string(text), values: fixed.values()}
	out.run, err = s.tree(ctx, head, nodes)
	return out, err
}

// values returns the inputs of the run by their names: the runtime inputs with those that have a default, the values of
// codebase, trigger and variable, and the selected stages.
func (c *constant) values() map[string]string {
	all := map[string]string{}
	inputs, _ := definition.Inputs(c.doc.Source, c.doc.options(nil, true))
	for _, in := range inputs {
		switch {
		case in.Value != nil:
			all[in.Path] = *in.Value
		case in.Default != nil:
			all[in.Path] = *in.Default
		}
	}
	flatten("codebase", map[string]any(c.doc.Run.Codebase), all)
	flatten("trigger", map[string]any(c.doc.Run.Trigger), all)
	flatten("variable", map[string]any(c.doc.Run.Variables), all)
	if len(c.doc.Run.Stages) > 0 {
		all["stages"] = strings.Join(c.doc.Run.Stages, ", ")
	}
	return all
}

// inputs returns the inputs of a run in the order of their names. It fails with [ErrNotFound].
func (s *Service) inputs(ctx context.Context, account, id string) ([]api.NodeValue, error) {
	head, err := s.head(ctx, account, id)
	if err != nil {
		return nil, err
	}
	fixed, err := s.constant(ctx, head)
	if err != nil {
		return nil, err
	}
	values, all := fixed.values(), []api.NodeValue{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		all = append(all, api.NodeValue{Name: name, Value: values[name]})
	}
	return all, nil
}

// mostValues bounds the values that flatten adds to a map.
const mostValues = 2000

// flatten adds the values of maps by their dotted names. A list is JSON.
func flatten(name string, value any, into map[string]string) {
	if len(into) >= mostValues {
		return
	}
	switch v := value.(type) {
	case nil:
	case string:
		into[name] = clip(v, mostOrderText)
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			flatten(name+"."+key, v[key], into)
		}
	default:
		if b, err := json.Marshal(v); err == nil {
			into[name] = clip(string(b), mostOrderText)
		}
	}
}

func diffValues(a, b map[string]string) []api.ValueDiff {
	var all []api.ValueDiff
	names := maps.Clone(b)
	if names == nil {
		names = map[string]string{}
	}
	maps.Copy(names, a)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		v, ok := a[name]
		w, otherOK := b[name]
		if ok == otherOK && v == w {
			continue
		}
		d := api.ValueDiff{Name: name}
		if ok {
			d.Value = &v
		}
		if otherOK {
			d.Other = &w
		}
		all = append(all, d)
	}
	return all
}

// diffNodes joins the nodes of two runs in their order.
func diffNodes(a, b *api.Run) []api.NodeDiff {
	nodes := []api.NodeDiff{}
	others := map[string]*api.Node{}
	for i := range b.Nodes {
		others[b.Nodes[i].Path] = &b.Nodes[i]
	}
	for i := range a.Nodes {
		nodes = append(nodes, diffNode(&a.Nodes[i], others[a.Nodes[i].Path]))
		delete(others, a.Nodes[i].Path)
	}
	for i := range b.Nodes {
		if others[b.Nodes[i].Path] != nil {
			nodes = append(nodes, diffNode(nil, &b.Nodes[i]))
		}
	}
	return nodes
}

// diffNode compares two nodes, of which one may be nil.
func diffNode(a, b *api.Node) api.NodeDiff {
	some := cmp.Or(a, b)
	d := api.NodeDiff{Path: some.Path, Kind: some.Kind, Identifier: some.Identifier}
	var outputs, otherOutputs map[string]string
	if a != nil {
		d.Status, d.Duration, outputs = a.Status, duration(a), a.Outputs
	}
	if b != nil {
		d.OtherStatus, d.OtherDuration, otherOutputs = b.Status, duration(b), b.Outputs
	}
	d.Outputs = diffValues(outputs, otherOutputs)
	d.Changed = d.Status != d.OtherStatus || len(d.Outputs) > 0
	return d
}

func duration(n *api.Node) *int64 {
	if n.StartedAt.IsZero() || n.EndedAt.IsZero() {
		return nil
	}
	ms := n.EndedAt.Sub(n.StartedAt).Milliseconds()
	return &ms
}
