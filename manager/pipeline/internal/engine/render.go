package engine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
)

// renderStep renders the fields of a step at its start.
func (t *turn) renderStep(n *Node, e *element) (Step, error) {
	limit, err := t.timeout(n, e.step.Timeout)
	if err != nil {
		return Step{}, err
	}
	spec, err := t.render(n, "spec", e.step.Spec)
	if err != nil {
		return Step{}, err
	}
	step := t.identified(n, e)
	step.Attempt, step.Timeout, step.Environment = n.Attempt, limit, t.stepEnvironment(n)
	step.Spec, _ = spec.(map[string]any)
	return step, nil
}

// identified returns a step with what identifies it.
func (t *turn) identified(n *Node, e *element) Step {
	step := Step{Node: n.Path, Identifier: n.Identifier, Name: n.Name, Type: e.step.Type}
	for p := t.parent(n); p != nil && p.Kind != StageNode; p = t.parent(p) {
		if p.Kind == GroupNode {
			step.Groups = append(step.Groups, p.Identifier)
		}
	}
	slices.Reverse(step.Groups)
	return step
}

// stepEnvironment returns the variables that depend on loops and on what has happened.
func (t *turn) stepEnvironment(n *Node) map[string]string {
	env := t.loopEnvironment(n)
	stage := outcome(t.currentStatus(n))
	build := stage
	if !t.s.Root().Tally.aggregate().Positive() {
		build = "FAILURE"
	}
	env["DRONE_STAGE_STATUS"], env["DRONE_BUILD_STATUS"], env["CI_BUILD_STATUS"] = stage, build, build
	if s := t.stageOf(n); len(s.Failures) > 0 {
		env["DRONE_FAILED_STEPS"] = strings.Join(s.Failures, ",")
	}
	return env
}

func outcome(s Status) string {
	if s.Positive() {
		return "SUCCESS"
	}
	return "FAILURE"
}

// loopEnvironment returns the place of a node in the strategies around it.
func (t *turn) loopEnvironment(n *Node) map[string]string {
	env := map[string]string{}
	set := func(kind string, n *Node) {
		if _, ok := env["HARNESS_"+kind+"_INDEX"]; !ok {
			env["HARNESS_"+kind+"_INDEX"], env["HARNESS_"+kind+"_TOTAL"] = strconv.Itoa(n.Index), strconv.Itoa(n.Total)
		}
	}
	for p := n; p != nil; p = t.parent(p) {
		if p.Total == 0 {
			continue
		}
		set("NODE", p)
		switch p.Kind {
		case StageNode:
			set("STAGE", p)
		case StepNode:
			set("STEP", p)
		}
	}
	return env
}

// opening renders the fields of a stage at its start.
func (t *turn) opening(n *Node) (*Opening, error) {
	e := t.element(n)
	s, p := e.stage, t.m.pipeline
	o := &Opening{Identifier: n.Identifier, Pipeline: p.Identifier, Org: p.Org, Project: p.Project, Environment: t.loopEnvironment(n)}
	o.Name = n.Name
	var err error
	if o.Timeout, err = t.timeout(n, s.Timeout); err != nil {
		return nil, err
	}
	if o.Variables, err = t.variables(n, e); err != nil {
		return nil, err
	}
	selectors := s.Selectors
	if selectors == nil {
		selectors = p.Selectors
	}
	if o.Selectors, err = t.texts(n, "delegateSelectors", selectors); err != nil {
		return nil, err
	}
	if s.Infrastructure != nil {
		o.Infrastructure = &Infrastructure{Type: s.Infrastructure.Type}
		if o.Infrastructure.Spec, err = t.render(n, "spec.infrastructure.spec", s.Infrastructure.Spec); err != nil {
			return nil, err
		}
	}
	for _, f := range []struct {
		path  string
		field *definition.Node
		to    *any
	}{
		{"spec.platform", s.Platform, &o.Platform}, {"spec.runtime", s.Runtime, &o.Runtime},
		{"spec.caching", s.Caching, &o.Caching}, {"spec.sharedPaths", s.SharedPaths, &o.SharedPaths},
	} {
		if *f.to, err = t.render(n, f.path, f.field); err != nil {
			return nil, err
		}
	}
	if err = t.addGroupPaths(n, e, o); err != nil {
		return nil, err
	}
	for i, service := range s.Services {
		value, err := t.render(n, fmt.Sprintf("spec.serviceDependencies[%d]", i), service)
		if err != nil {
			return nil, err
		}
		o.Services = append(o.Services, value)
	}
	if err := t.clone(n, s, o); err != nil {
		return nil, err
	}
	o.Announced = t.announce(n, e)
	return o, nil
}

