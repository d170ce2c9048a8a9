package definition

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"
)

// Inputs returns the runtime inputs of a pipeline with its templates in place, in the order of
// the document.
func Inputs(source Source, opts Options) ([]Input, Problems) {
	opts.Partial = true
	r := newReader(opts)
	root := r.template(source)
	if root == nil {
		return nil, r.done()
	}
	found := r.slots(root, nil)
	given := r.given(root, found)
	inputs := make([]Input, len(found))
	for i, s := range found {
		inputs[i] = s.Input
		if value := given[s]; value != nil {
			text := value.Text()
			if value.Kind != Scalar {
				b, err := json.Marshal(value.Plain())
				if err != nil { // plain values always encode
					continue
				}
				text = string(b)
			}
			inputs[i].Given, inputs[i].Value = true, &text
		}
	}
	return inputs, r.done()
}

// fill replaces the runtime inputs of a document by their values. Missing ones are errors unless
// Options.Partial is set.
func (r *reader) fill(root *Node) {
	if !r.inputs && len(r.opts.InputSets) == 0 && len(r.opts.Inputs) == 0 {
		return
	}
	found := r.slots(root, nil)
	given := r.given(root, found)
	for _, s := range found {
		value := given[s]
		switch {
		case value != nil:
			r.place(s, value)
		case s.Execution:
		case s.Default != nil:
			r.place(s, s.scalar(*s.Default))
		case !r.opts.Partial:
			r.missing = append(r.missing, s)
		}
	}
	r.checkNested(given)
}

// reportMissing reports the inputs without a value. Those in keys without an effect become null.
func (r *reader) reportMissing() {
	if len(r.missing) == 0 {
		return
	}
	dropped := map[*Node]bool{}
	for _, n := range r.dropped {
		markUsed(n, dropped)
	}
	for _, s := range r.missing {
		if dropped[s.node] {
			*s.node = Node{Position: s.Position}
			continue
		}
		hint := "give it a value by this path, or by an input set"
		if len(s.Allowed) > 0 {
			hint += "; permitted are " + bounded(strings.Join(s.Allowed, ", "))
		}
		r.error(s.Position, "missing-input", nil, fmt.Sprintf("the input %s has no value", s.Path), hint)
	}
}

// checkNested reports inputs that stand inside of the values of inputs.
func (r *reader) checkNested(given map[*slot]*Node) {
	for s, value := range given {
		if value.Kind == Scalar || r.opts.Partial {
			continue
		}
		for _, inner := range r.slots(s.node, nil) {
			r.error(inner.Position, "missing-input", nil, fmt.Sprintf("the value of the input %s has an input inside", s.Path), "write the value")
		}
	}
}

// place checks a value and writes it over the input.
func (r *reader) place(s *slot, value *Node) {
	if value.Kind == Scalar && !value.Dynamic() {
		if err := s.Check(value.Text()); err != nil {
			r.error(value.Position, "bad-input", nil, fmt.Sprintf("the value of the input %s: %s", s.Path, err), "")
			return
		}
	}
	if value.Kind == List {
		for _, item := range value.Items {
			if err := s.Check(item.Text()); err != nil {
				r.error(item.Position, "bad-input", nil, fmt.Sprintf("the value of the input %s: %s", s.Path, err), "")
			}
		}
	}
	if r.grow(value) {
		value.copyTo(s.node)
	}
}

// grow counts nodes that are added to the document.
func (r *reader) grow(n *Node) bool {
	if r.added += n.size(); r.added <= maxNodes {
		return true
	}
	if !r.full {
		r.error(n.Position, "too-large", nil, fmt.Sprintf("the document has more than %d values with its templates and inputs in place", maxNodes), "")
	}
	r.full = true
	return false
}

// given returns the value of each input: of the last input set that has one, or of
// Options.Inputs.
func (r *reader) given(root *Node, found []*slot) map[*slot]*Node {
	given := map[*slot]*Node{}
	if len(r.opts.InputSets) > maxSets {
		r.error(Position{}, "too-large", nil, fmt.Sprintf("%d input sets: at most %d are merged", len(r.opts.InputSets), maxSets), "")
		return given
	}
	if len(r.opts.InputSets) > 0 {
		fixed := index(root, nil)
		for _, source := range r.opts.InputSets {
			if set := r.inputSet(source); set != nil {
				r.merge(set, &path{key: "pipeline"}, fixed, found, given)
			}
		}
	}
	r.direct(found, given)
	return given
}

// inputSet returns the value of the key pipeline of an input set.
func (r *reader) inputSet(source Source) *Node {
	root, problem := parse(source)
	if problem != nil {
		r.add(*problem)
		return nil
	}
	if root.Get("overlayInputSet") != nil {
		r.error(root.Position, "unsupported-form", nil, "this is an overlay of input sets", "name its input sets in their order instead")
		return nil
	}
	body := root
	if set := root.Get("inputSet"); set != nil {
		body = set
	}
	if inner := body.Get("pipeline"); inner != nil && inner.Kind == Map {
		return inner
	}
	r.error(root.Position, "unsupported-form", nil, "this is not an input set: it needs the keys inputSet and pipeline", "")
	return nil
}

