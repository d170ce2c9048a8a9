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

// second is a second evaluator for a part of the language. It has no tree: it splits the words
// of an expression at the operator that binds least, again and again. A value is a text: a letter
// for its type, and its content. Whole numbers have any size until the end of an operation.
//
// Types: n is null, b a Boolean, i a whole number, f a number with a fraction, s a text. l is
// a list: its items, each followed by a NUL.

type problem int

const (
	fine problem = iota
	unknownName
	failed
)

var words = regexp.MustCompile(`^(?:\s+|[a-z]+|[0-9]+(?:\.[0-9]+)?|"[^"]*"|<\+|&&|\|\||==|!=|<=|>=|=\^|!\^|=\$|!\$|\?\?|\?:|[-+*/%<>!?:()\[\],.])`)

// split returns the words of a text. The end of an expression is "+>".
func split(text string) []string {
	var all []string
	var depths []int
	for text != "" {
		w := words.FindString(text)
		if w == "" {
			panic("a word that the second evaluator does not know: " + text)
		}
		if n := len(depths); w[0] == '>' && n > 0 && depths[n-1] == 0 {
			depths = depths[:n-1]
			text = text[1:]
			all = append(all, "+>")
			continue
		} else if n > 0 {
			depths[n-1] += map[string]int{"(": 1, "[": 1, ")": -1, "]": -1}[w]
		}
		if w == "<+" {
			depths = append(depths, 0)
		}
		text = text[len(w):]
		if strings.TrimSpace(w) != "" {
			all = append(all, w)
		}
	}
	return all
}

// places returns the positions of words outside of all brackets.
func places(all []string, match func(i int) bool) (found []int) {
	depth := 0
	for i, w := range all {
		if depth == 0 && match(i) {
			found = append(found, i)
		}
		switch w {
		case "(", "[", "<+":
			depth++
		case ")", "]", "+>":
			depth--
		}
	}
	return found
}

// binaryAt reports whether a word has an operand on its left.
func binaryAt(all []string, i int) bool {
	if i == 0 {
		return false
	}
	last := all[i-1]
	for _, level := range secondLevels {
		if slices.Contains(level, last) {
			return false
		}
	}
	return strings.Contains(")]\"", last[len(last)-1:]) || last == "+>" || regexp.MustCompile(`^[a-z0-9.]+$`).MatchString(last) && last != "." && last != "not"
}

var secondLevels = [][]string{{"||", "or"}, {"&&", "and"}, {"==", "!=", "eq", "ne"}, {"<", "<=", ">", ">=", "lt", "le", "gt", "ge", "=^", "!^", "=$", "!$"}, {"+", "-"}, {"*", "/", "%", "div", "mod"}}

func second(all []string, scope map[string]string) (string, problem) {
	if found := places(all, func(i int) bool { return slices.Contains([]string{"?", "?:", "??"}, all[i]) }); len(found) > 0 {
		return secondChoice(all, found[0], scope)
	}
	for n, level := range secondLevels {
		found := places(all, func(i int) bool { return slices.Contains(level, all[i]) && binaryAt(all, i) })
		if len(found) == 0 {
			continue
		}
		if (n == 2 || n == 3) && len(found) > 1 {
			return "", failed
		}
		i := found[len(found)-1]
		return secondBinary(all[:i], all[i], all[i+1:], scope)
	}
	if all[0] == "!" || all[0] == "not" || all[0] == "-" {
		v, p := second(all[1:], scope)
		if p != fine {
			return "", p
		}
		if all[0] == "-" {
			return secondNumbers("-", "i0", v)
		}
		yes, p := secondTruth(v)
		return "b" + strconv.FormatBool(!yes), p
	}
	return secondValue(all, scope)
}

