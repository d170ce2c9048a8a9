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
	space          = " \t\r\n"

	maxReference = 2048 // bytes
)

// piece is a part of a text that a value takes the place of. The value is not
// looked into again: it is data (SPEC S2).
type piece struct {
	begin, end int
	value      string
	secret     bool // it is one, or derived from one
	depth      int  // functions that were applied to get it
}

// frame is a template that has begun.
type frame struct {
	begin  int
	pieces int // how many there were
}

// evaluate finds what is to be replaced in a text: references, and around them
// templates, the innermost first. One pass does it: what was put in never gets
// in front of the reading position.
func (d *document) evaluate(ctx context.Context, text string) ([]piece, error) {
	var pieces []piece
	var open []frame
	for i := 0; i < len(text); {
		rest := text[i:]
		switch {
		case strings.HasPrefix(rest, referenceBegin):
			p, err := d.reference(ctx, text, i)
			if err != nil {
				return nil, err
			}
			pieces, i = append(pieces, p), p.end
		case strings.HasPrefix(rest, templateBegin):
			open, i = append(open, frame{i, len(pieces)}), i+len(templateBegin)
		case strings.HasPrefix(rest, templateEnd) && len(open) > 0:
			f := open[len(open)-1]
			open = open[:len(open)-1]
			p, ok, err := d.template(text, f.begin, i, pieces[f.pieces:])
			if err != nil {
				return nil, err
			}
			if ok {
				pieces = append(pieces[:f.pieces], p)
			}
			i += len(templateEnd)
		default:
			i++
		}
	}
	if len(pieces) > 0 && len(open) > 0 {
		if tail := text[pieces[len(pieces)-1].end:]; open[len(open)-1].pieces < len(pieces) && strings.Contains(tail, base64Func) {
			return nil, fmt.Errorf("resolving secrets: a template begins with %s and is not ended by %s", templateBegin, templateEnd)
		}
	}
	for _, p := range pieces {
		if err := insertable(p.value); err != nil {
			return nil, d.wrong(text, p, err)
		}
	}
	return pieces, nil
}

// wrong says what is wrong with a piece, by the text that it stands for.
func (d *document) wrong(text string, p piece, err error) error {
	name, ok := strings.CutPrefix(text[p.begin:p.end], referenceBegin)
	if ok && p.depth == 0 {
		return d.resolver.failed(strings.TrimSuffix(name, referenceEnd), err)
	}
	return fmt.Errorf("resolving secrets: a template: %w", err)
}

// reference reads and resolves the reference that begins at begin.
func (d *document) reference(ctx context.Context, text string, begin int) (piece, error) {
	rest := text[begin+len(referenceBegin):]
	n := strings.Index(rest[:min(len(rest), maxReference+len(referenceEnd))], referenceEnd)
	if n < 0 {
		return piece{}, fmt.Errorf("resolving secrets: a %s is not ended by %s within %d bytes", referenceBegin, referenceEnd, maxReference)
	}
	name := rest[:n]
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune("\"'`\\{}<>", r) }) {
		return piece{}, d.resolver.failed(name, errors.New("it is neither the id of a secret nor a URL"))
	}
	v, err := d.resolver.lookup(ctx, name)
	if err != nil {
		return piece{}, err
	}
	return piece{begin, begin + len(referenceBegin) + n + len(referenceEnd), v, true, 0}, nil
}

// template evaluates what stands from begin to end, where "}>" begins, with the
// pieces that lie in it. It is not ok when that is no template but data that
// looks like one.
func (d *document) template(text string, begin, end int, inside []piece) (_ piece, ok bool, _ error) {
	lo, tail := begin+len(templateBegin), begin+len(templateBegin)
	if len(inside) > 0 {
		tail = inside[len(inside)-1].end
	}
	hi, times := end, 0
	for rest, found := cutFunc(text[tail:hi]); found && times <= MaxDepth; rest, found = cutFunc(rest) {
		times, hi = times+1, tail+len(rest)
	}
	if times == 0 {
		return piece{}, false, misspelt(text[tail:hi], inside)
	}
	p := piece{begin: begin, end: end + len(templateEnd), depth: times}
	for _, in := range inside {
		p.depth, p.secret = max(p.depth, in.depth+times), p.secret || in.secret
	}
	if p.depth > MaxDepth {
		return piece{}, false, fmt.Errorf("resolving secrets: templates lie more than %d deep in each other", MaxDepth)
	}
	lo, hi = operand(text, lo, hi, inside)
	var err error
	p.value, err = d.assemble(text[:hi], lo, inside)
	for ; times > 0 && err == nil; times-- {
		if err = d.spend(base64.StdEncoding.EncodedLen(len(p.value))); err != nil {
			break
		}
		p.value = base64.StdEncoding.EncodeToString([]byte(p.value))
		if p.secret {
			if len(p.value) > MaxDerived {
				return piece{}, false, fmt.Errorf("resolving secrets: what a template makes of a secret is larger than %d bytes", MaxDerived)
			}
			d.resolver.set.Add(p.value)
		}
	}
	return p, err == nil, err
}

// operand narrows text[lo:hi] to what a function gets: without white space
// around it, and without a pair of quotes. Both only count where the text itself
// has them, never where a value does.
func operand(text string, lo, hi int, inside []piece) (int, int) {
	first, last := hi, lo // where the first piece begins, and the last one ends
	if len(inside) > 0 {
		first, last = inside[0].begin, inside[len(inside)-1].end
	}
	hi = last + len(strings.TrimRight(text[last:hi], space))
	first = min(first, hi)
	lo = first - len(strings.TrimLeft(text[lo:first], space))
	if hi-1 > lo && text[lo] == '"' && text[hi-1] == '"' { // no expression begins or ends with one
		return lo + 1, hi - 1
	}
	return lo, hi
}

// assemble is text from lo on, with the values of the pieces in their places.
func (d *document) assemble(text string, lo int, inside []piece) (string, error) {
	size := len(text) - lo
	for _, p := range inside {
		size += len(p.value) - (p.end - p.begin)
	}
	if err := d.spend(size); err != nil {
		return "", err
	}
	var b strings.Builder
	b.Grow(size)
	for _, p := range inside {
		b.WriteString(text[lo:p.begin])
		b.WriteString(p.value)
		lo = p.end
	}
	b.WriteString(text[lo:])
	return b.String(), nil
}

// cutFunc cuts "| getAsBase64" off the end of a text.
func cutFunc(text string) (before string, found bool) {
	before, found = strings.CutSuffix(strings.TrimRight(text, space), base64Func)
	if !found {
		return text, false
	}
	before, found = strings.CutSuffix(strings.TrimRight(before, space), "|")
	if !found {
		return text, false
	}
	return before, true
}

// misspelt refuses what is no template although a secret is in it and it looks
// much like one: tail is what follows the last piece. To pass it on as data would
// hide a mistake.
func misspelt(tail string, inside []piece) error {
	if len(inside) == 0 || !inside[len(inside)-1].secret {
		return nil
	}
	const longest = 64 // what a name may take
	bar := strings.LastIndexByte(tail[max(0, len(tail)-longest):], '|')
	if bar < 0 {
		return nil
	}
	name := strings.Trim(tail[max(0, len(tail)-longest)+bar+1:], space)
	if name == "" || strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	}) {
		return nil
	}
	return fmt.Errorf("resolving secrets: a template has the unknown function %q; there is %s", name, base64Func)
}