// addGroupPaths adds the shared paths of groups to the paths of the stage: the volumes of a stage are made when it opens.
func (t *turn) addGroupPaths(n *Node, e *element, o *Opening) error {
	for _, item := range e.items {
		for _, below := range item {
			if below.group == nil {
				continue
			}
			paths, err := t.texts(n, "stepGroup.sharedPaths", below.group.SharedPaths)
			if err != nil {
				return err
			}
			all, ok := o.SharedPaths.([]any)
			if !ok && o.SharedPaths != nil && len(paths) > 0 {
				all = []any{o.SharedPaths}
			}
			for _, path := range paths {
				if !slices.Contains(all, any(path)) {
					all = append(all, path)
				}
			}
			if len(paths) > 0 {
				o.SharedPaths = all
			}
			if err := t.addGroupPaths(n, below, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// clone renders the codebase if the stage clones it.
func (t *turn) clone(n *Node, s *definition.Stage, o *Opening) error {
	if s.Clone == nil {
		return nil
	}
	value, err := t.renderAs(n, "spec.cloneCodebase", s.Clone, refuseSecrets)
	if err != nil {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(text(value))) {
	case "true":
		o.Clone = true
	case "false", "":
		return nil
	default:
		return fmt.Errorf("%s: spec.cloneCodebase: %q is neither true nor false", at(s.Clone.Position), clip(text(value)))
	}
	c := t.m.pipeline.Codebase
	if c == nil {
		return nil
	}
	o.Repository = map[string]any{}
	for _, f := range []definition.Field{
		{Key: "connectorRef", Value: c.Connector}, {Key: "repoName", Value: c.Repository}, {Key: "build", Value: c.Build},
		{Key: "depth", Value: c.Depth}, {Key: "sslVerify", Value: c.SSLVerify}, {Key: "prCloneStrategy", Value: c.PRCloneStrategy},
		{Key: "lfs", Value: c.LFS}, {Key: "debug", Value: c.Debug}, {Key: "fetchTags", Value: c.FetchTags},
		{Key: "persistCredentials", Value: c.PersistCredentials}, {Key: "sparseCheckout", Value: c.SparseCheckout},
		{Key: "submoduleStrategy", Value: c.SubmoduleStrategy}, {Key: "cloneDirectory", Value: c.CloneDirectory},
		{Key: "preFetchCommand", Value: c.PreFetchCommand}, {Key: "runAsUser", Value: c.RunAsUser},
		{Key: "resources", Value: c.Resources},
	} {
		if f.Value == nil {
			continue
		}
		value, err := t.render(n, "properties.ci.codebase."+f.Key, f.Value)
		if err != nil {
			return err
		}
		o.Repository[f.Key] = value
	}
	return nil
}

// texts renders a list of texts, or one text.
func (t *turn) texts(n *Node, path string, field *definition.Node) ([]string, error) {
	value, err := t.renderAs(n, path, field, refuseSecrets)
	if err != nil || value == nil {
		return nil, err
	}
	values, ok := value.([]any)
	if !ok {
		values = []any{value}
	}
	var texts []string
	for _, value := range values {
		if written := strings.TrimSpace(text(value)); written != "" {
			texts = append(texts, written)
		}
	}
	return texts, nil
}

// variable renders a variable. One of the pipeline may be null, and is empty then, unless it is required.
func (t *turn) variable(n *Node, v *definition.Variable, ofStage bool) (Variable, error) {
	value := variableValue(n, v)
	if value != nil {
		var err error
		if value, err = t.renderValue(n, "variables."+v.Name, value); err != nil {
			return Variable{}, fmt.Errorf("%s: variables.%s: %w", at(v.Position), v.Name, err)
		}
	}
	if value == nil && v.Required {
		return Variable{}, fmt.Errorf("%s: variables.%s: has no value", at(v.Position), v.Name)
	}
	if value == nil && ofStage {
		return Variable{}, fmt.Errorf(`%s: variables.%s: the value is null, which a variable of a stage may not be: write "" for an empty text`, at(v.Position), v.Name)
	}
	return Variable{Name: v.Name, Value: text(value), Secret: v.Type == "Secret"}, nil
}
