package expression

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// equal implements ==. Values of which one is a Boolean are compared as Booleans, values of which
// one is a number as numbers, other ones as texts.
func (ev *evaluation) equal(x, y any) (bool, error) {
	if x == nil || y == nil {
		return x == nil && y == nil, nil
	}
	if _, ok := x.(bool); ok {
		return equalTruth(x, y)
	}
	if _, ok := y.(bool); ok {
		return equalTruth(x, y)
	}
	if !isNumber(x) && !isNumber(y) && !isText(x) && !isText(y) {
		return ev.equalItems(x, y, 0)
	}
	n, err := ev.compare(x, y)
	return n == 0 && err == nil, err
}

func equalTruth(x, y any) (bool, error) {
	a, err := truth(x)
	if err != nil {
		return false, err
	}
	b, err := truth(y)
	return a == b, err
}

// equalItems compares values without conversion, as the items of lists are compared.
func (ev *evaluation) equalItems(x, y any, level int) (bool, error) {
	if err := ev.step(1); err != nil {
		return false, err
	}
	if level > maxLevels {
		return false, fmt.Errorf("a value is nested more than %d deep", maxLevels)
	}
	var err error
	if x, err = ev.use(x, "an item"); err != nil {
		return false, err
	}
	if y, err = ev.use(y, "an item"); err != nil {
		return false, err
	}
	switch x := x.(type) {
	case []any:
		z, ok := y.([]any)
		if !ok || len(x) != len(z) {
			return false, nil
		}
		for i := range x {
			if same, err := ev.equalItems(x[i], z[i], level+1); err != nil || !same {
				return false, err
			}
		}
		return true, nil
	case map[string]any:
		z, ok := y.(map[string]any)
		if !ok || len(x) != len(z) {
			return false, nil
		}
		for k, v := range x {
			w, known := z[k]
			if !known {
				return false, nil
			}
			if same, err := ev.equalItems(v, w, level+1); err != nil || !same {
				return false, err
			}
		}
		return true, nil
	case Secret, *mixed:
		return false, errSecret
	case Object:
		return false, errors.New("a map cannot be compared: name one of its members")
	}
	switch y.(type) {
	case Secret, *mixed:
		return false, errSecret
	case []any, map[string]any, Object:
		return false, nil
	}
	if err := ev.step(textSteps(x)); err != nil {
		return false, err
	}
	return x == y, nil
}

// textSteps returns the operations that reading a text takes.
func textSteps(v any) int {
	s, _ := v.(string)
	return len(s) / 256
}

func isNumber(v any) bool {
	switch v.(type) {
	case int64, float64:
		return true
	}
	return false
}

// compare compares two values that are not null: as numbers if one is a number, otherwise as
// texts. It returns -1, 0 or 1.
func (ev *evaluation) compare(x, y any) (int, error) {
	if isNumber(x) || isNumber(y) {
		a, err := toNumber(x)
		if err != nil {
			return 0, fmt.Errorf("a comparison with a number: %w", err)
		}
		b, err := toNumber(y)
		if err != nil {
			return 0, fmt.Errorf("a comparison with a number: %w", err)
		}
		return compareNumbers(a, b), nil
	}
	if p, ok := x.(bool); ok {
		if q, ok := y.(bool); ok {
			return compareNumbers(truthNumber(p), truthNumber(q)), nil
		}
	}
	if p, ok := x.(moment); ok {
		if q, ok := y.(moment); ok {
			return p.at.Compare(q.at), nil
		}
	}
	if !isText(x) && !isText(y) {
		return 0, fmt.Errorf("%s and %s have no order", typeName(x), typeName(y))
	}
	a, err := ev.textOf(x)
	if err != nil {
		return 0, err
	}
	b, err := ev.textOf(y)
	if err != nil {
		return 0, err
	}
	return strings.Compare(a, b), ev.step(min(len(a), len(b)) / 256)
}

func truthNumber(b bool) any {
	n, _ := toNumber(b)
	return n
}

// compareNumbers orders numbers. NaN is less than every other number.
func compareNumbers(a, b any) int {
	i, whole := a.(int64)
	j, both := b.(int64)
	if whole && both {
		switch {
		case i < j:
			return -1
		case i > j:
			return 1
		}
		return 0
	}
	f, g := toFloat(a), toFloat(b)
	switch {
	case f == g || math.IsNaN(f) && math.IsNaN(g):
		return 0
	case f < g || math.IsNaN(f):
		return -1
	}
	return 1
}

// ordered implements <, <=, > and >=. With null on one side they are false. With null on both
// sides <= and >= are true.
func (ev *evaluation) ordered(operator string, x, y any) (bool, error) {
	orEqual := len(operator) == 2
	if x == nil || y == nil {
		return orEqual && x == nil && y == nil, nil
	}
	n, err := ev.compare(x, y)
	switch {
	case err != nil:
		return false, err
	case n == 0:
		return orEqual, nil
	}
	return (n < 0) == (operator[0] == '<'), nil
}

// matches implements the positive form of =~ (operator ~), =^ (^) and =$ ($).
func (ev *evaluation) matches(operator byte, x, y any) (bool, error) {
	if x == nil || y == nil {
		return x == nil && y == nil, nil
	}
	if operator == '~' {
		return ev.in(x, y)
	}
	text, err := ev.scalarText(x, "the left operand")
	if err != nil {
		return false, err
	}
	part, err := ev.scalarText(y, "the right operand")
	if err != nil {
		return false, err
	}
	if operator == '^' {
		return strings.HasPrefix(text, part), nil
	}
	return strings.HasSuffix(text, part), nil
}

// in implements =~: the text matches a pattern wholly, or a list or a map contains the value.
func (ev *evaluation) in(x, y any) (bool, error) {
	switch y := y.(type) {
	case []any:
		if items, ok := x.([]any); ok {
			for _, item := range items {
				if known, err := ev.contains(y, item); err != nil || !known {
					return false, err
				}
			}
			return true, nil
		}
		return ev.contains(y, x)
	case map[string]any, Object:
		name, err := ev.scalarText(x, "the left operand")
		if err != nil {
			return false, err
		}
		_, known, err := ev.member(y, name)
		return known, err
	}
	pattern, err := ev.scalarText(y, "the pattern")
	if err != nil {
		return false, err
	}
	text, err := ev.textOf(x)
	if err != nil {
		return false, err
	}
	re, err := ev.pattern(`\A(?:`+pattern+`)\z`, pattern, text)
	return err == nil && re.MatchString(text), err
}

// contains reports whether a list has an item that equals a value without conversion.
func (ev *evaluation) contains(items []any, v any) (bool, error) {
	for _, item := range items {
		if same, err := ev.equalItems(item, v, 0); err != nil || same {
			return same, err
		}
	}
	return false, nil
}
