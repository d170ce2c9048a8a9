package main

import (
	"cmp"
	"slices"
	"strings"
)

// edit replaces a range of a text.
type edit struct {
	start, end int
	text       string
}

// edits are changes of one text that do not overlap.
type edits struct {
	source string
	list   []edit
}

// replace changes a range. It takes the place of the changes in the range.
func (e *edits) replace(start, end int, text string) {
	e.list = slices.DeleteFunc(e.list, func(o edit) bool { return o.start >= start && o.end <= end && start < end })
	e.list = append(e.list, edit{start, end, text})
}

// text returns a range with its changes.
func (e *edits) text(start, end int) string {
	var in []edit
	for _, o := range e.list {
		if o.start >= start && o.end <= end {
			in = append(in, o)
		}
	}
	slices.SortStableFunc(in, func(a, b edit) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end)) })
	var b strings.Builder
	at := start
	for _, o := range in {
		b.WriteString(e.source[at:o.start])
		b.WriteString(o.text)
		at = o.end
	}
	b.WriteString(e.source[at:end])
	return b.String()
}
