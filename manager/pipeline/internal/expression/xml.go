package expression

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// element is an element of an XML document. A text of it has no name.
type element struct {
	name     string
	text     string
	attrs    []xml.Attr
	children []*element
	parent   *element
}

// xmlSelect returns the text of the first node at a path. The paths are a part of XPath: /a/b, //a,
// *, ., .., @a, text(), and conditions [2], [last()], [a], [@a], [a='x'], [@a='x'], [text()='x'].
func xmlSelect(ev *evaluation, args []any) (any, error) {
	a, err := ev.textArguments(args)
	if err != nil {
		return nil, err
	}
	steps, err := parseXPath(a[0])
	if err != nil {
		return nil, err
	}
	root, err := ev.parseXML(a[1])
	if err != nil {
		return nil, err
	}
	nodes := []*element{root}
	for _, s := range steps {
		if nodes, err = s.apply(ev, nodes); err != nil {
			return nil, err
		}
	}
	if len(nodes) == 0 {
		return nil, &Error{Text: fmt.Sprintf("the XML has no node at %s", shorten(a[0], 100)), Unresolved: true}
	}
	var b strings.Builder
	if err := ev.collect(&b, nodes[0]); err != nil {
		return nil, err
	}
	return ev.made(b.String())
}

// parseXML parses a document. The result is its root, above the first element.
func (ev *evaluation) parseXML(text string) (*element, error) {
	if err := ev.spend(len(text)); err != nil {
		return nil, err
	}
	root := &element{}
	d := xml.NewDecoder(strings.NewReader(text))
	d.CharsetReader = func(string, io.Reader) (io.Reader, error) { return nil, errors.New("only UTF-8 is supported") }
	depth := 0
	for at := root; ; {
		t, err := d.Token()
		if errors.Is(err, io.EOF) {
			if len(root.children) == 0 {
				return nil, errors.New("the text is not XML: it has no element")
			}
			return root, nil
		}
		if err != nil {
			return nil, fmt.Errorf("the text is not XML: %w", err)
		}
		if err := ev.step(1); err != nil {
			return nil, err
		}
		switch t := t.(type) {
		case xml.StartElement:
			if depth++; depth > maxLevels {
				return nil, fmt.Errorf("the XML is nested more than %d deep", maxLevels)
			}
			if err := ev.reserve(200 + 64*len(t.Attr)); err != nil {
				return nil, err
			}
			child := &element{name: t.Name.Local, attrs: t.Copy().Attr, parent: at}
			at.children = append(at.children, child)
			at = child
		case xml.EndElement:
			depth--
			at = at.parent
		case xml.CharData:
			if at != root {
				if err := ev.reserve(150); err != nil {
					return nil, err
				}
				at.children = append(at.children, &element{text: string(t), parent: at})
			}
		}
	}
}

// collect appends the text of a node and all nodes in it.
func (ev *evaluation) collect(b *strings.Builder, e *element) error {
	if err := ev.step(1); err != nil {
		return err
	}
	b.WriteString(e.text)
	for _, c := range e.children {
		if err := ev.collect(b, c); err != nil {
			return err
		}
	}
	return nil
}

// xpathStep is a part of a path between slashes.
type xpathStep struct {
	deep       bool   // after "//"
	name       string // "*" for every element; "text()", "." or ".."
	attribute  bool
	conditions []xpathCondition
}

// xpathCondition is a position, or a node that must exist or have a text.
type xpathCondition struct {
	position int // 0 is none, -1 is last()
	step     xpathStep
	compared bool
	text     string
}

func parseXPath(path string) ([]xpathStep, error) {
	if len(path) > maxPath {
		return nil, fmt.Errorf("the path has more than %d characters", maxPath)
	}
	rest := strings.TrimSpace(path)
	if !strings.HasPrefix(rest, "/") {
		rest = "/" + rest
	}
	var steps []xpathStep
	for rest != "" {
		var s xpathStep
		var ok bool
		if rest, ok = strings.CutPrefix(rest, "//"); ok {
			s.deep = true
		} else if rest, ok = strings.CutPrefix(rest, "/"); !ok {
			return nil, xpathError(path)
		}
		n := strings.IndexAny(rest, "/[")
		if n < 0 {
			n = len(rest)
		}
		if !s.setName(rest[:n]) {
			return nil, xpathError(path)
		}
		rest = rest[n:]
		for strings.HasPrefix(rest, "[") {
			n := bracketEnd(rest)
			if n < 0 {
				return nil, xpathError(path)
			}
			c, ok := parseXPathCondition(strings.TrimSpace(rest[1 : n-1]))
			if !ok {
				return nil, xpathError(path)
			}
			s.conditions, rest = append(s.conditions, c), rest[n:]
		}
		steps = append(steps, s)
	}
	return steps, nil
}

