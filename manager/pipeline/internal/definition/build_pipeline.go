package definition

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	identifierPattern = regexp.MustCompile(`^[a-zA-Z_][0-9a-zA-Z_]{0,127}$`)
	namePattern       = regexp.MustCompile(`^[a-zA-Z_0-9.-][-0-9a-zA-Z_\s.]{0,127}$`)
	// dashedPattern has the identifiers that are read although Harness refuses them.
	dashedPattern   = regexp.MustCompile(`^[a-zA-Z_][0-9a-zA-Z_-]{0,127}$`)
	variablePattern = regexp.MustCompile(`^[a-zA-Z_][-a-zA-Z0-9_.$]{0,127}$`)
)

// pipeline builds the typed tree of a document that was checked against the table. Values of
// a wrong shape are reported already, so the builder takes them as absent.
func (r *reader) pipeline(root *Node) *Pipeline {
	n, at := root.Get("pipeline"), (&path{key: "pipeline"})
	p := &Pipeline{Document: root}
	if n == nil || n.Kind != Map {
		return p
	}
	p.Position = n.Position
	p.Identifier, p.Name = r.identity(n, at)
	p.Description = n.Get("description").Text()
	p.Org, p.Project = n.Get("orgIdentifier").Text(), n.Get("projectIdentifier").Text()
	p.Tags = tags(n.Get("tags"))
	p.Variables = r.variables(n.Get("variables"), at.at("variables"))
	p.Codebase = codebase(n.Get("properties").Get("ci").Get("codebase"))
	p.Timeout, p.Selectors = n.Get("timeout"), n.Get("delegateSelectors")
	p.Stages = r.stageItems(n.Get("stages"), at.at("stages"))
	if len(p.Stages) == 0 && r.errors == 0 {
		r.error(n.Position, "missing-key", at, "pipeline has no stages", "write at least one stage below stages")
	}
	r.checkStages(p)
	r.checkClones(p)
	return p
}

// identity returns the identifier and the name of a node. The identifier stands for a missing
// name.
func (r *reader) identity(n *Node, at *path) (identifier, name string) {
	id := n.Get("identifier")
	identifier, name = id.Text(), n.Get("name").Text()
	switch {
	case id == nil || id.Kind != Scalar || id.Dynamic() || identifierPattern.MatchString(identifier):
	case dashedPattern.MatchString(identifier):
		r.warn(id.Position, "bad-identifier", at.at("identifier"), fmt.Sprintf("Harness refuses the identifier %s", quote(identifier)),
			"use _ for -; in an expression a.b-c is a subtraction, and a.get(\"b-c\") is the name")
	default:
		r.error(id.Position, "bad-identifier", at.at("identifier"), fmt.Sprintf("the identifier %s is not valid", quote(identifier)),
			"begin with a letter or _ and use letters, digits and _, at most 128")
	}
	if name == "" {
		return identifier, identifier
	}
	switch node := n.Get("name"); {
	case isInput(node):
	case node.Dynamic():
		r.warn(node.Position, "bad-name", at.at("name"), "expressions in a name are not evaluated", "use nodeName for the names of children of a matrix")
	case !namePattern.MatchString(name):
		r.warn(node.Position, "bad-name", at.at("name"), fmt.Sprintf("the name %s holds characters that Harness refuses", quote(name)),
			"use letters, digits, blanks and . _ -, at most 128")
	}
	return identifier, name
}

func tags(n *Node) map[string]string {
	if n == nil || n.Kind != Map || len(n.Fields) == 0 {
		return nil
	}
	result := make(map[string]string, len(n.Fields))
	for _, field := range n.Fields {
		result[field.Key] = field.Value.Text()
	}
	return result
}

