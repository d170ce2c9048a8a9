package definition

import (
	"strconv"
	"strings"
)

// Get returns the value of a key of a map. It is nil if n is not a map, or the key is absent or
// null.
func (n *Node) Get(key string) *Node {
	if n == nil || n.Kind != Map {
		return nil
	}
	for i := range n.Fields {
		if n.Fields[i].Key != key {
			continue
		}
		if value := n.Fields[i].Value; !value.null() {
			return value
		}
		return nil
	}
	return nil
}

// field returns the field of a map with a key, even if its value is null.
func (n *Node) field(key string) *Field {
	if n == nil || n.Kind != Map {
		return nil
	}
	for i := range n.Fields {
		if n.Fields[i].Key == key {
			return &n.Fields[i]
		}
	}
	return nil
}

// Text returns a scalar as text. It is empty for null, lists and maps.
func (n *Node) Text() string {
	if n == nil || n.Kind != Scalar {
		return ""
	}
	switch value := n.Value.(type) {
	case string:
		return value
	case bool:
		return strconv.FormatBool(value)
	case int64:
		return strconv.FormatInt(value, 10)
	case float64:
		return strconv.FormatFloat(value, 'f', -1, 64)
	}
	return ""
}

// Plain returns the node as a tree of nil, bool, int64, float64, string, []any and
// map[string]any.
func (n *Node) Plain() any {
	if n == nil {
		return nil
	}
	switch n.Kind {
	case List:
		items := make([]any, len(n.Items))
		for i, item := range n.Items {
			items[i] = item.Plain()
		}
		return items
	case Map:
		fields := make(map[string]any, len(n.Fields))
		for _, field := range n.Fields {
			fields[field.Key] = field.Value.Plain()
		}
		return fields
	default:
		return n.Value
	}
}

// Dynamic reports whether n is text with an expression or a runtime input, so that its value is
// known later.
func (n *Node) Dynamic() bool {
	if n == nil || n.Kind != Scalar {
		return false
	}
	text, ok := n.Value.(string)
	return ok && strings.Contains(text, "<+")
}

func (n *Node) null() bool { return n == nil || (n.Kind == Scalar && n.Value == nil) }

// copyTo makes into a deep copy of n.
func (n *Node) copyTo(into *Node) {
	*into = *n
	if n.Items != nil {
		into.Items = make([]*Node, len(n.Items))
		for i, item := range n.Items {
			into.Items[i] = item.clone()
		}
	}
	if n.Fields != nil {
		into.Fields = make([]Field, len(n.Fields))
		for i, field := range n.Fields {
			into.Fields[i] = Field{field.Key, field.At, field.Value.clone()}
		}
	}
}

func (n *Node) clone() *Node {
	into := new(Node)
	n.copyTo(into)
	return into
}

// size returns the number of nodes of n.
func (n *Node) size() int {
	total := 1
	for _, item := range n.Items {
		total += item.size()
	}
	for _, field := range n.Fields {
		total += field.Value.size()
	}
	return total
}

// deeper reports whether n has more levels than a limit.
func (n *Node) deeper(limit int) bool {
	if limit == 0 {
		return true
	}
	for _, item := range n.Items {
		if item.deeper(limit - 1) {
			return true
		}
	}
	for _, field := range n.Fields {
		if field.Value.deeper(limit - 1) {
			return true
		}
	}
	return false
}

// kindName returns the kind of a value for messages.
func (n *Node) kindName() string {
	switch n.Kind {
	case List:
		return "a list"
	case Map:
		return "a map"
	}
	switch n.Value.(type) {
	case nil:
		return "empty"
	case bool:
		return "true or false"
	case int64, float64:
		return "a number"
	}
	return "text"
}

// path is a place in a document. Its text is calculated for problems only.
type path struct {
	up    *path
	key   string
	index int
	size  int // of the text, at least
}

func (p *path) at(key string) *path  { return &path{up: p, key: key, size: p.length() + len(key) + 1} }
func (p *path) item(index int) *path { return &path{up: p, index: index, size: p.length() + 3} }

func (p *path) length() int {
	if p == nil {
		return 0
	}
	return p.size
}

// tooLong reports that a path has no text of its own. Keys and identifiers of a hostile
// document may be long, and every value below them would repeat them.
func (p *path) tooLong() bool { return p.length() > maxPath }

// String returns the path, for example pipeline.stages[0].stage.
func (p *path) String() string {
	if p == nil {
		return ""
	}
	if p.tooLong() {
		return "(a path of more than 2048 bytes)"
	}
	if p.key == "" {
		return p.up.String() + "[" + strconv.Itoa(p.index) + "]"
	}
	if p.up == nil {
		return p.key
	}
	return p.up.String() + "." + p.key
}
