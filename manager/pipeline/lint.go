package pipeline

import (
	"io/fs"

	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
)

// Lint returns the problems of a pipeline, and the places that probably do not do what their
// author wants. Inputs may be missing. Templates may be nil.
func Lint(req Request, templates func(ref, version string) (Source, bool)) Problems {
	doc := document{
		Source: Source{Name: req.Name, Text: []byte(req.YAML)}, InputSets: inputSets(req.InputSets), Inputs: req.Inputs, SkipOtherStages: req.SkipOtherStages,
	}
	p, problems := doc.read(templates, true)
	if p != nil {
		problems = append(problems, definition.Lint(p, append([]Source{doc.Source}, doc.InputSets...)...)...)
		problems.Sort()
	}
	return problems
}

// Templates returns the templates in a directory, for [Config.Templates].
func Templates(dir fs.FS) (func(ref, version string) (Source, bool), error) {
	return definition.Folder(dir)
}
