package expression

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Defaults of Limits.
const (
	defaultSteps      = 100_000
	defaultBytes      = 6 << 20
	defaultValueBytes = 256 << 10
	defaultDepth      = 15
)

// evaluation is one call of Render, Evaluate or Decide.
//
// The evaluator knows these values: nil, bool, int64, float64, string, []any, map[string]any,
// Object, Secret, moment and *mixed. normal converts the values of a scope to them. Lists and
// maps of a scope are converted item by item, when an item is used, and never changed.
type evaluation struct {
	env *Environment
	// parse is Parse. The tables of functions and methods, which Parse reads, must not refer
	// to it.
	parse  func(string) (*Template, error)
	limits Limits // what remains of steps and bytes
	// texts are the values of type Text that are rendered at the moment, the outermost
	// first, and names are their names.
	texts []*Template
	names []string
	// sources are the names that the outermost expression read.
	sources []string
}

func newEvaluation(env *Environment) *evaluation {
	ev := &evaluation{env: env, parse: Parse, limits: env.Limits}
	for _, l := range [...]struct {
		limit *int
		value int
	}{{&ev.limits.Steps, defaultSteps}, {&ev.limits.Bytes, defaultBytes}, {&ev.limits.ValueBytes, defaultValueBytes}, {&ev.limits.Depth, defaultDepth}} {
		if *l.limit <= 0 {
			*l.limit = l.value
		}
	}
	return ev
}

// step counts n operations.
func (ev *evaluation) step(n int) error {
	if ev.limits.Steps -= n; ev.limits.Steps < 0 {
		return errors.New("the evaluation takes too many steps: make the expression or its values smaller")
	}
	return nil
}

// spend counts n bytes of a new value, before it is made.
func (ev *evaluation) spend(n int) error {
	if n > ev.limits.ValueBytes {
		return fmt.Errorf("a value has more than %d bytes", ev.limits.ValueBytes)
	}
	if ev.limits.Bytes -= n; ev.limits.Bytes < 0 {
		return errors.New("the values of the evaluation take too much memory: make the expression or its values smaller")
	}
	return nil
}

// value evaluates a node.
func (ev *evaluation) value(x node) (any, error) {
	if err := ev.step(1); err != nil {
		return nil, err
	}
	return x.eval(ev)
}

// at gives an error without a place the offset.
func at(err error, offset int) error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	return &Error{Offset: offset, Text: err.Error()}
}

// render evaluates the expressions of a text. A text that is exactly one expression has its
// value.
func (ev *evaluation) render(t *Template, outermost bool) (any, error) {
	if len(t.parts) == 1 && t.parts[0].node != nil {
		return ev.part(t, t.parts[0], outermost)
	}
	b := builder{spans: make([]span, 0, len(t.parts))}
	for _, p := range t.parts {
		text := t.text[p.begin:p.end]
		if p.node == nil {
			if err := ev.append(&b, text, true); err != nil {
				return nil, at(err, p.begin)
			}
			continue
		}
		v, err := ev.part(t, p, outermost)
		if err == nil && v == nil {
			err = fail(p.begin, "the value is null, and null has no text: give a default, for example <+name ?? \"none\">")
		}
		if err == nil {
			err = ev.appendText(&b, v)
		}
		if err != nil {
			err = at(err, p.begin)
			if outermost {
				err = within(err, text)
			}
			return nil, err
		}
	}
	if outermost {
		if text := join(b.spans); !hasMeaning(text) {
			return text, nil
		}
		return b.mixed(), nil
	}
	return b.value(), nil
}

// part evaluates an expression of a text.
func (ev *evaluation) part(t *Template, p part, outermost bool) (any, error) {
	if outermost {
		return ev.outermost(p.node, t.text[p.begin:p.end], p.begin)
	}
	v, err := ev.value(p.node)
	return v, at(err, p.begin)
}

// outermost evaluates an outermost expression and records its result.
func (ev *evaluation) outermost(x node, text string, offset int) (any, error) {
	ev.sources = ev.sources[:0]
	v, err := ev.value(x)
	if err != nil {
		err = within(at(err, offset), text)
	}
	if ev.env.Record != nil {
		e := Evaluated{Text: text, Offset: offset, Source: strings.Join(ev.sources, ","), Err: err}
		if err == nil {
			e.Value = plain(v, 0)
		}
		ev.env.Record(e)
	}
	return v, err
}

// within adds the outermost expression to an error.
func within(err error, text string) error {
	var e *Error
	if errors.As(err, &e) && e.Expression == "" {
		e.Expression = text
	}
	return err
}

// use converts a value of a scope. It renders a Text, whose name is for errors.
func (ev *evaluation) use(v any, name string) (any, error) {
	switch v := v.(type) {
	case string, nil, bool, int64, map[string]any, []any:
		return v, nil
	case Text:
		return ev.text(v, name)
	case Secret:
		return ev.secret(v.ID)
	}
	v, ok := normal(v)
	if !ok {
		return nil, fmt.Errorf("the value of %s has the type %T, which expressions do not have", name, v)
	}
	return v, nil
}

