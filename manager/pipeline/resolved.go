package pipeline

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
	"github.com/delegate-io/dlite/manager/pipeline/internal/engine"
)

// mostResolved bounds the size of a resolved pipeline, in bytes: its strategies multiply it.
const mostResolved = 16 << 20

var errResolved = fmt.Errorf("%w: the resolved pipeline has more than %d bytes", ErrConflict, mostResolved)

// resolved returns the pipeline of a run as YAML, with its templates and inputs in place, strategies replaced by their
// children, and expressions by the values that were recorded. It fails with [ErrNotFound] and [ErrConflict].
func (s *Service) resolved(ctx context.Context, account, id string) ([]byte, error) {
	head, rows, err := s.rows(ctx, account, id)
	if err != nil {
		return nil, err
	}
	_, pipeline, err := s.plan(ctx, head)
	if err != nil {
		return nil, err
	}
	r := resolver{nodes: map[string]*engine.Node{}, left: mostResolved}
	for _, row := range rows {
		n, err := decodeNode(id, row)
		if err != nil {
			return nil, err
		}
		r.nodes[n.Path] = n
	}
	doc := r.document(pipeline.Document)
	if r.left < 0 {
		return nil, errResolved
	}
	return definition.Write(doc)
}

// resolver builds a pipeline from its definition and the nodes of a run. It does not change the definition.
type resolver struct {
	nodes map[string]*engine.Node
	left  int // bytes that may be added
}

const pipelinePath = "pipeline"

func (r *resolver) document(doc *definition.Node) *definition.Node {
	return r.edit(doc, func(key string, value *definition.Node) *definition.Node {
		if key != pipelinePath {
			return value
		}
		root := r.nodes[pipelinePath]
		return r.edit(value, func(key string, value *definition.Node) *definition.Node {
			switch key {
			case "stages":
				return r.items(value, pipelinePath+".stages.")
			case "properties", "variables": // they are evaluated for each stage
				return r.values(r.firstStage(), key, value)
			}
			return r.values(root, key, value)
		})
	})
}

// firstStage returns the first stage that was started.
func (r *resolver) firstStage() *engine.Node {
	var first *engine.Node
	for _, n := range r.nodes {
		if n.Kind == engine.StageNode && n.Number > 0 && (first == nil || n.Number < first.Number) {
			first = n
		}
	}
	return first
}

// edit copies a map with other values.
func (r *resolver) edit(n *definition.Node, value func(key string, value *definition.Node) *definition.Node) *definition.Node {
	if n == nil || n.Kind != definition.Map {
		return n
	}
	out := *n
	out.Fields = make([]definition.Field, 0, len(n.Fields))
	for _, f := range n.Fields {
		r.left -= len(f.Key)
		if f.Value = value(f.Key, f.Value); f.Value != nil {
			out.Fields = append(out.Fields, f)
		}
	}
	return &out
}

// items copies a list of stages or steps below a path.
func (r *resolver) items(list *definition.Node, prefix string) *definition.Node {
	if list == nil || list.Kind != definition.List {
		return list
	}
	out := *list
	out.Items = nil
	for _, item := range list.Items {
		children := r.item(item, prefix)
		if len(children) == 1 {
			out.Items = append(out.Items, children[0])
			continue
		}
		out.Items = append(out.Items, &definition.Node{Position: item.Position, Kind: definition.Map, Fields: []definition.Field{
			{Key: "parallel", At: item.Position, Value: &definition.Node{Position: item.Position, Kind: definition.List, Items: children}},
		}})
	}
	return &out
}

// item returns the items that take the place of one: more than one for a parallel block and for a strategy.
func (r *resolver) item(item *definition.Node, prefix string) []*definition.Node {
	if parallel := item.Get("parallel"); parallel != nil {
		var all []*definition.Node
		for _, inner := range parallel.Items {
			all = append(all, r.item(inner, prefix)...)
		}
		return all
	}
	for _, kind := range []string{"stage", "step", "stepGroup"} {
		body := item.Get(kind)
		if body == nil {
			continue
		}
		n := r.nodes[prefix+body.Get("identifier").Text()]
		if n == nil || n.Kind != engine.StrategyNode || len(n.Children) == 0 {
			return []*definition.Node{r.wrap(item, kind, r.body(body, n, prefix))}
		}
		var all []*definition.Node
		for _, path := range n.Children {
			if r.left < 0 {
				break
			}
			all = append(all, r.wrap(item, kind, r.body(body, r.nodes[path], prefix)))
		}
		return all
	}
	return []*definition.Node{r.values(nil, "", item)}
}