func secondChoice(all []string, i int, scope map[string]string) (string, problem) {
	v, p := second(all[:i], scope)
	switch rest := all[i+1:]; all[i] {
	case "??":
		if p == failed || p == fine && v != "n" {
			return v, p
		}
		return second(rest, scope)
	case "?:":
		if p == failed {
			return v, p
		}
		if yes, q := secondTruth(v); p == fine && q == fine && yes {
			return v, p
		}
		return second(rest, scope)
	default:
		if p != fine {
			return v, p
		}
		depth, colon := 0, -1
		for _, j := range places(rest, func(j int) bool { return rest[j] == "?" || rest[j] == ":" }) {
			if rest[j] == "?" {
				depth++
			} else if depth--; depth < 0 {
				colon = j
				break
			}
		}
		if yes, q := secondTruth(v); q == fine && yes {
			return second(rest[:colon], scope)
		}
		return second(rest[colon+1:], scope)
	}
}

func secondBinary(left []string, operator string, right []string, scope map[string]string) (string, problem) {
	operator = map[string]string{"or": "||", "and": "&&", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "div": "/", "mod": "%"}[operator] + operator
	operator = strings.TrimRight(operator, "abcdefghijklmnopqrstuvwxyz")
	v, p := second(left, scope)
	equality := operator == "==" || operator == "!="
	if equality && p == unknownName && isNullWord(right) {
		v, p = "n", fine
	}
	if p != fine {
		return "", p
	}
	if operator == "&&" || operator == "||" {
		yes, p := secondTruth(v)
		if p != fine || yes == (operator == "||") {
			return "b" + strconv.FormatBool(yes), p
		}
		w, p := second(right, scope)
		if p != fine {
			return "", p
		}
		yes, p = secondTruth(w)
		return "b" + strconv.FormatBool(yes), p
	}
	w, p := second(right, scope)
	if equality && p == unknownName && isNullWord(left) {
		w, p = "n", fine
	}
	if p != fine {
		return "", p
	}
	switch operator {
	case "+":
		if v == "n" || w == "n" {
			return "", failed
		}
		if v[0] == 's' || w[0] == 's' {
			return "s" + secondText(v) + secondText(w), fine
		}
		return secondNumbers("+", v, w)
	case "-", "*", "/", "%":
		return secondNumbers(operator, v, w)
	case "==", "!=":
		yes, p := secondEqual(v, w)
		return "b" + strconv.FormatBool(yes == (operator == "==")), p
	case "<", "<=", ">", ">=":
		if v == "n" || w == "n" {
			return "b" + strconv.FormatBool(v == w && len(operator) == 2), fine
		}
		c, p := secondCompare(v, w)
		yes := map[string]bool{"<": c < 0, "<=": c <= 0, ">": c > 0, ">=": c >= 0}[operator]
		return "b" + strconv.FormatBool(yes), p
	}
	yes, p := v == w, fine
	if v != "n" && w != "n" {
		if v[0] == 'l' || w[0] == 'l' {
			return "", failed
		}
		if operator[1] == '^' {
			yes = strings.HasPrefix(secondText(v), secondText(w))
		} else {
			yes = strings.HasSuffix(secondText(v), secondText(w))
		}
	}
	return "b" + strconv.FormatBool(yes == (operator[0] == '=')), p
}

