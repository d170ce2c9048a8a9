package expression

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const maxSources = 16

// eval resolves a dotted name.
func (x *path) eval(ev *evaluation) (any, error) {
	var v any
	var ok bool
	if ev.env.Scope != nil {
		v, ok = ev.env.Scope.Lookup(x.parts[0])
	}
	if !ok {
		var names []string
		if ev.env.Scope != nil {
			names = ev.env.Scope.Names()
		}
		return nil, x.unresolved(ev, 0, names)
	}
	v, err := ev.usePart(v, x.parts[:1])
	for i := 1; i < len(x.parts) && err == nil; i++ {
		var w any
		if w, ok, err = ev.member(v, x.parts[i]); err == nil && !ok {
			return nil, x.unresolved(ev, i, namesOf(v))
		}
		if err == nil {
			v, err = ev.usePart(w, x.parts[:i+1])
		}
	}
	if ev.env.Record != nil && len(ev.sources) < maxSources {
		ev.sources = append(ev.sources, strings.Join(x.parts, "."))
	}
	return v, at(err, x.offset)
}

// usePart converts the value of a dotted name. It makes the name only if a conversion needs it.
func (ev *evaluation) usePart(v any, parts []string) (any, error) {
	switch v.(type) {
	case string, Object, map[string]any:
		return v, nil
	}
	return ev.use(v, strings.Join(parts, "."))
}

// unresolved returns the error about part i of the name.
func (x *path) unresolved(ev *evaluation, i int, names []string) error {
	known := strings.Join(x.parts[:i], ".")
	e := unknown(x.offset, known, x.parts[i], names)
	switch {
	case x.hyphen != "" && i == len(x.parts)-1:
		e.Text += fmt.Sprintf("; a name with a hyphen is written [%q]", x.hyphen)
		e.Nearest = ""
	case i > 0 && x.parts[i] == "output" && !slices.Contains(names, "output"): // not a step that has not ended
		e.Text += "; outputs belong to steps: use pipeline.stages.STAGE.spec.execution.steps.STEP.output.outputVariables.NAME"
		e.Nearest = ""
	case i == 0 && len(x.parts) == 1 && len(ev.texts) > 0:
		e.Text += fmt.Sprintf("; a text stands in quotes: %q", x.parts[0])
	}
	return e
}

// unknown returns the error about a name after a known name, which may be empty.
func unknown(offset int, known, name string, names []string) *Error {
	e := &Error{Offset: offset, Unresolved: true}
	if known != "" {
		known += "."
	}
	e.Text = shorten(known+name, 200) + " is unknown"
	if near := nearest(name, names); near != "" {
		e.Nearest = known + near
	}
	return e
}

// member returns a member of a value, as the scope has it. A member of null is null.
func (ev *evaluation) member(v any, name string) (any, bool, error) {
	if err := ev.step(1); err != nil {
		return nil, false, err
	}
	switch v := v.(type) {
	case nil:
		return nil, true, nil
	case Object:
		w, ok := v.Member(name)
		return w, ok, nil
	case map[string]any:
		w, ok := v[name]
		return w, ok, nil
	case []any:
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(v) {
			return v[i], true, nil
		}
		return nil, false, nil
	case *mixed, Secret:
		return nil, false, errSecret
	}
	return nil, false, nil
}

// namesOf returns the names of the members of a value.
func namesOf(v any) []string {
	switch v := v.(type) {
	case Object:
		return v.Names()
	case map[string]any:
		return sortedKeys(v)
	}
	return nil
}

func (x *member) eval(ev *evaluation) (any, error) {
	v, err := ev.value(x.x)
	return ev.dot(v, err, x.name, x.offset, x.safe)
}

// dot returns a member of a value. err is the error of the value. The form a?.b is null if a is
// null, or if b is unknown.
func (ev *evaluation) dot(v any, err error, name string, offset int, safe bool) (any, error) {
	if err != nil || v == nil {
		return nil, err
	}
	w, ok, err := ev.member(v, name)
	if err != nil {
		return nil, at(err, offset)
	}
	if !ok {
		if safe {
			return nil, nil
		}
		return nil, unknown(offset, "", name, namesOf(v))
	}
	w, err = ev.use(w, name)
	return w, at(err, offset)
}

func (x *computed) eval(ev *evaluation) (any, error) {
	var name strings.Builder
	for _, p := range x.parts {
		if n, ok := p.(node); ok {
			v, err := ev.value(n)
			if err != nil {
				return nil, err
			}
			text, err := ev.scalarText(v, "a part of a name")
			if err != nil {
				return nil, at(err, x.offset)
			}
			p = text
		}
		name.WriteString(p.(string))
		if name.Len() > ev.limits.ValueBytes {
			return nil, at(ev.spend(name.Len()), x.offset)
		}
	}
	if x.x == nil {
		p := path{parts: []string{name.String()}, offset: x.offset}
		return p.eval(ev)
	}
	v, err := ev.value(x.x)
	if err == nil {
		if _, ok, _ := ev.member(v, name.String()); !ok && strings.Contains(name.String(), ".") {
			parts := strings.Split(name.String(), ".")
			if err := ev.step(len(parts)); err != nil {
				return nil, at(err, x.offset)
			}
			for _, part := range parts {
				v, err = ev.dot(v, err, part, x.offset, x.safe)
			}
			return v, err
		}
	}
	return ev.dot(v, err, name.String(), x.offset, x.safe)
}

func (x *index) eval(ev *evaluation) (any, error) {
	v, err := ev.value(x.x)
	if err != nil {
		return nil, err
	}
	i, err := ev.value(x.i)
	if err != nil {
		return nil, err
	}
	if items, ok := v.([]any); ok {
		n, err := toInt(i)
		if err != nil {
			return nil, at(fmt.Errorf("the index of a list: %w", err), x.offset)
		}
		if n < 0 || n >= int64(len(items)) {
			e := fail(x.offset, "the list has no item %d: it has %d", n, len(items))
			e.Unresolved = true
			return nil, e
		}
		v, err := ev.use(items[n], "item "+strconv.FormatInt(n, 10))
		return v, at(err, x.offset)
	}
	name, err := ev.scalarText(i, "an index")
	if err != nil {
		return nil, at(err, x.offset)
	}
	return ev.dot(v, nil, name, x.offset, false)
}
