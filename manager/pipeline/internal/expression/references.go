package expression

import "strings"

// collector collects the references of a tree.
type collector struct {
	found []Reference
}

func (c *collector) add(r Reference) { c.found = append(c.found, r) }

// visit collects the references of a node. optional reports that an unknown name is no error.
func (c *collector) visit(x node, optional bool) {
	switch x := x.(type) {
	case *path:
		c.add(Reference{Name: strings.Join(x.parts, "."), Offset: x.offset, Optional: optional})
	case *interpolated:
		for _, p := range x.parts {
			if n, ok := p.(node); ok {
				c.visit(n, optional)
			}
		}
	case *computed:
		c.computed(x, optional)
	case *member:
		c.member(x, optional)
	case *index:
		c.index(x, optional)
	case *call:
		c.visit(x.x, optional)
		c.all(x.args, optional)
	case *function:
		c.function(x, optional)
	case *unary:
		c.visit(x.x, optional || x.operator == "empty")
	case *binary:
		null := (x.operator == "==" || x.operator == "!=") && (isNull(x.x) || isNull(x.y))
		c.visit(x.x, optional || null || x.operator == "??")
		c.visit(x.y, optional || null)
	case *ternary:
		c.visit(x.condition, optional || x.yes == nil)
		if x.yes != nil {
			c.visit(x.yes, optional)
		}
		c.visit(x.no, optional)
	case *list:
		c.all(x.items, optional)
	case *mapping:
		c.all(x.keys, optional)
		c.all(x.values, optional)
	case *delimited:
		c.visit(x.x, optional)
	}
}

func (c *collector) all(nodes []node, optional bool) {
	for _, n := range nodes {
		c.visit(n, optional)
	}
}

// extend adds the rest of a name to the reference that the value before it made.
func (c *collector) extend(x node, rest string, optional bool) {
	before := len(c.found)
	c.visit(x, optional)
	if len(c.found) == before || !isName(x) {
		return
	}
	r := &c.found[before]
	if r.Partial || r.Secret {
		return
	}
	if rest == "" {
		r.Partial = true
		return
	}
	r.Name += "." + rest
}

// isName reports whether a node is a dotted name.
func isName(x node) bool {
	switch x := x.(type) {
	case *path, *computed:
		return true
	case *member:
		return isName(x.x)
	case *index:
		return isName(x.x)
	case *delimited:
		return isName(x.x)
	}
	return false
}

func (c *collector) member(x *member, optional bool) {
	c.extend(x.x, x.name, optional || x.safe)
}

func (c *collector) index(x *index, optional bool) {
	rest := ""
	if l, ok := x.i.(*literal); ok {
		rest = scalar(l.value)
	}
	c.extend(x.x, rest, optional)
	c.visit(x.i, optional)
}

func (c *collector) computed(x *computed, optional bool) {
	if x.x == nil {
		c.add(Reference{Offset: x.offset, Partial: true, Optional: optional})
	} else {
		c.extend(x.x, "", optional || x.safe)
	}
	for _, p := range x.parts {
		if n, ok := p.(node); ok {
			c.visit(n, optional)
		}
	}
}

func (c *collector) function(x *function, optional bool) {
	if x.name == "secrets.getValue" {
		r := Reference{Offset: x.offset, Secret: true, Partial: true}
		if l, ok := x.args[0].(*literal); ok {
			r.Name, r.Partial = scalar(l.value), false
		}
		c.add(r)
	}
	c.all(x.args, optional || x.name == "expression.isResolved")
}
