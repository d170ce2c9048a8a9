package expression

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// method is a method of a type. run gets as many arguments as least to most allow.
type method struct {
	least, most int
	run         func(ev *evaluation, v any, args []any) (any, error)
}

// methodNames are the names of all methods. Every other method is a syntax error.
var methodNames = allMethods()

func allMethods() map[string]bool {
	names := map[string]bool{}
	for name := range textMethods {
		names[name] = true
	}
	for name := range listMethods {
		names[name] = true
	}
	for name := range mapMethods {
		names[name] = true
	}
	for unit := range units {
		names["plus"+unit], names["minus"+unit] = true, true
	}
	return names
}

func (x *call) eval(ev *evaluation) (any, error) {
	v, err := ev.value(x.x)
	if err != nil || x.safe && v == nil {
		return nil, err
	}
	m, err := methodOf(v, x.name)
	if err != nil {
		return nil, at(err, x.offset)
	}
	if len(x.args) < m.least || len(x.args) > m.most {
		return nil, fail(x.offset, "the method %s takes %s, not %d", x.name, count(m.least, m.most, "argument"), len(x.args))
	}
	args := make([]any, len(x.args))
	for i, a := range x.args {
		if args[i], err = ev.value(a); err != nil {
			return nil, err
		}
	}
	v, err = m.run(ev, v, args)
	if err != nil && !isUnresolved(err) {
		err = at(fmt.Errorf("the method %s: %w", x.name, err), x.offset)
	}
	return v, at(err, x.offset)
}

// methodOf returns a method of a value.
func methodOf(v any, name string) (method, error) {
	var m method
	var ok bool
	switch v := v.(type) {
	case nil:
		return m, fmt.Errorf("null has no method %s: give a default with ??, or call the method with ?. instead of a point", name)
	case string:
		m, ok = textMethods[name]
	case []any:
		m, ok = listMethods[name]
	case map[string]any, Object:
		m, ok = mapMethods[name]
	case moment:
		return dateMethod(v, name)
	case *mixed, Secret:
		return m, errSecret
	default: // A number or a Boolean has the methods of its text.
		m, ok = textMethods[name]
		run := m.run
		m.run = func(ev *evaluation, v any, args []any) (any, error) { return run(ev, scalar(v), args) }
	}
	if !ok {
		return m, fmt.Errorf("%s has no method %s", typeName(v), name)
	}
	return m, nil
}

func dateMethod(v moment, name string) (method, error) {
	sign, unit := int64(1), ""
	if rest, ok := strings.CutPrefix(name, "plus"); ok {
		unit = rest
	} else if rest, ok := strings.CutPrefix(name, "minus"); ok {
		sign, unit = -1, rest
	}
	if _, ok := units[unit]; !ok {
		return method{}, fmt.Errorf("a date has no method %s", name)
	}
	return method{1, 1, func(_ *evaluation, _ any, args []any) (any, error) {
		n, err := toInt(args[0])
		if err != nil || n < -maxAmount || n > maxAmount {
			return nil, fmt.Errorf("the argument must be a whole number up to %d", maxAmount)
		}
		return v.plus(sign*n, unit)
	}}, nil
}

// texts wraps a method whose arguments are texts.
func texts(arguments int, run func(ev *evaluation, s string, args []string) (any, error)) method {
	return method{arguments, arguments, func(ev *evaluation, v any, args []any) (any, error) {
		list := make([]string, len(args))
		for i, a := range args {
			var err error
			if list[i], err = ev.scalarText(a, "an argument"); err != nil {
				return nil, err
			}
		}
		if err := ev.step(len(v.(string)) / 64); err != nil {
			return nil, err
		}
		return run(ev, v.(string), list)
	}}
}

// made counts the size of a new text.
func (ev *evaluation) made(s string) (any, error) { return s, ev.spend(len(s)) }

// textMethods are the methods of a text. Positions count characters.
var textMethods = map[string]method{
	"concat": {1, 1, func(ev *evaluation, v any, args []any) (any, error) { return ev.add(v, args[0]) }},
	"contains": texts(1, func(_ *evaluation, s string, a []string) (any, error) {
		return strings.Contains(s, a[0]), nil
	}),
	"startsWith": texts(1, func(_ *evaluation, s string, a []string) (any, error) {
		return strings.HasPrefix(s, a[0]), nil
	}),
	"endsWith": texts(1, func(_ *evaluation, s string, a []string) (any, error) {
		return strings.HasSuffix(s, a[0]), nil
	}),
	"equals": {1, 1, func(ev *evaluation, v any, args []any) (any, error) {
		return ev.equalItems(v, args[0], 0)
	}},
	"equalsIgnoreCase": {1, 1, func(_ *evaluation, v any, args []any) (any, error) {
		switch a := args[0].(type) {
		case nil:
			return false, nil
		case Secret, *mixed:
			return nil, errSecret
		default:
			return strings.EqualFold(v.(string), scalar(a)), nil
		}
	}},
	"isEmpty": texts(0, func(_ *evaluation, s string, _ []string) (any, error) { return s == "", nil }),
	"length":  texts(0, func(_ *evaluation, s string, _ []string) (any, error) { return int64(length(s)), nil }),
	"toLowerCase": texts(0, func(ev *evaluation, s string, _ []string) (any, error) {
		return ev.made(strings.ToLower(s))
	}),
	"toUpperCase": texts(0, func(ev *evaluation, s string, _ []string) (any, error) {
		return ev.made(strings.ToUpper(s))
	}),
	// Java's trim removes all characters up to the space.
	"trim": texts(0, func(_ *evaluation, s string, _ []string) (any, error) {
		return strings.TrimFunc(s, func(r rune) bool { return r <= ' ' }), nil
	}),
	"replace": texts(2, func(ev *evaluation, s string, a []string) (any, error) {
		if n := strings.Count(s, a[0]); n > 0 {
			if err := ev.spend(len(s) + n*(len(a[1])-len(a[0]))); err != nil {
				return nil, err
			}
		}
		return strings.ReplaceAll(s, a[0], a[1]), nil
	}),
	"replaceAll": texts(2, func(ev *evaluation, s string, a []string) (any, error) {
		return ev.replacePattern(a[0], a[1], s)
	}),
	"matches": texts(1, func(ev *evaluation, s string, a []string) (any, error) { return ev.in(s, a[0]) }),
	"split":   {1, 2, split},
	"indexOf": {1, 2, func(ev *evaluation, v any, args []any) (any, error) {
		return position(ev, v, args, false)
	}},
	"lastIndexOf": {1, 1, func(ev *evaluation, v any, args []any) (any, error) {
		return position(ev, v, args, true)
	}},
	"substring": {1, 2, func(ev *evaluation, v any, args []any) (any, error) {
		return substring(ev, v.(string), args)
	}},
	"charAt": {1, 1, func(ev *evaluation, v any, args []any) (any, error) {
		i, err := toInt(args[0])
		if err != nil {
			return nil, err
		}
		if n := int64(length(v.(string))); i < 0 || i >= n {
			return nil, fmt.Errorf("the position %d is outside of a text of %d characters", i, n)
		}
		return substring(ev, v.(string), []any{i, i + 1})
	}},
}

