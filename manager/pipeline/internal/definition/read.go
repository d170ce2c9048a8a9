package definition

import (
	"fmt"
	"slices"
)

// reader holds the state of one Read.
type reader struct {
	opts     Options
	problems Problems
	errors   int
	skipped  int
	types    map[string]bool // of Options.StepTypes
	// templates holds the files of templates by reference and version; nil for those that
	// cannot be read.
	templates map[string]*Node
	// added counts the nodes of the document; full reports that they are too many.
	added int
	full  bool
	// inputs reports that the document may hold runtime inputs.
	inputs bool
	// missing are the inputs without a value. dropped are the values of keys without an effect: an input
	// in one of them needs no value.
	missing []*slot
	dropped []*Node
}

// Read reads a pipeline of the form v0: it replaces templates, merges input sets and inputs,
// checks the document and builds the typed tree. The pipeline is nil if a problem is an error.
func Read(source Source, opts Options) (*Pipeline, Problems) {
	r := newReader(opts)
	root := r.resolve(source)
	if root == nil {
		return nil, r.done()
	}
	r.check(root, known().objects["file"], nil)
	r.reportMissing()
	p := r.pipeline(root)
	r.checkExecutionInputs(root, p)
	r.locateProblems(root)
	problems := r.done()
	if problems.Errors() {
		return nil, problems
	}
	return p, problems
}

func newReader(opts Options) *reader {
	r := &reader{opts: opts, types: map[string]bool{}, templates: map[string]*Node{}}
	for _, name := range opts.StepTypes {
		r.types[name] = true
	}
	return r
}

// resolve returns the document with its templates and inputs in place, or nil if it cannot be
// checked.
func (r *reader) resolve(source Source) *Node {
	root := r.template(source)
	if root == nil {
		return nil
	}
	if r.fill(root); r.full {
		return nil
	}
	if r.inputs && root.deeper(maxDepth) {
		r.error(root.Position, "too-deep", nil, fmt.Sprintf("the document is nested more than %d levels with its templates and inputs in place", maxDepth), "")
		return nil
	}
	return root
}

// done returns the problems in the order of the files.
func (r *reader) done() Problems {
	if len(r.problems) == 0 {
		return nil
	}
	if r.skipped > 0 {
		r.problems = append(r.problems, Problem{Severity: Warning, Code: "more-problems",
			Text: fmt.Sprintf("%d more problems are not shown", r.skipped)})
	}
	r.problems.Sort()
	// A value with an alias is checked in each place, and has one position.
	r.problems = slices.CompactFunc(r.problems, func(a, b Problem) bool {
		return a.Position == b.Position && a.Code == b.Code && a.Text == b.Text
	})
	return r.problems
}

// add keeps a problem. Above the limit it keeps only the first errors.
func (r *reader) add(p Problem) {
	if p.Severity == Error {
		r.errors++
	}
	if len(r.problems) >= maxProblems && (p.Severity == Warning || r.errors > 1) {
		r.skipped++
		return
	}
	// A text or a hint may quote the file.
	p.Text, p.Hint = printable([]rune(p.Text)), printable([]rune(p.Hint))
	r.problems = append(r.problems, p)
}

// crowded reports that no more warnings are kept.
func (r *reader) crowded() bool { return len(r.problems) >= maxProblems }

// suggest returns the hint for an unknown word. It costs time, so only kept problems have one.
func (r *reader) suggest(word string, candidates []string) string {
	if r.crowded() {
		return ""
	}
	return didYouMean(word, candidates)
}

func (r *reader) error(at Position, code string, where *path, text, hint string) {
	r.add(Problem{Position: at, Severity: Error, Code: code, Path: where.String(), Text: text, Hint: hint})
}

func (r *reader) warn(at Position, code string, where *path, text, hint string) {
	r.add(Problem{Position: at, Severity: Warning, Code: code, Path: where.String(), Text: text, Hint: hint})
}
