package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline"
)

// exitError is an error with the exit code of the program.
type exitError struct {
	error

	code int
}

// ExitCode is the exit code of the program.
func (e exitError) ExitCode() int { return e.code }

// inputs are the flags that select the inputs of a pipeline.
type inputs struct {
	sets      listFlag
	values    listFlag
	templates string
	settings  string
	skip      bool
}

func (i *inputs) register(fs *flag.FlagSet) {
	fs.Var(&i.sets, "input-set", "`file` with an input set; may be repeated, the last one wins")
	fs.Var(&i.values, "input", "`path=value` of an input, such as pipeline.variables.tag=1.2; may be repeated")
	fs.StringVar(&i.templates, "templates", "", "`directory` with templates")
	fs.StringVar(&i.settings, "settings", "", "`file` with connectors, step types, infrastructure and secrets (docs/pipelines.md)")
	fs.BoolVar(&i.skip, "skip-other-stages", false, "leave out stages that are not CI stages")
}

// selection are the flags that select what of a pipeline runs.
type selection struct {
	inputs

	stages listFlag
	from   string
	branch string
}

func (s *selection) register(fs *flag.FlagSet) {
	s.inputs.register(fs)
	fs.Var(&s.stages, "stage", "`identifier` of a stage to run; may be repeated (default: all)")
	fs.StringVar(&s.from, "from", "", "`identifier` of the first stage to run, with all stages after it")
	fs.StringVar(&s.branch, "branch", "", "the branch of codebase.branch")
}

// request returns the request for a file. The variable variable.account.directory is the working
// directory of the program, for pipelines that check files that are not committed yet.
func (s *selection) request(file string) (api.RunRequest, error) {
	req, err := s.inputs.request(file)
	req.Stages, req.From, req.Branch = s.stages, s.from, s.branch
	if s.branch != "" {
		req.Codebase = map[string]any{"branch": s.branch, "build": map[string]any{"type": "branch", "spec": map[string]any{"branch": s.branch}}}
	}
	if err != nil {
		return req, err
	}
	directory, err := os.Getwd()
	req.Variables = map[string]any{"account": map[string]any{"directory": directory}}
	return req, err
}

// request returns the request for a file.
func (i *inputs) request(file string) (api.RunRequest, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return api.RunRequest{}, err
	}
	req := api.RunRequest{YAML: string(text), Name: file, SkipOtherStages: i.skip}
	for _, set := range i.sets {
		text, err := os.ReadFile(set)
		if err != nil {
			return req, err
		}
		req.InputSets = append(req.InputSets, string(text))
	}
	req.Inputs, err = i.values.pairs("input", "path=value")
	return req, err
}

// readSettings reads the file of --settings.
func (i *inputs) readSettings() (s pipeline.Settings, err error) {
	if i.settings == "" {
		return s, nil
	}
	text, err := os.ReadFile(i.settings)
	if err != nil {
		return s, err
	}
	if s, err = pipeline.ReadSettings(text); err != nil {
		return s, fmt.Errorf("%s: %w", i.settings, err)
	}
	return s, nil
}

// readTemplates returns the templates in the directory of --templates.
func (i *inputs) readTemplates() (func(ref, version string) (pipeline.Source, bool), error) {
	if i.templates == "" {
		return nil, nil
	}
	return pipeline.Templates(os.DirFS(i.templates))
}

// listFlag is a flag that may be repeated.
type listFlag []string

func (l *listFlag) String() string { return strings.Join(*l, ",") }

// Set adds a value.
func (l *listFlag) Set(v string) error {
	if v == "" {
		return errors.New("the value is empty")
	}
	*l = append(*l, v)
	return nil
}

// pairs returns the values of a flag by their names.
func (l *listFlag) pairs(flag, form string) (map[string]string, error) {
	values := make(map[string]string, len(*l))
	for _, v := range *l {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--%s %s: give %s", flag, v, form)
		}
		values[name] = value
	}
	return values, nil
}