func xpathError(path string) error {
	return fmt.Errorf("the path %s is not supported: use /a/b, //a, *, @a, text(), and conditions such as [1], [last()], [a='x'] and [@a='x']", shorten(path, 100))
}

// setName sets the name. It reports whether the name is valid.
func (s *xpathStep) setName(name string) bool {
	name = strings.TrimSpace(name)
	if name, s.attribute = strings.CutPrefix(name, "@"); name == "" {
		return false
	}
	if _, local, ok := strings.Cut(name, ":"); ok {
		name = local
	}
	s.name = name
	return name == "*" || !s.attribute && (name == "." || name == ".." || name == "text()") ||
		!strings.ContainsAny(name, " ()@*=<>!|+,:'\"[]")
}

func parseXPathCondition(text string) (c xpathCondition, ok bool) {
	if text == "last()" {
		c.position = -1
		return c, true
	}
	if n, err := strconv.Atoi(text); err == nil {
		c.position = n
		return c, n > 0
	}
	name, value, compared := strings.Cut(text, "=")
	if c.compared = compared; compared {
		value = strings.TrimSpace(value)
		if len(value) < 2 || value[0] != '\'' && value[0] != '"' || value[len(value)-1] != value[0] || strings.IndexByte(value[1:len(value)-1], value[0]) >= 0 {
			return c, false
		}
		c.text = value[1 : len(value)-1]
	}
	return c, c.step.setName(name)
}

// apply returns the nodes of a step, without doubles.
func (s *xpathStep) apply(ev *evaluation, nodes []*element) ([]*element, error) {
	if s.deep {
		var err error
		if nodes, err = ev.descendants(nodes); err != nil {
			return nil, err
		}
	}
	var all []*element
	seen := map[*element]bool{}
	for _, n := range nodes {
		found, err := s.from(ev, n)
		if err != nil {
			return nil, err
		}
		for _, c := range s.conditions {
			if found, err = c.filter(ev, found); err != nil {
				return nil, err
			}
		}
		for _, f := range found {
			if !seen[f] {
				seen[f] = true
				all = append(all, f)
			}
		}
	}
	return all, ev.reserve(32 * len(all))
}

// descendants returns nodes and all nodes in them, in the order of the document.
func (ev *evaluation) descendants(nodes []*element) ([]*element, error) {
	var all []*element
	seen := map[*element]bool{}
	var visit func(n *element) error
	visit = func(n *element) error {
		if seen[n] {
			return nil
		}
		seen[n] = true
		if err := ev.step(1); err != nil {
			return err
		}
		all = append(all, n)
		for _, c := range n.children {
			if err := visit(c); err != nil {
				return err
			}
		}
		return nil
	}
	for _, n := range nodes {
		if err := visit(n); err != nil {
			return nil, err
		}
	}
	return all, ev.reserve(32 * len(all))
}

// from returns the nodes of a step from one node.
func (s *xpathStep) from(ev *evaluation, n *element) ([]*element, error) {
	if err := ev.step(1 + len(n.children) + len(n.attrs)); err != nil {
		return nil, err
	}
	switch s.name {
	case ".":
		return []*element{n}, nil
	case "..":
		if n.parent == nil {
			return nil, nil
		}
		return []*element{n.parent}, nil
	}
	var found []*element
	if s.attribute {
		for _, a := range n.attrs {
			if s.name == "*" || s.name == a.Name.Local {
				found = append(found, &element{text: a.Value, parent: n})
			}
		}
		return found, nil
	}
	for _, c := range n.children {
		isText := c.name == ""
		if isText && s.name == "text()" || !isText && (s.name == "*" || s.name == c.name) {
			found = append(found, c)
		}
	}
	return found, nil
}

// filter returns the nodes that fulfil a condition.
func (c *xpathCondition) filter(ev *evaluation, nodes []*element) ([]*element, error) {
	position := c.position
	if position < 0 {
		position = len(nodes)
	}
	if position > 0 || c.position != 0 {
		if position < 1 || position > len(nodes) {
			return nil, nil
		}
		return nodes[position-1 : position], nil
	}
	var kept []*element
	for _, n := range nodes {
		found, err := c.step.from(ev, n)
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			var b strings.Builder
			if err := ev.collect(&b, f); err != nil {
				return nil, err
			}
			if err := ev.step(b.Len() / 64); err != nil {
				return nil, err
			}
			if !c.compared || b.String() == c.text {
				kept = append(kept, n)
				break
			}
		}
	}
	return kept, nil
}
