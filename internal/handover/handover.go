// Package handover passes values out of a step: the files in which a step hands on outputs, variables and
// an artifact (section 5 of docs/protocol.md), the shell variables that its script leaves, and scripts that
// must not stand on a command line.
//
//	argv, ok := handover.AppendReadout(argv, names, varsFile)
//	// run the step
//	handover.Collect(step, res, readFile, printProblem)
//
// Start reading at this file.
package handover

import (
	"fmt"
	"strings"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
)

// File is one of the files through which a step hands on values.
type File string

// The files. A step writes all but Vars by itself; the script of AppendReadout writes Vars.
const (
	Output   File = "output"
	Secret   File = "secret"
	Env      File = "env"
	Artifact File = "artifact"
	Vars     File = "vars"
)

// Variables returns the environment variables that name the file for the step.
func (f File) Variables() []string {
	switch f {
	case Output:
		return []string{"DRONE_OUTPUT", "HARNESS_OUTPUT_FILE"}
	case Secret:
		return []string{"HARNESS_OUTPUT_SECRET_FILE"}
	case Env:
		return []string{"DRONE_ENV"}
	case Artifact:
		return []string{"PLUGIN_ARTIFACT_FILE"}
	default:
		return nil
	}
}

// String returns the name of the file for people.
func (f File) String() string {
	switch f {
	case Output:
		return "output file"
	case Secret:
		return "secret output file"
	case Env:
		return "environment file"
	case Artifact:
		return "artifact file"
	default:
		return "list of variables"
	}
}

// Collect adds the values that the step handed on to res. read returns the content of a file, or an empty
// string if the step wrote none. problem gets a sentence about each malformed file. The sentences show no
// values.
func Collect(step *stage.Step, res *driver.Result, read func(File) string, problem func(string)) {
	parse := func(f File) map[string]string {
		vars, err := parseOutputs(read(f))
		if err != nil {
			problem(fmt.Sprintf("The %s of the step is malformed: %s", f, strings.ReplaceAll(err.Error(), "\n", "; ")))
		}
		return vars
	}
	res.Outputs, res.Secrets, res.Env = parse(Output), parse(Secret), parse(Env)
	if artifact := read(Artifact); artifact != "" {
		res.Artifact = []byte(artifact)
	}
	vars := parseReadout(read(Vars))
	for _, name := range step.OutputVars {
		if v, ok := vars[name]; ok {
			res.Outputs[name] = v
		}
	}
	for _, o := range step.Outputs {
		v, ok := vars[o.Value]
		if !ok {
			v, ok = res.Outputs[o.Key]
		}
		switch {
		case !ok:
		case o.Type == stage.OutputSecret:
			delete(res.Outputs, o.Key)
			res.Secrets[o.Key] = v
		default:
			res.Outputs[o.Key] = v
		}
	}
}

// Names returns the shell variables that the step asks to hand on.
func Names(step *stage.Step) ([]string, error) {
	var names []string
	seen := map[string]bool{}
	add := func(name string) error {
		if !isShellName(name) {
			return fmt.Errorf("output variable %q is not a valid variable name", name)
		}
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
		return nil
	}
	for _, name := range step.OutputVars {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	for _, o := range step.Outputs {
		name := o.Value
		if name == "" {
			name = o.Key
		}
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return names, nil
}
