package definition

// Form is the kind of a pipeline file.
type Form string

// The forms of files. Read reads V0.
const (
	V0       Form = "v0"
	V1       Form = "v1"
	Unified  Form = "unified"
	InputSet Form = "input set"
	Template Form = "template"
	Unknown  Form = "unknown"
)

// FormOf returns the form of a file.
func FormOf(source Source) (Form, error) {
	root, problem := parse(source)
	if problem != nil {
		return Unknown, *problem
	}
	return formOf(root), nil
}

func formOf(root *Node) Form {
	switch {
	case root.Kind != Map:
		return Unknown
	case root.Get("kind").Text() == "pipeline":
		return V1
	case root.field("inputSet") != nil:
		return InputSet
	case root.field("template") != nil:
		return Template
	case root.field("pipeline") == nil:
		return Unknown
	}
	stages := root.Get("pipeline").Get("stages")
	if stages == nil || stages.Kind != List {
		return V0
	}
	unified := false
	for _, item := range stages.Items {
		parallel := item.Get("parallel")
		nested := parallel.Get("stages") != nil || parallel.Get("steps") != nil // a list in v0
		if item.field("stage") != nil || item.field("parallel") != nil && !nested {
			return V0
		}
		unified = unified || nested || item.field("steps") != nil || item.field("chain") != nil
	}
	if unified {
		return Unified
	}
	return V0
}

// checkForm reports a file that is not a pipeline of form v0.
func (r *reader) checkForm(root *Node) bool {
	text, hint := "", ""
	switch formOf(root) {
	case V0:
		return true
	case V1:
		text = "this is a pipeline of the form v1 (kind: pipeline), and only v0 is supported"
		hint = "write pipeline: with stages: and items of the form - stage: {type: CI}"
	case Unified:
		text = "this is a pipeline of the unified form (stages with steps), and only v0 is supported"
		hint = "write each stage as - stage: {type: CI, spec: {execution: {steps: []}}}"
	case InputSet:
		text, hint = "this is an input set and not a pipeline", "name the pipeline, and this file as an input set of it"
	case Template:
		text, hint = "this is a template and not a pipeline", "name a pipeline that uses the template"
	default:
		text, hint = "this is not a pipeline: the key pipeline is missing", "the first line of a pipeline is pipeline:"
	}
	r.error(root.Position, "unsupported-form", nil, text, hint)
	return false
}
