package pipeline

import (
	"io/fs"
	"maps"
	"slices"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
)

// Lint returns the problems of a pipeline, and the places that probably do not do what their
// author wants. Inputs may be missing. Settings give the step types of the operator. Templates may
// be nil.
func Lint(req api.RunRequest, settings Settings, templates func(ref, version string) (Source, bool)) Problems {
	doc := document{
		Source: Source{Name: req.Name, Text: []byte(req.YAML)}, InputSets: inputSets(req.InputSets), Inputs: req.Inputs, SkipOtherStages: req.SkipOtherStages,
		StepTypes: stepTypes(settings),
	}
	p, problems := doc.read(templates, true)
	if p != nil {
		problems = append(problems, definition.Lint(p, append([]Source{doc.Source}, doc.InputSets...)...)...)
		problems.Sort()
	}
	return problems
}

// stepTypes are the types that the operator has added, and the types of caches if there is a place for
// them.
func stepTypes(settings Settings) []string {
	types := slices.Collect(maps.Keys(settings.Types))
	if settings.Cache != nil {
		types = append(types, definition.RestoreStageCache, definition.SaveStageCache)
	}
	slices.Sort(types)
	return slices.Compact(types)
}

// Schema returns the JSON Schema (draft 7) of pipelines, for editors.
func Schema() ([]byte, error) { return definition.JSONSchema() }

// Templates returns the templates in a directory, for [Config.Templates].
func Templates(dir fs.FS) (func(ref, version string) (Source, bool), error) {
	return definition.Folder(dir)
}