// listMethods are the methods of a list.
var listMethods = map[string]method{
	"get": {1, 1, func(ev *evaluation, v any, args []any) (any, error) {
		return (&index{&literal{v}, &literal{args[0]}, 0}).eval(ev)
	}},
	"size": {0, 0, func(_ *evaluation, v any, _ []any) (any, error) { return sizeOf(v) }},
	"contains": {1, 1, func(ev *evaluation, v any, args []any) (any, error) {
		return ev.contains(v.([]any), args[0])
	}},
	"indexOf": {1, 1, func(ev *evaluation, v any, args []any) (any, error) {
		for i, item := range v.([]any) {
			if same, err := ev.equalItems(item, args[0], 0); err != nil || same {
				return int64(i), err
			}
		}
		return int64(-1), nil
	}},
	"join": {1, 1, func(ev *evaluation, v any, args []any) (any, error) {
		separator, err := ev.scalarText(args[0], "the separator")
		if err != nil {
			return nil, err
		}
		var b builder
		for i, item := range v.([]any) {
			if i > 0 {
				if err := ev.append(&b, separator, false); err != nil {
					return nil, err
				}
			}
			if item, err = ev.use(item, "an item"); err != nil {
				return nil, err
			}
			if err := ev.step(1); err != nil {
				return nil, err
			}
			if err := ev.appendText(&b, item); err != nil {
				return nil, err
			}
		}
		return b.value(), nil
	}},
}

// mapMethods are the methods of a map.
var mapMethods = map[string]method{
	"get": {1, 1, func(ev *evaluation, v any, args []any) (any, error) {
		return (&index{&literal{v}, &literal{args[0]}, 0}).eval(ev)
	}},
	"size": {0, 0, func(_ *evaluation, v any, _ []any) (any, error) { return sizeOf(v) }},
	"keySet": {0, 0, func(ev *evaluation, v any, _ []any) (any, error) {
		names := namesOf(v)
		if err := ev.spend(16 * len(names)); err != nil {
			return nil, err
		}
		keys, _ := normal(names)
		return keys, ev.step(len(names))
	}},
	"containsKey": {1, 1, func(ev *evaluation, v any, args []any) (any, error) {
		name, err := ev.scalarText(args[0], "the key")
		if err != nil {
			return nil, err
		}
		_, known, err := ev.member(v, name)
		return known, err
	}},
}

// length returns the number of characters.
func length(s string) int { return utf8.RuneCountInString(s) }

// offset returns the offset in bytes of character n, which must be at most the length.
func offset(s string, n int64) int {
	for i := range s {
		if n == 0 {
			return i
		}
		n--
	}
	return len(s)
}

func substring(ev *evaluation, s string, args []any) (any, error) {
	n := int64(length(s))
	if err := ev.step(len(s) / 64); err != nil {
		return nil, err
	}
	from, err := toInt(args[0])
	to := n
	if err == nil && len(args) > 1 {
		to, err = toInt(args[1])
	}
	if err != nil {
		return nil, err
	}
	if from < 0 || to > n || from > to {
		return nil, fmt.Errorf("the positions %d to %d are outside of a text of %d characters", from, to, n)
	}
	s = s[offset(s, from):]
	return s[:offset(s, to-from)], nil
}

// position implements indexOf and lastIndexOf.
func position(ev *evaluation, v any, args []any, last bool) (any, error) {
	s := v.(string)
	part, err := ev.scalarText(args[0], "an argument")
	if err != nil {
		return nil, err
	}
	if err := ev.step(len(s) / 64); err != nil {
		return nil, err
	}
	begin := 0
	if len(args) > 1 {
		from, err := toInt(args[1])
		if err != nil {
			return nil, err
		}
		begin = offset(s, min(max(from, 0), int64(length(s))))
	}
	i := strings.Index(s[begin:], part)
	if last {
		i = strings.LastIndex(s, part)
	}
	if i < 0 {
		return int64(-1), nil
	}
	return int64(length(s[:begin+i])), nil
}