// secondValue evaluates a value with the members and methods after it.
func secondValue(all []string, scope map[string]string) (string, problem) {
	last := all[len(all)-1]
	open := func() int { // the position of the bracket that the last word closes
		for i, depth := len(all)-1, 0; ; i-- {
			switch all[i] {
			case ")", "]", "+>":
				depth++
			case "(", "[", "<+":
				if depth--; depth == 0 {
					return i
				}
			}
		}
	}
	switch {
	case last == "+>" || last == ")" && open() == 0:
		return second(all[1:len(all)-1], scope)
	case last == "]" && open() == 0:
		list := "l"
		for _, item := range secondArgs(all[1 : len(all)-1]) {
			v, p := second(item, scope)
			if p != fine {
				return "", p
			}
			list += v + "\x00"
		}
		return list, fine
	case last == "]":
		i := open()
		v, p := second(all[:i], scope)
		if p != fine {
			return "", p
		}
		n, q := second(all[i+1:len(all)-1], scope)
		if q != fine {
			return "", q
		}
		if v[0] != 'l' {
			if n[0] == 'n' || n[0] == 'l' {
				return "", failed
			}
			return v, map[bool]problem{true: fine, false: unknownName}[v == "n"]
		}
		number, q := secondNumber(n)
		if q != fine || !number.IsInt() || n[0] == 'f' && number.MantExp(nil) > 53 {
			return "", failed
		}
		items := strings.Split(v[1:], "\x00")
		at, _ := number.Int64()
		if at < 0 || at >= int64(len(items)-1) {
			return "", unknownName
		}
		return items[at], fine
	case last == ")":
		return secondCall(all, open(), scope)
	case last[0] == '"':
		return "s" + strings.Trim(last, `"`), fine
	case last[0] >= '0' && last[0] <= '9':
		if strings.Contains(last, ".") {
			f, _ := strconv.ParseFloat(last, 64)
			return secondFloat(f), fine
		}
		return "i" + last, fine
	case last == "true" || last == "false":
		return "b" + last, fine
	case last == "null":
		return "n", fine
	}
	v, ok := scope[strings.Join(all, "")]
	if !ok {
		return "", unknownName
	}
	return v, fine
}

func secondArgs(all []string) (args [][]string) {
	begin := 0
	for _, i := range append(places(all, func(i int) bool { return all[i] == "," }), len(all)) {
		if i > begin {
			args = append(args, all[begin:i])
		}
		begin = i + 1
	}
	return args
}

func secondCall(all []string, open int, scope map[string]string) (string, problem) {
	name, arg := all[open-1], "n"
	if open == 1 {
		v, p := second(all[2:len(all)-1], scope)
		if name == "empty" && p == unknownName {
			return "btrue", fine
		}
		if p != fine {
			return "", p
		}
		if name == "empty" {
			return "b" + strconv.FormatBool(slices.Contains([]string{"n", "i0", "f0.0", "f-0.0", "s", "l"}, v)), fine
		}
		switch v[0] {
		case 'n':
			return "i0", fine
		case 's':
			return "i" + strconv.Itoa(len([]rune(v[1:]))), fine
		case 'l':
			return "i" + strconv.Itoa(strings.Count(v, "\x00")), fine
		}
		return "", failed
	}
	v, p := second(all[:open-2], scope)
	if p != fine {
		return "", p
	}
	if v == "n" {
		return "", failed
	}
	if args := secondArgs(all[open+1 : len(all)-1]); len(args) > 0 {
		if v[0] == 'l' && name != "contains" { // its arguments are not evaluated
			return "", failed
		}
		if arg, p = second(args[0], scope); p != fine {
			return "", p
		}
	}
	if v[0] == 'l' {
		if name != "contains" {
			return "", failed
		}
		return "b" + strconv.FormatBool(strings.Contains("\x00"+v[1:], "\x00"+arg+"\x00")), fine
	}
	s, a := secondText(v), secondText(arg)
	switch name {
	case "length":
		return "i" + strconv.Itoa(len([]rune(s))), fine
	case "concat":
		if arg == "n" {
			return "", failed
		}
		return "s" + s + a, fine
	case "contains":
		if arg == "n" || arg[0] == 'l' {
			return "", failed
		}
		return "b" + strconv.FormatBool(strings.Contains(s, a)), fine
	}
	n, p := secondNumber(arg) // substring
	if p != fine || !n.IsInt() || n.Sign() < 0 || n.Cmp(big.NewFloat(float64(len([]rune(s))))) > 0 {
		return "", failed
	}
	at, _ := n.Int64()
	return "s" + string([]rune(s)[at:]), fine
}

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