func (r *reader) variables(n *Node, at *path) []*Variable {
	if n == nil || n.Kind != List {
		return nil
	}
	seen := map[string]Position{}
	var result []*Variable
	for i, item := range n.Items {
		if item.Kind != Map {
			continue
		}
		v := r.variable(item, at.item(i))
		if first, twice := seen[v.Name]; twice && v.Name != "" {
			r.error(v.Position, "duplicate-variable", at.item(i), fmt.Sprintf("the variable %s is already in line %d", quote(v.Name), first.Line), "rename one of the two")
		}
		seen[v.Name] = v.Position
		result = append(result, v)
	}
	return result
}

func (r *reader) variable(n *Node, at *path) *Variable {
	v := &Variable{Position: n.Position, Name: n.Get("name").Text(), Type: n.Get("type").Text(), Description: n.Get("description").Text(),
		Value: n.Get("value"), Default: n.Get("default")}
	v.Required, _ = value(n.Get("required")).(bool)
	if v.Type == "" {
		v.Type = "String"
	}
	if v.Name != "" && !variablePattern.MatchString(v.Name) {
		r.error(n.Get("name").Position, "bad-identifier", at.at("name"), fmt.Sprintf("the name %s of a variable is not valid", quote(v.Name)),
			"begin with a letter or _ and use letters, digits and _ . $ -")
	}
	if v.Required && v.Value == nil && v.Default == nil {
		r.error(n.Position, "missing-value", at, fmt.Sprintf("the variable %s is required and has no value", quote(v.Name)), "write value: <+input> to ask for it at the start")
	}
	if v.Type == "Number" {
		r.checkNumber(v.Value, at.at("value"))
		r.checkNumber(v.Default, at.at("default"))
	}
	return v
}

func (r *reader) checkNumber(n *Node, at *path) {
	if n == nil || n.Dynamic() || n.Kind != Scalar {
		return
	}
	if !numeric(n.Text()) {
		r.error(n.Position, "wrong-type", at, fmt.Sprintf("a variable of the type Number cannot be %s", quote(n.Text())), "write type: String, or a number")
	}
}

// numeric reports whether text is a decimal number.
func numeric(text string) bool {
	text = strings.TrimLeft(strings.TrimSpace(text), "+-")
	whole, part, _ := strings.Cut(text, ".")
	digits := whole + part
	return digits != "" && strings.Trim(digits, "0123456789") == ""
}

// value returns the value of a scalar.
func value(n *Node) any {
	if n == nil || n.Kind != Scalar {
		return nil
	}
	return n.Value
}

func codebase(n *Node) *Codebase {
	if n == nil || n.Kind != Map {
		return nil
	}
	return &Codebase{
		Position:  n.Position,
		Connector: n.Get("connectorRef"), Repository: n.Get("repoName"), Build: n.Get("build"), Depth: n.Get("depth"),
		SSLVerify: n.Get("sslVerify"), PRCloneStrategy: n.Get("prCloneStrategy"), LFS: n.Get("lfs"), Debug: n.Get("debug"),
		FetchTags: n.Get("fetchTags"), PersistCredentials: n.Get("persistCredentials"), SparseCheckout: n.Get("sparseCheckout"),
		SubmoduleStrategy: n.Get("submoduleStrategy"), CloneDirectory: n.Get("cloneDirectory"), PreFetchCommand: n.Get("preFetchCommand"),
		RunAsUser: n.Get("runAsUser"), Resources: n.Get("resources"),
	}
}

// checkClones reports stages that clone a codebase that does not exist.
func (r *reader) checkClones(p *Pipeline) {
	if p.Codebase != nil {
		return
	}
	for _, stage := range p.All() {
		if clone, _ := value(stage.Clone).(bool); clone {
			r.error(stage.Clone.Position, "missing-codebase", nil, fmt.Sprintf("the stage %s clones the codebase, and the pipeline has none", quote(stage.Identifier)),
				"write properties.ci.codebase, or cloneCodebase: false")
		}
	}
}

// All returns the stages in the order of the file.
func (p *Pipeline) All() []*Stage {
	var stages []*Stage
	for _, item := range p.Stages {
		if item.Stage != nil {
			stages = append(stages, item.Stage)
		}
		stages = append(stages, item.Parallel...)
	}
	return stages
}
