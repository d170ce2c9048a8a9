package secrets

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

const (
	referenceBegin = "${{secrets."
	referenceEnd   = "}}"
	templateBegin  = "<{"
	templateEnd    = "}>"
	base64Func     = "getAsBase64"
	whiteSpace     = " \t\r\n"

	maxReference = 2048 // bytes
)

// substitution replaces a part of a text by a value. The value is data: it is not
// searched for expressions (rule S2).
type substitution struct {
	begin, end int
	value      string
	secret     bool // the value is a secret or derived from one
	depth      int  // the number of functions that made the value
}

// openTemplate is a template whose end has not been found yet.
type openTemplate struct {
	begin         int
	substitutions int // the number of substitutions before it
}

// evaluate returns the substitutions for a text: references, and templates around
// them, the innermost first. It reads the text once. A value never becomes part of
// the text that it still has to read.
func (d *document) evaluate(ctx context.Context, text string) ([]substitution, error) {
	var subs []substitution
	var open []openTemplate
	for i := 0; i < len(text); {
		rest := text[i:]
		switch {
		case strings.HasPrefix(rest, referenceBegin):
			s, err := d.reference(ctx, text, i)
			if err != nil {
				return nil, err
			}
			subs, i = append(subs, s), s.end
		case strings.HasPrefix(rest, templateBegin):
			open, i = append(open, openTemplate{i, len(subs)}), i+len(templateBegin)
		case strings.HasPrefix(rest, templateEnd) && len(open) > 0:
			t := open[len(open)-1]
			open = open[:len(open)-1]
			s, ok, err := d.template(text, t.begin, i, subs[t.substitutions:])
			if err != nil {
				return nil, err
			}
			if ok {
				subs = append(subs[:t.substitutions], s)
			}
			i += len(templateEnd)
		default:
			i++
		}
	}
	if len(subs) > 0 && len(open) > 0 {
		tail := text[subs[len(subs)-1].end:]
		if open[len(open)-1].substitutions < len(subs) && strings.Contains(tail, base64Func) {
			return nil, fmt.Errorf("resolving secrets: a template begins with %s and is not ended by %s", templateBegin, templateEnd)
		}
	}
	for _, s := range subs {
		if err := checkText(s.value); err != nil {
			return nil, d.substitutionError(text, s, err)
		}
	}
	return subs, nil
}

// substitutionError returns an error that names the expression of a substitution.
func (d *document) substitutionError(text string, s substitution, err error) error {
	name, ok := strings.CutPrefix(text[s.begin:s.end], referenceBegin)
	if ok && s.depth == 0 {
		return d.resolver.referenceError(strings.TrimSuffix(name, referenceEnd), err)
	}
	return fmt.Errorf("resolving secrets: a template: %w", err)
}

// reference resolves the reference at offset begin. The reference without a name is the empty
// text. Because its value is data, it separates the characters beside it.
func (d *document) reference(ctx context.Context, text string, begin int) (substitution, error) {
	rest := text[begin+len(referenceBegin):]
	n := strings.Index(rest[:min(len(rest), maxReference+len(referenceEnd))], referenceEnd)
	if n < 0 {
		return substitution{}, fmt.Errorf("resolving secrets: a %s is not ended by %s within %d bytes", referenceBegin, referenceEnd, maxReference)
	}
	name := rest[:n]
	if name == "" { // the separator
		return substitution{begin: begin, end: begin + len(referenceBegin) + len(referenceEnd)}, nil
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune("\"'`\\{}<>", r) }) {
		return substitution{}, d.resolver.referenceError(name, errors.New("it is neither the id of a secret nor a URL"))
	}
	v, err := d.resolver.lookup(ctx, name)
	if err != nil {
		return substitution{}, err
	}
	return substitution{begin, begin + len(referenceBegin) + n + len(referenceEnd), v, true, 0}, nil
}