// text renders a Text.
func (ev *evaluation) text(text Text, name string) (any, error) {
	if !strings.Contains(text.Value, opening) && !hasMeaning(text.Value) {
		return text.Value, nil
	}
	for i, t := range ev.texts {
		if t.text == text.Value {
			return nil, fmt.Errorf("%s refers to itself: %s", name, shorten(strings.Join(append(slices.Clone(ev.names[i:]), name), " -> "), 300))
		}
	}
	if len(ev.texts) >= ev.limits.Depth {
		return nil, fmt.Errorf("%s refers to itself, or the values refer to each other more than %d deep", name, ev.limits.Depth)
	}
	if err := ev.spend(len(text.Value)); err != nil {
		return nil, err
	}
	if err := ev.step(1 + len(text.Value)/64); err != nil {
		return nil, err
	}
	t, err := ev.parse(text.Value)
	if err != nil {
		var s *SyntaxError
		if errors.As(err, &s) {
			return nil, &Error{Offset: s.Offset, Text: s.Text, Via: []string{name}}
		}
		return nil, err
	}
	ev.texts, ev.names = append(ev.texts, t), append(ev.names, name)
	v, err := ev.render(t, false)
	ev.texts, ev.names = ev.texts[:len(ev.texts)-1], ev.names[:len(ev.names)-1]
	if err != nil {
		err = at(err, 0)
		var e *Error
		if errors.As(err, &e) {
			e.Via = append([]string{name}, e.Via...)
		}
		return nil, err
	}
	return v, nil
}

func (x *literal) eval(*evaluation) (any, error) { return x.value, nil }

func (x *interpolated) eval(ev *evaluation) (any, error) {
	var b builder
	for _, p := range x.parts {
		v, err := p, error(nil)
		if n, ok := p.(node); ok {
			if v, err = ev.value(n); err == nil && v == nil {
				err = errors.New("the value of an expression inside a text is null, and null has no text: give a default with ??")
			}
		}
		if err == nil {
			err = ev.appendText(&b, v)
		}
		if err != nil {
			return nil, err
		}
	}
	return b.value(), nil
}

func (x *delimited) eval(ev *evaluation) (any, error) {
	text := ev.texts[0].text
	if len(ev.texts) > 1 { // a Text holds no condition
		return ev.value(x.x)
	}
	return ev.outermost(x.x, text[x.begin:x.end], x.begin)
}

func (x *list) eval(ev *evaluation) (any, error) {
	if err := ev.spend(16 * len(x.items)); err != nil {
		return nil, err
	}
	items := make([]any, 0, len(x.items))
	for _, n := range x.items {
		v, err := ev.value(n)
		if err != nil {
			return nil, err
		}
		if x.set {
			known, err := ev.contains(items, v)
			if err != nil {
				return nil, err
			}
			if known {
				continue
			}
		}
		items = append(items, v)
	}
	return items, nil
}

func (x *mapping) eval(ev *evaluation) (any, error) {
	if err := ev.spend(48 * len(x.keys)); err != nil {
		return nil, at(err, x.offset)
	}
	m := make(map[string]any, len(x.keys))
	for i, k := range x.keys {
		key, err := ev.value(k)
		if err != nil {
			return nil, err
		}
		name, err := ev.scalarText(key, "the key of a map")
		if err != nil {
			return nil, at(err, x.offset)
		}
		if m[name], err = ev.value(x.values[i]); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (x *ternary) eval(ev *evaluation) (any, error) {
	v, err := ev.value(x.condition)
	if err != nil && (x.yes != nil || !isUnresolved(err)) {
		return nil, err
	}
	chosen := x.no
	if err == nil && v != nil {
		yes, err := truth(v)
		if err != nil {
			return nil, err
		}
		if yes {
			if chosen = x.yes; chosen == nil {
				return v, nil
			}
		}
	}
	return ev.value(chosen)
}

func (x *unary) eval(ev *evaluation) (any, error) {
	v, err := ev.value(x.x)
	if x.operator == "empty" && isUnresolved(err) {
		return true, nil
	}
	if err != nil {
		return nil, err
	}
	switch x.operator {
	case "!":
		var yes bool
		yes, err = truth(v)
		v = !yes
	case "empty":
		v, err = isEmpty(v)
	case "size":
		v, err = sizeOf(v)
	default:
		v, err = sign(x.operator, v)
	}
	return v, at(err, x.offset)
}

func (x *binary) eval(ev *evaluation) (any, error) {
	v, err := ev.value(x.x)
	switch x.operator {
	case "&&", "||":
		return x.join(ev, v, err)
	case "??":
		if err == nil && v != nil || err != nil && !isUnresolved(err) {
			return v, err
		}
		return ev.value(x.y)
	case "==", "!=":
		if isUnresolved(err) && isNull(x.y) {
			v, err = nil, nil
		}
	}
	if err != nil {
		return nil, err
	}
	w, err := ev.value(x.y)
	if isUnresolved(err) && (x.operator == "==" || x.operator == "!=") && isNull(x.x) {
		w, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	v, err = ev.operate(x.operator, v, w)
	return v, at(err, x.offset)
}

// join evaluates && and ||. v and err are the result of the left side.
func (x *binary) join(ev *evaluation, v any, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	yes, err := truth(v)
	if err != nil {
		return nil, at(fmt.Errorf("on the left of %s: %w", x.operator, err), x.offset)
	}
	if yes == (x.operator == "||") {
		return yes, nil
	}
	if v, err = ev.value(x.y); err != nil {
		return nil, err
	}
	if yes, err = truth(v); err != nil {
		return nil, at(fmt.Errorf("on the right of %s: %w", x.operator, err), x.offset)
	}
	return yes, nil
}

// isNull reports whether a node is the constant null.
func isNull(x node) bool {
	if d, ok := x.(*delimited); ok {
		x = d.x
	}
	l, ok := x.(*literal)
	return ok && l.value == nil
}
