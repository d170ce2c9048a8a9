package expression_test

import (
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
