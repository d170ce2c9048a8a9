package definition

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// check compares a node with an object of the table. It reports unknown keys and values of
// another shape, and it writes words in their usual case.
func (r *reader) check(n *Node, o *object, at *path) {
	if n.Kind != Map {
		if isInput(n) {
			r.checkOpen(n, o.name, at)
			return
		}
		r.error(n.Position, "wrong-type", at, fmt.Sprintf("%s must be a map, not %s", at, n.kindName()), "")
		return
	}
	for i := range n.Fields {
		field := &n.Fields[i]
		k := o.key(field.Key)
		if k == nil || k.ignored != "" || k.spare && isInput(field.Value) {
			r.dropped = append(r.dropped, field.Value)
		}
		if k == nil {
			r.unknownKey(field, o, at)
			continue
		}
		r.checkField(n, field, k, at.at(field.Key))
	}
	r.checkPresence(n, o, at)
}

// checkOpen reports an input without a value that decides the structure of the run. Only
// Options.Partial permits it.
func (r *reader) checkOpen(n *Node, name string, at *path) {
	if in, _, _ := ParseInput(n.Text()); in.Execution && !r.opts.Partial {
		r.error(n.Position, "bad-input", at, fmt.Sprintf("%s must be known before the run", name), "remove executionInput(), or give the input a value")
	}
}

// unknownKey warns of a key that is not in the table.
func (r *reader) unknownKey(field *Field, o *object, at *path) {
	hint := r.suggest(field.Key, o.names())
	if place := r.misplaced(field.Key, o); place != "" {
		hint = place
	}
	r.warn(field.At, "unknown-key", at.at(field.Key), fmt.Sprintf("unknown key %s is ignored", quote(field.Key)), hint)
}

// misplaced returns the hint for a key that is known one level above or below.
func (r *reader) misplaced(name string, o *object) string {
	switch {
	case o.name == "step":
		for _, spec := range []string{"step Run", "step Plugin", "step BuildAndPushDockerRegistry"} {
			if known().objects[spec].key(name) != nil {
				return "write it below spec"
			}
		}
	case o.name == "stage" && known().objects["ci stage"].key(name) != nil:
		return "write it below spec"
	case strings.HasPrefix(o.name, "step ") && known().objects["step"].key(name) != nil:
		return "write it beside spec, not below"
	case o.name == "ci stage" && known().objects["stage"].key(name) != nil:
		return "write it beside spec, not below"
	case o.name == "ci stage" && name == "steps":
		return "write it below execution"
	}
	return ""
}

func (r *reader) checkField(n *Node, field *Field, k *key, at *path) {
	switch {
	case k.refused != "":
		r.error(field.At, "unsupported-key", at, fmt.Sprintf("%s is not supported here", k.name), k.refused)
	case k.ignored != "" && (asksNothing(field.Value) || slices.Contains(k.harmless, field.Value.Text())):
	case k.ignored != "":
		r.warn(field.At, "ignored-key", at, fmt.Sprintf("%s is ignored", k.name), k.ignored)
	case field.Value.null():
		return
	default:
		r.checkValue(n, field.Value, k, at)
	}
}

// asksNothing reports whether the value of an ignored key is empty or switched off, so that
// ignoring it changes nothing.
func asksNothing(n *Node) bool {
	switch n.Kind {
	case List:
		return len(n.Items) == 0
	case Map:
		return len(n.Fields) == 0 || strings.EqualFold(n.Get("enabled").Text(), "false")
	}
	return n.null() || n.Text() == ""
}

// checkPresence reports required keys that are absent, and alternatives of which not exactly one
// is present.
func (r *reader) checkPresence(n *Node, o *object, at *path) {
	templated := n.Get("template") != nil
	for i := range o.keys {
		k := &o.keys[i]
		if k.need && n.Get(k.name) == nil && !templated {
			r.error(n.Position, "missing-key", at, fmt.Sprintf("%s needs the key %s", place(at), k.name), k.about)
		}
	}
	if len(o.one) == 0 {
		return
	}
	var found []string
	for _, name := range o.one {
		if n.field(name) != nil {
			found = append(found, name)
		}
	}
	if len(found) != 1 && !hasRefused(n, o) {
		text := "has none"
		if len(found) > 1 {
			text = "has " + strings.Join(found, " and ")
		}
		r.error(n.Position, "exactly-one", at, fmt.Sprintf("%s must have exactly one of %s, and it %s", place(at), strings.Join(o.one, ", "), text), "")
	}
}

// hasRefused reports whether n has a key that is reported already.
func hasRefused(n *Node, o *object) bool {
	return slices.ContainsFunc(n.Fields, func(f Field) bool {
		k := o.key(f.Key)
		return k != nil && k.refused != ""
	})
}

func place(at *path) string {
	if text := at.String(); text != "" {
		return text
	}
	return "the file"
}

// checkValue checks the value of a key.
func (r *reader) checkValue(parent, n *Node, k *key, at *path) {
	if isInput(n) {
		structure := k.shape == objectShape && k.name != "strategy" || k.shape == itemsShape || k.shape == specShape
		if structure || k.fixed {
			r.checkOpen(n, k.name, at)
		}
		return
	}
	if k.fixed && n.Dynamic() {
		r.error(n.Position, "fixed-value", at, fmt.Sprintf("%s takes no expression: its value must be known before the run", k.name), "")
		return
	}
	switch k.shape {
	case objectShape:
		r.checkObject(n, k, at)
	case itemsShape:
		r.checkItems(n, k, at)
	case specShape:
		r.checkSpec(parent, n, k, at)
	case listShape:
		r.checkList(n, k, at)
	case mapShape:
		r.checkMap(n, k, at)
	case anyShape:
	default:
		r.checkScalar(n, k, at)
	}
}