func (r *resolver) wrap(item *definition.Node, kind string, body *definition.Node) *definition.Node {
	return r.edit(item, func(key string, value *definition.Node) *definition.Node {
		if key == kind {
			return body
		}
		return value
	})
}

// body copies a stage, a step or a group as a node of the run has it. The node may be nil.
func (r *resolver) body(body *definition.Node, n *engine.Node, prefix string) *definition.Node {
	below := prefix + body.Get("identifier").Text()
	child := n != nil && n.Total > 0 // of a strategy
	if child {
		below = prefix + n.Identifier
	}
	return r.edit(body, func(key string, value *definition.Node) *definition.Node {
		switch {
		case child && key == "strategy":
			return nil
		case child && key == "identifier":
			return text(value, n.Identifier)
		case child && key == "name":
			return text(value, n.Name)
		case key == "steps":
			return r.items(value, below+".steps.")
		case key == "spec" && value.Get("execution") != nil:
			return r.edit(value, func(key string, value *definition.Node) *definition.Node {
				if key != "execution" {
					return r.values(n, "spec."+key, value)
				}
				return r.edit(value, func(key string, value *definition.Node) *definition.Node {
					if key == "steps" {
						return r.items(value, below+".spec.execution.steps.")
					}
					return value
				})
			})
		}
		return r.values(n, key, value)
	})
}

// values copies a value with the values of its expressions, which were recorded with a node under the path of their
// field.
func (r *resolver) values(n *engine.Node, path string, value *definition.Node) *definition.Node {
	if value == nil || r.left < 0 {
		return value
	}
	if r.left -= 8 + len(value.Text()); n == nil {
		n = &engine.Node{} // it has not run: nothing was recorded
	}
	out := *value
	switch value.Kind {
	case definition.List:
		out.Items = make([]*definition.Node, len(value.Items))
		for i, item := range value.Items {
			at := path + "[" + strconv.Itoa(i) + "]"
			if name := item.Get("name").Text(); path == "variables" && name != "" {
				out.Items[i] = r.variable(n, item, "variables."+name)
				continue
			}
			out.Items[i] = r.values(n, at, item)
		}
	case definition.Map:
		out.Fields = slices.Clone(value.Fields)
		for i := range out.Fields {
			out.Fields[i].Value = r.values(n, path+"."+out.Fields[i].Key, out.Fields[i].Value)
		}
	default:
		if written, ok := value.Value.(string); ok && strings.Contains(written, "<+") {
			written = resolveText(n, path, written)
			r.left -= len(written)
			out.Value = written
		}
	}
	return &out
}

// variable copies a variable. Its value was recorded as a whole.
func (r *resolver) variable(n *engine.Node, item *definition.Node, path string) *definition.Node {
	return r.edit(item, func(key string, value *definition.Node) *definition.Node {
		if key != "value" || !value.Dynamic() {
			return value
		}
		for _, e := range n.Evaluated {
			if e.Field == path && usable(&e) {
				r.left -= len(e.Value)
				return text(value, e.Value)
			}
		}
		return r.values(n, path, value)
	})
}

func text(like *definition.Node, value string) *definition.Node {
	out := *like
	out.Value = value
	return &out
}

// usable reports whether the whole value of an expression was recorded.
func usable(e *engine.Evaluated) bool {
	const most = 2048 // bytes that a record keeps
	return e.Error == "" && (len(e.Value) < most || !strings.HasSuffix(e.Value, "..."))
}

// resolveText replaces the expressions of a text.
func resolveText(n *engine.Node, path, written string) string {
	for _, in := range n.Inputs {
		if in.Field == path && in.Given {
			return in.Value
		}
	}
	condition := path == "when.condition" || path == "strategy.when"
	failure := strings.HasPrefix(path, "failureStrategies")
	var pairs []string
	for _, e := range n.Evaluated {
		if !usable(&e) || e.Field != path && (!failure || !strings.HasPrefix(e.Field, "failureStrategies")) {
			continue
		}
		value := e.Value
		if condition || failure && e.Field == "failureStrategies.condition" {
			value = literal(value)
		}
		pairs = append(pairs, e.Text, value)
	}
	return strings.NewReplacer(pairs...).Replace(written)
}

// literal writes a value as a condition has it.
func literal(value string) string {
	if _, err := strconv.ParseFloat(value, 64); err == nil || slices.Contains([]string{"true", "false", "null"}, value) {
		return value
	}
	return strconv.Quote(value)
}
