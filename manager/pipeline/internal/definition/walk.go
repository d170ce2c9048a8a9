package definition

import (
	"fmt"
	"strings"
)

// walk visits every node below n with its path by identifiers: stages, steps, groups and
// variables are named by their identifier or name, and parallel blocks add no level. These
// paths are those of expressions and of Options.Inputs.
func walk(n *Node, at *path, visit func(*Node, *path)) {
	visit(n, at)
	switch n.Kind {
	case Map:
		for _, field := range n.Fields {
			walk(field.Value, at.at(field.Key), visit)
		}
	case List:
		for i, item := range n.Items {
			walkItem(item, i, at, visit)
		}
	}
}

func walkItem(item *Node, i int, at *path, visit func(*Node, *path)) {
	if item.Kind != Map {
		walk(item, at.item(i), visit)
		return
	}
	for _, wrapper := range []string{"stage", "step", "stepGroup"} {
		if inner := item.Get(wrapper); inner != nil && inner.Get("identifier") != nil {
			walk(inner, at.at(inner.Get("identifier").Text()), visit)
			return
		}
	}
	if parallel := item.Get("parallel"); parallel != nil && parallel.Kind == List {
		for j, branch := range parallel.Items {
			walkItem(branch, j, at, visit)
		}
		return
	}
	if id := item.Get("identifier"); id != nil {
		walk(item, at.at(id.Text()), visit)
		return
	}
	if name := item.Get("name"); name != nil {
		walkVariable(item, at.at(name.Text()), visit)
		return
	}
	walk(item, at.item(i), visit)
}

// walkVariable visits an item that has a name. The path of its value is that of the item.
func walkVariable(item *Node, at *path, visit func(*Node, *path)) {
	for _, field := range item.Fields {
		if field.Key == "value" {
			walk(field.Value, at, visit)
			continue
		}
		walk(field.Value, at.at(field.Key), visit)
	}
}

// slot is a place of the document that holds a runtime input.
type slot struct {
	Input
	node *Node
}

// slots returns the runtime inputs of a document in its order. It reports inputs that are not
// well formed.
func (r *reader) slots(root *Node, at *path) []*slot {
	types := variableTypes(root)
	var result []*slot
	walk(root, at, func(n *Node, at *path) {
		text, ok := n.Value.(string)
		if !ok || !strings.Contains(text, inputMark) {
			return
		}
		in, whole, err := ParseInput(text)
		switch {
		case len(result) >= maxInputs || at.tooLong():
			if !r.full {
				r.error(n.Position, "too-large", nil, fmt.Sprintf("the pipeline has more than %d inputs, or one with a path of more than %d bytes", maxInputs, maxPath), "")
			}
			r.full = true
		case !whole:
			r.error(n.Position, "bad-input", at, "<+input> must be the whole value", "write it as the value of a variable, and use the variable here")
		case err != nil:
			r.error(n.Position, "bad-input", at, "runtime input: "+err.Error(), "")
		default:
			in.Position, in.Path = n.Position, at.String()
			if v := types[n]; v != nil {
				in.Type, in.Description = v.Get("type").Text(), v.Get("description").Text()
				if fallback := v.Get("default"); fallback != nil && in.Default == nil {
					text := fallback.Text()
					in.Default = &text
				}
			}
			if strings.HasSuffix(in.Path, "codebase.build") {
				in.Type = "build"
			}
			result = append(result, &slot{in, n})
		}
	})
	return result
}

// variableTypes returns for each value of a variable the map of its variable.
func variableTypes(root *Node) map[*Node]*Node {
	result := map[*Node]*Node{}
	var visit func(n *Node)
	visit = func(n *Node) {
		if variables := n.Get("variables"); variables != nil {
			for _, v := range variables.Items {
				if value := v.Get("value"); value != nil {
					result[value] = v
				}
			}
		}
		for _, item := range n.Items {
			visit(item)
		}
		for _, field := range n.Fields {
			visit(field.Value)
		}
	}
	visit(root)
	return result
}
