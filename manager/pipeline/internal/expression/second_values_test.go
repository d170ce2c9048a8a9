package expression_test

import (
	"fmt"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func secondTruth(v string) (bool, problem) {
	if v == "n" || v == "" {
		return false, failed
	}
	return !slices.Contains([]string{"bfalse", "i0", "f0.0", "f-0.0", "fNaN", "s", "sfalse"}, v), fine
}

func secondText(v string) string {
	switch v[0] {
	case 'n':
		return "null"
	case 'l':
		items := strings.Split(strings.TrimSuffix(v[1:], "\x00"), "\x00")
		if v == "l" {
			items = nil
		}
		for i := range items {
			items[i] = secondText(items[i])
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	return v[1:]
}

// secondFloat returns the value of a number with a fraction, in the form of Java.
func secondFloat(f float64) string {
	s := strconv.FormatFloat(f, 'g', -1, 64)
	switch a := math.Abs(f); {
	case math.IsInf(f, 0):
		return "f" + strings.Replace(strings.Replace(s, "+", "", 1), "Inf", "Infinity", 1)
	case math.IsNaN(f):
		return "fNaN"
	case a != 0 && (a < 1e-3 || a >= 1e7):
		digits, exponent, _ := strings.Cut(fmt.Sprintf("%v", strconv.FormatFloat(f, 'E', -1, 64)), "E")
		n, _ := strconv.Atoi(exponent)
		if !strings.Contains(digits, ".") {
			digits += ".0"
		}
		return fmt.Sprintf("f%sE%d", digits, n)
	}
	s = strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return "f" + s
}

var decimal = regexp.MustCompile(`^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$`)

func secondNumber(v string) (*big.Float, problem) {
	s := strings.TrimSpace(v[1:])
	switch {
	case v == "btrue":
		s = "1"
	case v == "bfalse" || v == "s", v[0] == 's' && s == "":
		s = "0"
	case v[0] == 'n' || v[0] == 'l' || v[0] == 's' && !decimal.MatchString(s):
		return nil, failed
	}
	if v == "fNaN" {
		return new(big.Float), fine // the callers ask for secondFloat64
	}
	if v[0] == 'f' || strings.ContainsAny(s, "eE") { // an exponent may be too large for package big
		f, _ := strconv.ParseFloat(s, 64)
		return big.NewFloat(f), fine
	}
	n, _, err := big.ParseFloat(s, 10, 200, big.ToNearestEven)
	if err != nil {
		return nil, failed
	}
	if i, _ := n.Int(nil); whole(v) && !i.IsInt64() {
		return nil, failed
	}
	return n, fine
}

// secondFloat64 returns the value v, whose number is n, with the precision of a calculation.
func secondFloat64(v string, n *big.Float) float64 {
	if v == "fNaN" {
		return math.NaN()
	}
	f, _ := n.Float64()
	return f
}

// whole reports whether a value counts as a whole number.
func whole(v string) bool {
	return v[0] != 'f' && !strings.ContainsAny(v[1:], ".E") || v[0] == 'b'
}

func secondNumbers(operator, v, w string) (string, problem) {
	a, p := secondNumber(v)
	b, q := secondNumber(w)
	if p != fine || q != fine {
		return "", failed
	}
	if !whole(v) || !whole(w) {
		f, g := secondFloat64(v, a), secondFloat64(w, b)
		if g == 0 && (operator == "/" || operator == "%") {
			return "", failed
		}
		return secondFloat(map[string]float64{"+": f + g, "-": f - g, "*": f * g, "/": f / g, "%": math.Mod(f, g)}[operator]), fine
	}
	i, _ := a.Int(nil)
	j, _ := b.Int(nil)
	r := new(big.Int)
	switch operator {
	case "+":
		r.Add(i, j)
	case "-":
		r.Sub(i, j)
	case "*":
		r.Mul(i, j)
	default:
		if j.Sign() == 0 {
			return "", failed
		}
		quotient, rest := new(big.Int).QuoRem(i, j, r)
		r = map[string]*big.Int{"/": quotient, "%": rest}[operator]
	}
	if !r.IsInt64() {
		return "", failed
	}
	return "i" + r.String(), fine
}

func secondEqual(v, w string) (bool, problem) {
	switch {
	case v == "n" || w == "n":
		return v == w, fine
	case v[0] == 'b' || w[0] == 'b':
		a, _ := secondTruth(v)
		b, _ := secondTruth(w)
		return a == b, fine
	case v[0] == 'l' && w[0] == 'l':
		return v == w, fine
	}
	c, p := secondCompare(v, w)
	return c == 0, p
}

func secondCompare(v, w string) (int, problem) {
	kinds := string(v[0]) + string(w[0])
	if strings.ContainsAny(kinds, "if") || kinds == "bb" {
		a, p := secondNumber(v)
		b, q := secondNumber(w)
		if p != fine || q != fine {
			return 0, failed
		}
		if whole(v) && whole(w) {
			return a.Cmp(b), fine
		}
		f, g := secondFloat64(v, a), secondFloat64(w, b)
		if math.IsNaN(f) || math.IsNaN(g) { // NaN equals itself and is less than all numbers
			return map[bool]int{true: 1}[math.IsNaN(g)] - map[bool]int{true: 1}[math.IsNaN(f)], fine
		}
		return big.NewFloat(f).Cmp(big.NewFloat(g)), fine
	}
	if !strings.Contains(kinds, "s") {
		return 0, failed
	}
	return strings.Compare(secondText(v), secondText(w)), fine
}

// isNullWord reports whether words are the constant null, perhaps in brackets.
func isNullWord(all []string) bool {
	return strings.Trim(strings.Join(all, ""), "(<+>)") == "null"
}
