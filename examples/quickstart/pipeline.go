package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/goccy/go-yaml"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/task/stage"
)

//go:embed pipeline.yaml
var defaultPipeline []byte

// pipeline is a list of stages that run one after the other.
type pipeline struct {
	Stages []pipelineStage `yaml:"stages"`
}

type pipelineStage struct {
	Name  string         `yaml:"name"`
	Steps []pipelineStep `yaml:"steps"`
}

// pipelineStep runs a script with a shell, or a command.
type pipelineStep struct {
	Name    string            `yaml:"name"`
	Run     string            `yaml:"run"`
	Command []string          `yaml:"command"`
	Image   string            `yaml:"image"`
	Env     map[string]string `yaml:"env"`
	Secrets map[string]string `yaml:"secrets"`
}

// ownImage names the image that the program builds.
const ownImage = "quickstart"

func readPipeline(file string) (pipeline, error) {
	text := defaultPipeline
	if file != "" {
		var err error
		if text, err = os.ReadFile(file); err != nil {
			return pipeline{}, fmt.Errorf("reading the pipeline: %w", err)
		}
	}
	var p pipeline
	if err := yaml.UnmarshalWithOptions(text, &p, yaml.Strict()); err != nil {
		return p, fmt.Errorf("reading the pipeline: %w", err)
	}
	for i, st := range p.Stages {
		if st.Name == "" {
			p.Stages[i].Name = fmt.Sprintf("stage %d", i+1)
		}
		for _, s := range st.Steps {
			if (s.Run == "") == (len(s.Command) == 0) {
				return p, fmt.Errorf("stage %q, step %q: give either run, a script, or command, a list of words", st.Name, s.Name)
			}
		}
	}
	if len(p.Stages) == 0 {
		return p, fmt.Errorf("the pipeline has no stages")
	}
	return p, nil
}

// containers reports whether a step needs a container.
func (p pipeline) containers() bool {
	return slices.ContainsFunc(p.Stages, func(st pipelineStage) bool {
		return slices.ContainsFunc(st.Steps, func(s pipelineStep) bool { return s.Image != "" })
	})
}

// withoutContainers returns the pipeline without the steps that need a container.
func (p pipeline) withoutContainers() pipeline {
	var out pipeline
	for _, st := range p.Stages {
		st.Steps = slices.DeleteFunc(slices.Clone(st.Steps), func(s pipelineStep) bool { return s.Image != "" })
		out.Stages = append(out.Stages, st)
	}
	return out
}

// withImage replaces ownImage with the name of a real image.
func (p pipeline) withImage(name string) pipeline {
	var out pipeline
	for _, st := range p.Stages {
		st.Steps = slices.Clone(st.Steps)
		for i := range st.Steps {
			if st.Steps[i].Image == ownImage {
				st.Steps[i].Image = name
			}
		}
		out.Stages = append(out.Stages, st)
	}
	return out
}

// request returns the request for the manager.
func (st pipelineStage) request() (manager.StageRequest, error) {
	req := manager.StageRequest{Name: st.Name}
	for i, s := range st.Steps {
		step := stage.Step{
			ID: fmt.Sprintf("step%d", i+1), Name: s.Name, Image: s.Image,
			Environment: map[string]string{},
		}
		for k, v := range s.Env {
			step.Environment[k] = v
		}
		for k, v := range s.Secrets {
			step.Environment[k] = v
			step.Secrets = append(step.Secrets, v)
		}
		if s.Run != "" {
			step.Run = stage.Run{Entrypoint: []string{"sh", "-ec"}, Command: []string{s.Run}}
		} else {
			step.Run = stage.Run{Entrypoint: s.Command}
		}
		data, err := json.Marshal(step)
		if err != nil {
			return req, err
		}
		req.Steps = append(req.Steps, manager.StepRequest{ID: step.ID, Name: s.Name, Data: data})
	}
	return req, nil
}