// template evaluates the template from offset begin to its "}>" at offset end. inside
// are the substitutions in it. ok is false if the text is data that looks like a
// template.
func (d *document) template(text string, begin, end int, inside []substitution) (_ substitution, ok bool, _ error) {
	lo, tail := begin+len(templateBegin), begin+len(templateBegin)
	if len(inside) > 0 {
		tail = inside[len(inside)-1].end
	}
	hi, times := end, 0
	for rest, found := cutFunction(text[tail:hi]); found && times <= maxDepth; rest, found = cutFunction(rest) {
		times, hi = times+1, tail+len(rest)
	}
	if times == 0 {
		return substitution{}, false, checkFunctionName(text[tail:hi], inside)
	}
	s := substitution{begin: begin, end: end + len(templateEnd), depth: times}
	for _, in := range inside {
		s.depth, s.secret = max(s.depth, in.depth+times), s.secret || in.secret
	}
	if s.depth > maxDepth {
		return substitution{}, false, fmt.Errorf("resolving secrets: templates lie more than %d deep in each other", maxDepth)
	}
	lo, hi = trimOperand(text, lo, hi, inside)
	var err error
	s.value, err = d.substitute(text[:hi], lo, inside)
	for ; times > 0 && err == nil; times-- {
		if err = d.spend(base64.StdEncoding.EncodedLen(len(s.value))); err != nil {
			break
		}
		s.value = base64.StdEncoding.EncodeToString([]byte(s.value))
		if s.secret {
			if len(s.value) > maxDerived {
				return substitution{}, false, fmt.Errorf("resolving secrets: the result of a template with a secret is larger than %d bytes", maxDerived)
			}
			d.resolver.set.Add(s.value)
		}
	}
	return s, err == nil, err
}

// trimOperand removes white space and then one pair of quotes around text[lo:hi],
// the operand of a function. It does not change the values of substitutions.
func trimOperand(text string, lo, hi int, inside []substitution) (int, int) {
	first, last := hi, lo // begin of the first substitution, end of the last one
	if len(inside) > 0 {
		first, last = inside[0].begin, inside[len(inside)-1].end
	}
	hi = last + len(strings.TrimRight(text[last:hi], whiteSpace))
	first = min(first, hi)
	lo = first - len(strings.TrimLeft(text[lo:first], whiteSpace))
	if hi-1 > lo && text[lo] == '"' && text[hi-1] == '"' { // no expression begins or ends with a quote
		return lo + 1, hi - 1
	}
	return lo, hi
}

// substitute returns text from offset lo on, with the substitutions applied.
func (d *document) substitute(text string, lo int, inside []substitution) (string, error) {
	size := len(text) - lo
	for _, s := range inside {
		size += len(s.value) - (s.end - s.begin)
	}
	if err := d.spend(size); err != nil {
		return "", err
	}
	var b strings.Builder
	b.Grow(size)
	for _, s := range inside {
		b.WriteString(text[lo:s.begin])
		b.WriteString(s.value)
		lo = s.end
	}
	b.WriteString(text[lo:])
	return b.String(), nil
}

// cutFunction removes "| getAsBase64" from the end of a text.
func cutFunction(text string) (before string, found bool) {
	before, found = strings.CutSuffix(strings.TrimRight(text, whiteSpace), base64Func)
	if !found {
		return text, false
	}
	before, found = strings.CutSuffix(strings.TrimRight(before, whiteSpace), "|")
	if !found {
		return text, false
	}
	return before, true
}

// checkFunctionName returns an error if data that looks like a template contains a
// secret and ends with an unknown function: it is probably a misspelt template. tail
// is the text after the last substitution.
func checkFunctionName(tail string, inside []substitution) error {
	if len(inside) == 0 || !inside[len(inside)-1].secret {
		return nil
	}
	const maxName = 64 // bytes, with the bar and white space
	bar := strings.LastIndexByte(tail[max(0, len(tail)-maxName):], '|')
	if bar < 0 {
		return nil
	}
	name := strings.Trim(tail[max(0, len(tail)-maxName)+bar+1:], whiteSpace)
	if name == "" || strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	}) {
		return nil
	}
	return fmt.Errorf("resolving secrets: a template has the unknown function %q; the only function is %s", name, base64Func)
}