// index returns all nodes below n by their paths.
func index(n *Node, at *path) map[string]*Node {
	result := map[string]*Node{}
	walk(n, at, func(n *Node, at *path) {
		if !at.tooLong() {
			result[at.String()] = n
		}
	})
	return result
}

// merge takes the values of a set for the inputs with the same path. It warns of values that
// have no input.
func (r *reader) merge(set *Node, at *path, fixed map[string]*Node, found []*slot, given map[*slot]*Node) {
	values := index(set, at)
	used := map[*Node]bool{}
	for _, s := range found {
		value := values[s.Path]
		if value.null() || isInput(value) {
			continue
		}
		given[s] = value
		markUsed(value, used)
	}
	walk(set, at, func(n *Node, at *path) {
		if n.Kind != Scalar || n.Value == nil || used[n] || isInput(n) {
			return
		}
		same := fixed[at.String()]
		if same != nil && same.Kind == Scalar && same.Text() == n.Text() {
			return
		}
		if same == nil && (at.key == "type" || at.key == "name") {
			return // sets repeat types and names, which the pipeline need not have
		}
		r.warn(n.Position, "unused-input", at, fmt.Sprintf("%s is not an input of the pipeline: the value is ignored", at), "write <+input> in the pipeline, or remove the value")
	})
}

func markUsed(n *Node, used map[*Node]bool) {
	used[n] = true
	for _, item := range n.Items {
		markUsed(item, used)
	}
	for _, field := range n.Fields {
		markUsed(field.Value, used)
	}
}

// direct takes the values of Options.Inputs. A path may be shortened from its left as long as it
// names one input.
func (r *reader) direct(found []*slot, given map[*slot]*Node) {
	paths := make([]string, len(found))
	for i, s := range found {
		paths[i] = s.Path
	}
	for _, name := range slices.Sorted(maps.Keys(r.opts.Inputs)) {
		text := r.opts.Inputs[name]
		matches := matching(found, name)
		switch {
		case len(matches) == 0:
			r.error(Position{}, "unknown-input", nil, fmt.Sprintf("the pipeline has no input %s", quote(name)), r.suggest(name, paths))
		case len(matches) > 1:
			r.error(Position{}, "unknown-input", nil, fmt.Sprintf("%s names %d inputs", quote(name), len(matches)), "write the whole path, for example "+matches[0].Path)
		case len(text) > maxValue:
			r.error(Position{}, "too-large", nil, fmt.Sprintf("the value of %s has %d bytes: at most %d are taken", quote(name), len(text), maxValue), "")
		case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
			r.error(Position{}, "encoding", nil, fmt.Sprintf("the value of %s is not UTF-8 text", quote(name)), "")
		default:
			if value := r.typed(matches[0], text); value != nil {
				given[matches[0]] = value
			}
		}
	}
}

func matching(found []*slot, name string) []*slot {
	var matches []*slot
	for _, s := range found {
		if s.Path == name {
			return []*slot{s}
		}
		if strings.HasSuffix(s.Path, "."+name) {
			matches = append(matches, s)
		}
	}
	sort.SliceStable(matches, func(i, j int) bool { return matches[i].Path < matches[j].Path })
	return matches
}

// typed returns the text of a value as a node: text for variables of the type String, a list or
// map if it is written as one, and otherwise the scalar that YAML reads.
func (r *reader) typed(s *slot, text string) *Node {
	trimmed := strings.TrimSpace(text)
	switch {
	case s.Type == "build":
		return r.build(s, trimmed)
	case s.Type == "" && (strings.HasPrefix(trimmed, "[") || strings.HasPrefix(trimmed, "{")):
		return r.structured(s, trimmed)
	}
	return s.scalar(text)
}

func (r *reader) structured(s *slot, text string) *Node {
	n, problem := parse(Source{Name: "input " + s.Path, Text: []byte(text)})
	if problem != nil {
		r.add(*problem)
		return nil
	}
	return n
}

// build reads the value of the input build: a map, or branch:NAME, tag:NAME, PR:NUMBER and
// commitSha:COMMIT. A word alone is a branch.
func (r *reader) build(s *slot, text string) *Node {
	if strings.HasPrefix(text, "{") {
		return r.structured(s, text)
	}
	kind, value, found := strings.Cut(text, ":")
	if !found {
		kind, value = "branch", text
	}
	names := map[string]string{"branch": "branch", "tag": "tag", "PR": "number", "commitSha": "commitSha"}
	name := names[kind]
	if name == "" || value == "" {
		r.error(s.Position, "bad-input", nil, fmt.Sprintf("the value %s of the input %s is not a build", quote(text), s.Path), "write branch:NAME, tag:NAME, PR:NUMBER or commitSha:COMMIT")
		return nil
	}
	at := s.Position
	return &Node{Position: at, Kind: Map, Fields: []Field{
		{"type", at, &Node{Position: at, Value: kind}},
		{"spec", at, &Node{Position: at, Kind: Map, Fields: []Field{{name, at, &Node{Position: at, Value: value}}}}},
	}}
}

// scalar returns text as the scalar that the place takes.
func (s *slot) scalar(text string) *Node {
	n := &Node{Position: s.Position, Value: text}
	if s.Type == "" || s.Type == "Number" {
		if value := plain(text); value != nil {
			n.Value = value
		}
	}
	return n
}
