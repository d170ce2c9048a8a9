package engine

import (
	"strings"

	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
)

// unusedSecrets returns the secret variables of the pipeline whose names are no word of the spec of a stage. Its steps
// need not have them in their environment, so that a secret that does not exist fails only stages that use it.
func unusedSecrets(variables []*definition.Variable, spec *definition.Node) map[string]bool {
	var unused map[string]bool
	for _, v := range variables {
		if v.Type == "Secret" {
			if unused == nil {
				unused = map[string]bool{}
			}
			unused[v.Name] = true
		}
	}
	if unused != nil {
		eachWord(spec, func(word string) { delete(unused, word) })
	}
	return unused
}

// eachWord calls visit for each word in the keys and texts below n.
func eachWord(n *definition.Node, visit func(string)) {
	if n == nil {
		return
	}
	for _, item := range n.Items {
		eachWord(item, visit)
	}
	for _, f := range n.Fields {
		words(f.Key, visit)
		eachWord(f.Value, visit)
	}
	if text, ok := n.Value.(string); ok {
		words(text, visit)
	}
}

func words(text string, visit func(string)) {
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) {
		visit(word)
	}
}

// variables renders variables of the pipeline, without unused secrets, then the variables of the stage.
func (t *turn) variables(n *Node, e *element) ([]Variable, error) {
	var all []Variable
	for i, level := range [][]*definition.Variable{t.m.pipeline.Variables, e.stage.Variables} {
		for _, v := range level {
			if i == 0 && e.unused[v.Name] {
				continue
			}
			value, err := t.variable(n, v, i == 1)
			if err != nil {
				return nil, err
			}
			all = append(all, value)
		}
	}
	return all, nil
}
