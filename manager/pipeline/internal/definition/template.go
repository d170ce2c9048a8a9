package definition

import (
	"bytes"
	"fmt"
	"strings"
)

// template returns the document with its templates in place, or nil if it cannot be checked.
func (r *reader) template(source Source) *Node {
	root, problem := parse(source)
	if problem != nil {
		r.add(*problem)
		return nil
	}
	if !r.checkForm(root) {
		return nil
	}
	r.added = root.size()
	r.inputs = bytes.Contains(source.Text, []byte(inputMark))
	r.expandPipeline(root.Get("pipeline"), &path{key: "pipeline"})
	if r.errors > 0 {
		return nil
	}
	return root
}

func (r *reader) expandPipeline(n *Node, at *path) {
	depth := r.replace(n, "Pipeline", at, 0)
	stages := n.Get("stages")
	if stages == nil {
		return
	}
	for i, item := range stages.Items {
		here := at.at("stages").item(i)
		r.expandStage(item.Get("stage"), here.at("stage"), depth)
		if parallel := item.Get("parallel"); parallel != nil {
			for j, branch := range parallel.Items {
				r.expandStage(branch.Get("stage"), here.at("parallel").item(j).at("stage"), depth)
			}
		}
	}
}

func (r *reader) expandStage(n *Node, at *path, depth int) {
	if n == nil || n.Kind != Map {
		return
	}
	depth = r.replace(n, "Stage", at, depth)
	r.expandSteps(n.Get("spec").Get("execution").Get("steps"), at.at("spec").at("execution").at("steps"), depth)
}

func (r *reader) expandSteps(n *Node, at *path, depth int) {
	if n == nil {
		return
	}
	for i, item := range n.Items {
		here := at.item(i)
		if step := item.Get("step"); step != nil {
			r.replace(step, "Step", here.at("step"), depth)
		}
		if group := item.Get("stepGroup"); group != nil {
			inner := r.replace(group, "StepGroup", here.at("stepGroup"), depth)
			r.expandSteps(group.Get("steps"), here.at("stepGroup").at("steps"), inner)
		}
		r.expandSteps(item.Get("parallel"), here.at("parallel"), depth)
	}
}

// replace puts the content of the template that n names into n, until there is none. Keys that
// stand beside template win. It returns the new depth of nesting.
func (r *reader) replace(n *Node, kind string, at *path, depth int) int {
	for n.Get("template") != nil {
		if r.full || !r.replaceOnce(n, kind, at, depth) {
			break
		}
		depth++
	}
	return depth
}

func (r *reader) replaceOnce(n *Node, kind string, at *path, depth int) bool {
	use := n.Get("template")
	if depth >= maxNesting {
		r.error(use.Position, "template-nesting", at, fmt.Sprintf("templates are nested more than %d levels", maxNesting), "check whether a template uses itself")
		r.full = true // one report is enough: there may be one for each path to the template
		return false
	}
	if use.Kind != Map || use.Get("templateRef") == nil {
		r.error(use.Position, "bad-template", at, "template needs the key templateRef", "")
		return false
	}
	r.check(use, known().objects["template reference"], at.at("template"))
	body := r.load(use, kind, at)
	if body == nil || !r.grow(body) {
		return false
	}
	content := body.clone()
	r.inputs = true // the template may have inputs
	if inputs := use.Get("templateInputs"); inputs != nil && inputs.Kind == Map {
		r.fillTemplate(content, inputs)
	}
	fields := make([]Field, 0, len(n.Fields)+len(content.Fields))
	for _, field := range n.Fields {
		if field.Key != "template" {
			fields = append(fields, field)
		}
	}
	n.Fields = fields
	present := keysOf(fields)
	for _, field := range content.Fields {
		if !present[field.Key] {
			n.Fields = append(n.Fields, field)
		}
	}
	return true
}

// fillTemplate replaces inputs of a template by the values of templateInputs. Inputs without
// a value become inputs of the pipeline.
func (r *reader) fillTemplate(content, inputs *Node) {
	found := r.slots(content, &path{key: "template"})
	given := map[*slot]*Node{}
	at := &path{key: "template"}
	r.merge(inputs, at, index(content, at), found, given)
	for _, s := range found {
		if value := given[s]; value != nil {
			r.place(s, value)
		}
	}
}

// load returns the spec of a template.
func (r *reader) load(use *Node, kind string, at *path) *Node {
	ref, version := use.Get("templateRef"), use.Get("versionLabel").Text()
	name := ref.Text()
	for _, scope := range []string{"account.", "org."} {
		name = strings.TrimPrefix(name, scope)
	}
	cached := name + "@" + version
	root, loaded := r.templates[cached]
	if !loaded {
		root = r.find(name, version, ref, at)
		r.templates[cached] = root
	}
	if root == nil {
		return nil
	}
	body := root.Get("template")
	if found := body.Get("type").Text(); !strings.EqualFold(found, kind) {
		r.error(ref.Position, "bad-template", at, fmt.Sprintf("the template %s is for a %s and stands in a %s", quote(name), bounded(found), kind), "")
		return nil
	}
	inner := body.Get("spec")
	if inner == nil || inner.Kind != Map {
		r.error(body.Position, "bad-template", at, fmt.Sprintf("the template %s has no spec", quote(name)), "")
		return nil
	}
	return inner
}

// find parses the file of a template.
func (r *reader) find(name, version string, ref *Node, at *path) *Node {
	var source Source
	found := false
	if r.opts.Templates != nil {
		source, found = r.opts.Templates(name, version)
	}
	if !found {
		label := quote(name)
		if version != "" {
			label += " of the version " + quote(version)
		}
		r.error(ref.Position, "unknown-template", at, "there is no template "+label, "put its file into the folder of templates")
		return nil
	}
	root, problem := parse(source)
	if problem != nil {
		r.add(*problem)
		return nil
	}
	if root.Get("template") == nil || root.Get("template").Kind != Map {
		r.error(Position{File: source.Name, Line: 1, Column: 1}, "bad-template", nil, "the file has no key template", "")
		return nil
	}
	return root
}
