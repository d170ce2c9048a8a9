package definition

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

const inputMark = "<+input>"

// Input is a runtime input: a place of the pipeline whose value is given at the start of a run,
// or while it runs.
type Input struct {
	Position
	// Path names the input for Options.Inputs, for example pipeline.variables.tag.
	Path string `json:"path"`
	// Type is String, Number or Secret for variables, build for the codebase, or empty.
	Type        string `json:"type,omitempty"`
	Description string `json:"description,omitempty"`
	// Default is the value if there is no other; nil if there is none.
	Default *string `json:"default,omitempty"`
	// Allowed are the permitted values; empty permits all. Many permits several of them,
	// separated by commas.
	Allowed []string `json:"allowed,omitempty"`
	Many    bool     `json:"many,omitempty"`
	// Pattern is a regular expression that the whole value must match.
	Pattern string `json:"pattern,omitempty"`
	// Execution asks for the value while the run waits at the place, not at its start.
	Execution bool `json:"execution,omitempty"`
	// Given reports that an input set or Options.Inputs has a value. Value is it: text, or JSON of a list or map.
	Given bool    `json:"given,omitempty"`
	Value *string `json:"value,omitempty"`

	pattern *regexp.Regexp
}

// isInput reports whether a value is a runtime input: <+input> with its modifiers.
func isInput(n *Node) bool {
	if n == nil || n.Kind != Scalar {
		return false
	}
	text, ok := n.Value.(string)
	return ok && strings.HasPrefix(strings.TrimSpace(text), inputMark)
}

// ParseInput reads a runtime input, for example <+input>.default(a).allowedValues(a,b). It
// reports false if text is not a runtime input.
func ParseInput(text string) (Input, bool, error) {
	var in Input
	rest, found := strings.CutPrefix(strings.TrimSpace(text), inputMark)
	if !found {
		return in, false, nil
	}
	seen := map[string]bool{}
	for rest != "" {
		name, argument, after, err := nextModifier(rest)
		if err != nil {
			return in, true, err
		}
		if seen[name] {
			return in, true, fmt.Errorf("%s stands twice", name)
		}
		seen[name] = true
		if err := in.modify(name, argument); err != nil {
			return in, true, err
		}
		rest = after
	}
	return in, true, in.checkDefault()
}

var modifiers = []string{"default", "allowedValues", "selectOneFrom", "selectManyFrom", "regex", "executionInput"}

// nextModifier splits .name(argument) off. The argument ends at the first parenthesis after
// which the text ends or another modifier begins: a regular expression may hold parentheses.
func nextModifier(text string) (name, argument, rest string, err error) {
	name = modifierName(text)
	if name == "" {
		word, _, _ := strings.Cut(strings.TrimPrefix(text, "."), "(")
		hint := didYouMean(bounded(word), modifiers)
		return "", "", "", fmt.Errorf("after %s there is %s: %s", inputMark, quote(text), hint)
	}
	inside := text[len(name)+2:]
	for i := range len(inside) {
		if inside[i] != ')' {
			continue
		}
		rest = inside[i+1:]
		if rest == "" || modifierName(rest) != "" {
			return name, inside[:i], rest, nil
		}
	}
	return "", "", "", fmt.Errorf("%s has no closing parenthesis", name)
}

// modifierName returns the modifier with which text begins.
func modifierName(text string) string {
	for _, name := range modifiers {
		if strings.HasPrefix(text, "."+name+"(") {
			return name
		}
	}
	return ""
}

func (in *Input) modify(name, argument string) error {
	if name == "executionInput" {
		in.Execution = true
		if strings.TrimSpace(argument) != "" {
			return fmt.Errorf("executionInput takes no value, not %s", quote(argument))
		}
		return nil
	}
	if strings.TrimSpace(argument) == "" {
		return fmt.Errorf("%s needs a value in its parentheses", name)
	}
	switch name {
	case "default":
		value := strings.Join(arguments(argument), ",")
		if strings.HasPrefix(value, "*") {
			return fmt.Errorf("the default %s begins with *", quote(value))
		}
		in.Default = &value
	case "regex":
		in.Pattern = strings.TrimSpace(argument)
		pattern, err := regexp.Compile("^(?:" + in.Pattern + ")$")
		if err != nil {
			why := err.Error()
			if bad := (*syntax.Error)(nil); errors.As(err, &bad) { // its text quotes the whole pattern as it is
				why = bad.Code.String() + ": " + quote(bad.Expr)
			}
			return fmt.Errorf("regex: %s (look-arounds and back references are not supported)", why)
		}
		in.pattern = pattern
	default:
		if in.Allowed != nil {
			return fmt.Errorf("%s stands beside another list of values", name)
		}
		in.Allowed, in.Many = arguments(argument), name == "selectManyFrom"
	}
	return nil
}

// arguments splits a list at commas outside of quotes. A quote may be written with a backslash.
func arguments(text string) []string {
	text = strings.NewReplacer(`\'`, `'`, `\"`, `"`).Replace(text)
	var result []string
	var item strings.Builder
	var open rune
	for _, c := range text {
		switch {
		case open == 0 && (c == '\'' || c == '"') && strings.TrimSpace(item.String()) == "":
			open = c
			item.Reset()
		case open != 0 && c == open:
			open = 0
		case open == 0 && c == ',':
			result = append(result, strings.TrimSpace(item.String()))
			item.Reset()
		default:
			item.WriteRune(c)
		}
	}
	return append(result, strings.TrimSpace(item.String()))
}

func (in *Input) checkDefault() error {
	if in.Default == nil || strings.Contains(*in.Default, "<+") {
		return nil
	}
	if err := in.Check(*in.Default); err != nil {
		return fmt.Errorf("the default %w", err)
	}
	return nil
}

// Check returns an error if a value is not permitted.
func (in *Input) Check(value string) error {
	values := []string{value}
	if in.Many {
		values = arguments(value)
	}
	for _, v := range values {
		if len(in.Allowed) > 0 && !slices.Contains(in.Allowed, v) {
			return fmt.Errorf("%s is not permitted: %s", quote(v), didYouMean(v, in.Allowed))
		}
	}
	if in.pattern != nil && !in.pattern.MatchString(value) {
		return fmt.Errorf("%s does not match %s", quote(value), quote(in.Pattern))
	}
	return nil
}