func (r *reader) checkObject(n *Node, k *key, at *path) {
	if k.of == "build" && n.Kind == Scalar {
		r.checkBuildText(n, at)
		return
	}
	r.check(n, known().objects[k.of], at)
}

// checkBuildText explains the usual mistake "build: main".
func (r *reader) checkBuildText(n *Node, at *path) {
	if n.Dynamic() {
		r.error(n.Position, "wrong-type", at, "build takes no expression: only the values below its spec do",
			"write build: {type: branch, spec: {branch: "+bounded(n.Text())+"}}")
		return
	}
	r.error(n.Position, "wrong-type", at, fmt.Sprintf("build must be a map with type and spec, not %s", quote(n.Text())),
		"write build: {type: branch, spec: {branch: "+bounded(n.Text())+"}}, or <+input> to ask for it at the start")
}

func (r *reader) checkItems(n *Node, k *key, at *path) {
	if n.Kind != List {
		hint := ""
		if n.Kind == Map {
			hint = "begin each item with a dash"
		}
		r.error(n.Position, "wrong-type", at, fmt.Sprintf("%s must be a list, not %s", k.name, n.kindName()), hint)
		return
	}
	o := known().objects[k.of]
	for i, item := range n.Items {
		r.check(item, o, at.item(i))
	}
}

// checkSpec checks a spec whose keys depend on the type beside it. Types without an entry in the
// table are not checked here: the builder reports those that cannot run.
func (r *reader) checkSpec(parent, n *Node, k *key, at *path) {
	variants := known().variants[k.of]
	name, found := variants[parent.Get("type").Text()]
	if !found {
		return
	}
	r.check(n, known().objects[name], at)
}

func (r *reader) checkList(n *Node, k *key, at *path) {
	if n.Kind == Scalar && (n.Dynamic() && !k.fixed) {
		return
	}
	if n.Kind == Scalar {
		r.warn(n.Position, "wrong-type", at, fmt.Sprintf("%s must be a list: %s is taken as its only item", k.name, quote(n.Text())), "write ["+bounded(n.Text())+"]")
		item := n.clone()
		*n = Node{Position: n.Position, Kind: List, Items: []*Node{item}}
	}
	if n.Kind != List {
		r.error(n.Position, "wrong-type", at, fmt.Sprintf("%s must be a list, not %s", k.name, n.kindName()), "")
		return
	}
	for i, item := range n.Items {
		if item.Kind != Scalar {
			r.error(item.Position, "wrong-type", at.item(i), fmt.Sprintf("the items of %s must be text, not %s", k.name, item.kindName()), "")
			continue
		}
		if len(k.words) > 0 {
			r.checkWord(item, k, at.item(i))
		}
	}
}

func (r *reader) checkMap(n *Node, k *key, at *path) {
	if n.Kind == Scalar && n.Dynamic() {
		return
	}
	if n.Kind == List && len(n.Items) == 0 {
		*n = Node{Position: n.Position, Kind: Map}
		return
	}
	if n.Kind != Map {
		r.error(n.Position, "wrong-type", at, fmt.Sprintf("%s must be a map, not %s", k.name, n.kindName()), "write NAME: VALUE in lines of their own")
		return
	}
	for _, field := range n.Fields {
		if field.Value.Kind != Scalar {
			r.error(field.Value.Position, "wrong-type", at.at(field.Key), fmt.Sprintf("the values of %s must be text, not %s", k.name, field.Value.kindName()), "")
		}
	}
}

func (r *reader) checkScalar(n *Node, k *key, at *path) {
	if n.Kind != Scalar {
		r.error(n.Position, "wrong-type", at, fmt.Sprintf("%s must be one value, not %s", k.name, n.kindName()), "")
		return
	}
	if n.Dynamic() {
		return
	}
	switch k.shape {
	case boolShape:
		r.checkBool(n, k, at)
	case numberShape:
		if _, err := strconv.ParseInt(strings.TrimSpace(n.Text()), 10, 32); err != nil {
			r.error(n.Position, "wrong-type", at, fmt.Sprintf("%s must be a whole number, not %s", k.name, quote(n.Text())), "")
		}
	case timeShape:
		r.checkTimeout(n, k, at)
	default:
		if len(k.words) > 0 {
			r.checkWord(n, k, at)
		}
	}
}

func (r *reader) checkBool(n *Node, k *key, at *path) {
	if _, ok := n.Value.(bool); ok {
		return
	}
	switch text := strings.ToLower(strings.TrimSpace(n.Text())); text {
	case "true", "false":
		n.Value = text == "true"
	default:
		r.error(n.Position, "wrong-type", at, fmt.Sprintf("%s must be true or false, not %s", k.name, quote(n.Text())), "")
	}
}

// checkWord writes a word in the case of the table, or reports it.
func (r *reader) checkWord(n *Node, k *key, at *path) {
	text := strings.TrimSpace(n.Text())
	for _, word := range k.words {
		if strings.EqualFold(word, text) {
			if n.Text() != word {
				n.Value = word
			}
			return
		}
	}
	r.error(n.Position, "bad-value", at, fmt.Sprintf("%s cannot be %s", k.name, quote(text)), r.suggest(text, k.words))
}

func (r *reader) checkTimeout(n *Node, k *key, at *path) {
	if err := checkTimeoutText(n.Text()); err != nil {
		r.error(n.Position, "bad-timeout", at, fmt.Sprintf("%s: %s", k.name, err), "")
	}
}

// bounded returns the first line of text, at most 60 characters, for a hint.
func bounded(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	if runes := []rune(text); len(runes) > 60 {
		return string(runes[:60]) + "..."
	}
	return printable([]rune(text))
}
