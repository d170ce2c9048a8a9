package expression

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// operate evaluates a binary operator by the strict arithmetic of JEXL 3.
func (ev *evaluation) operate(operator string, x, y any) (any, error) {
	switch operator {
	case "+":
		return ev.add(x, y)
	case "-", "*", "/", "%":
		return calculate(operator, x, y)
	case "==":
		return ev.equal(x, y)
	case "!=":
		yes, err := ev.equal(x, y)
		return !yes, err
	case "<", "<=", ">", ">=":
		return ev.ordered(operator, x, y)
	}
	positive := operator[0] == '='
	yes, err := ev.matches(operator[1], x, y)
	return yes == positive && err == nil, err
}

// add adds numbers. If one operand is a text, it joins the texts.
func (ev *evaluation) add(x, y any) (any, error) {
	if x == nil || y == nil {
		return nil, fmt.Errorf("an operand of + is null: %w", errNull)
	}
	if !isText(x) && !isText(y) {
		return calculate("+", x, y)
	}
	var b builder
	for _, v := range [...]any{x, y} {
		if err := ev.appendText(&b, v); err != nil {
			return nil, err
		}
	}
	return b.value(), nil
}

func isText(v any) bool {
	switch v.(type) {
	case string, *mixed, moment:
		return true
	}
	return false
}

// calculate calculates with whole numbers, or with floating point if an operand has a fraction.
func calculate(operator string, x, y any) (any, error) {
	a, err := toNumber(x)
	if err != nil {
		return nil, fmt.Errorf("the left operand of %s: %w", operator, err)
	}
	b, err := toNumber(y)
	if err != nil {
		return nil, fmt.Errorf("the right operand of %s: %w", operator, err)
	}
	i, whole := a.(int64)
	j, both := b.(int64)
	if whole && both {
		return calculateInt(operator, i, j)
	}
	f, g := toFloat(a), toFloat(b)
	switch operator {
	case "+":
		return f + g, nil
	case "-":
		return f - g, nil
	case "*":
		return f * g, nil
	}
	if g == 0 {
		return nil, errors.New("a division by 0")
	}
	if operator == "/" {
		return f / g, nil
	}
	return math.Mod(f, g), nil
}

var errOverflow = errors.New("the result is not a number of 64 bits")

func calculateInt(operator string, i, j int64) (any, error) {
	switch operator {
	case "+":
		if sum := i + j; (sum > i) == (j > 0) {
			return sum, nil
		}
		return nil, errOverflow
	case "-":
		if difference := i - j; (difference < i) == (j > 0) {
			return difference, nil
		}
		return nil, errOverflow
	case "*":
		if i == 0 || j == 0 {
			return int64(0), nil
		}
		if product := i * j; product/j == i && (i != -1 || j != math.MinInt64) && (j != -1 || i != math.MinInt64) {
			return product, nil
		}
		return nil, errOverflow
	}
	if j == 0 {
		return nil, errors.New("a division by 0")
	}
	if j == -1 {
		if operator == "%" {
			return int64(0), nil
		}
		if i == math.MinInt64 {
			return nil, errOverflow
		}
	}
	if operator == "/" {
		return i / j, nil
	}
	return i % j, nil
}

// sign evaluates the operators + and - before a value.
func sign(operator string, v any) (any, error) {
	n, err := toNumber(v)
	if err != nil {
		return nil, fmt.Errorf("the operand of %s: %w", operator, err)
	}
	if operator == "-" {
		return calculate("-", int64(0), n)
	}
	return n, nil
}

// toNumber converts a value to an int64 or a float64.
func toNumber(v any) (any, error) {
	switch v := v.(type) {
	case nil:
		return nil, errNull
	case int64, float64:
		return v, nil
	case bool:
		if v {
			return int64(1), nil
		}
		return int64(0), nil
	case string:
		return parseNumber(v)
	case Secret, *mixed:
		return nil, errSecret
	}
	return nil, fmt.Errorf("%s is not a number", typeName(v))
}

// toInt converts a value to a whole number.
func toInt(v any) (int64, error) {
	n, err := toNumber(v)
	if err != nil {
		return 0, err
	}
	switch n := n.(type) {
	case int64:
		return n, nil
	case float64:
		if n == math.Trunc(n) && math.Abs(n) < 1<<53 {
			return int64(n), nil
		}
	}
	return 0, fmt.Errorf("%s is not a whole number", scalar(n))
}

func toFloat(v any) float64 {
	if i, ok := v.(int64); ok {
		return float64(i)
	}
	return v.(float64)
}

// parseNumber parses a text as a number. The empty text is 0.
func parseNumber(text string) (any, error) {
	s := strings.TrimSpace(text)
	if s == "" {
		return int64(0), nil
	}
	i, err := strconv.ParseInt(s, 10, 64)
	if err == nil {
		return i, nil
	}
	if errors.Is(err, strconv.ErrRange) && !strings.ContainsAny(s, ".eE") {
		return nil, fmt.Errorf("the text %q is not a number of 64 bits", shorten(text, 40))
	}
	if f, ok := parseFloat(s); ok {
		return f, nil
	}
	return nil, fmt.Errorf("the text %q is not a number", shorten(text, 40))
}

// parseFloat parses a decimal number. As in Java, a number that is too large is infinite.
func parseFloat(s string) (float64, bool) {
	if s == "" || len(s) > 400 || strings.Trim(s, "0123456789.eE+-") != "" {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil || errors.Is(err, strconv.ErrRange)
}
