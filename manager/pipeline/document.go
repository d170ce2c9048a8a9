package pipeline

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
	"github.com/delegate-io/dlite/manager/pipeline/internal/engine"
)

// document is the constant part of a run: its request.
type document struct {
	Run       engine.Run          `json:"run"`
	Source    definition.Source   `json:"source"`
	InputSets []definition.Source `json:"input_sets,omitempty"`
	Inputs    map[string]string   `json:"inputs,omitempty"`
	// Templates are the templates that the pipeline used, by reference and version.
	Templates map[string]definition.Source `json:"templates,omitempty"`
	// SkipOtherStages, see [api.RunRequest].
	SkipOtherStages bool `json:"skip_other_stages,omitempty"`
	// StepTypes are the types of the settings at the start. A run keeps them.
	StepTypes []string `json:"step_types,omitempty"`
}

// name returns a name for the text of the pipeline with everything that decides how it is read.
func (d *document) name() (string, error) {
	of := *d
	of.Run = engine.Run{}
	text, err := json.Marshal(&of)
	if err != nil {
		return "", fmt.Errorf("encoding a pipeline: %w", err)
	}
	sum := sha256.Sum256(text)
	return string(sum[:]), nil
}

// size returns the bytes of the texts.
func (d *document) size() int {
	size := len(d.Source.Text)
	for _, set := range d.InputSets {
		size += len(set.Text)
	}
	for _, t := range d.Templates {
		size += len(t.Text)
	}
	return size
}

// read reads the pipeline. With templates, it also keeps those that the pipeline uses.
func (d *document) read(templates func(ref, version string) (Source, bool), partial bool) (*definition.Pipeline, Problems) {
	return definition.Read(d.Source, d.options(templates, partial))
}

func (d *document) options(templates func(ref, version string) (Source, bool), partial bool) definition.Options {
	find := func(ref, version string) (Source, bool) {
		key := ref + "@" + version
		if t, ok := d.Templates[key]; ok || templates == nil {
			return t, ok
		}
		t, ok := templates(ref, version)
		if ok {
			if d.Templates == nil {
				d.Templates = map[string]definition.Source{}
			}
			d.Templates[key] = t
		}
		return t, ok
	}
	return definition.Options{
		Templates: find, InputSets: d.InputSets, Inputs: d.Inputs, SkipOtherStages: d.SkipOtherStages, Partial: partial,
		StepTypes: d.StepTypes,
	}
}

// digest returns a short name for parts.
func digest(parts []string) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(p), p) // a hash accepts everything
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:18])
}
