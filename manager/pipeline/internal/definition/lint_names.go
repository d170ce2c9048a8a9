package definition

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/delegate-io/dlite/manager/pipeline/internal/expression"
)

// reference checks one name of an expression.
func (l *linter) reference(n *Node, ref expression.Reference, c *context) {
	at := spot{n, ref.Offset}
	secret := ref.Secret || l.isSecret(ref.Name, c)
	if secret {
		l.secret(at, ref, c)
	}
	if c.use == scriptText {
		l.script(at, ref, secret)
	}
	if ref.Secret || ref.Name == "" || l.crowded() {
		return
	}
	l.quiet = ref.Optional // the author permits that the name is unknown
	defer func() { l.quiet = false }()
	parts := strings.Split(ref.Name, ".")
	switch {
	case ref.Partial && len(parts) < 3:
	case parts[0] == "pipeline" && len(parts) > 2 && parts[1] == "variables":
		l.variable(at, parts[2:], l.variables, "pipeline")
	case parts[0] == "stage" && len(parts) > 2 && parts[1] == "variables" && c.stage != nil:
		l.variable(at, parts[2:], c.stage.variables, "stage")
	case parts[0] == "stage" && len(parts) > 1 && parts[1] == "output":
		l.stageOutput(at)
	case parts[0] == "matrix" && len(parts) > 1:
		l.axisName(at, parts[1], c)
	case parts[0] == "pipeline" && len(parts) > 2 && parts[1] == "stages":
		l.stageName(at, parts[2:], ref, c)
	case parts[0] == "stages" && len(parts) > 1:
		l.stageName(at, parts[1:], ref, c)
	case parts[0] == "execution" && len(parts) > 2 && parts[1] == "steps":
		l.stepName(at, parts[2:], ref, c)
	case parts[0] == "steps" && len(parts) > 1:
		l.stepName(at, parts[1:], ref, c)
	default:
		l.rootName(at, parts[0], c)
	}
}

// Roots are the first names of expressions that have a meaning at every place of a pipeline.
var Roots = [...]string{
	"account", "codebase", "eventPayload", "execution", "exportedVariables", "matrix", "org", "pipeline", "project", "repeat",
	"stage", "stages", "step", "stepGroup", "steps", "strategy", "trigger", "variable", "variables",
	"OnPipelineSuccess", "OnPipelineFailure", "OnStageSuccess", "OnStageFailure", "Always",
}

// NullRoots are names that belong to stages of other types. They are null.
var NullRoots = [...]string{
	"env", "infra", "service", "artifact", "artifacts", "manifest", "serviceVariables", "approval", "notification", "shell",
}

// rootName checks the first name of an expression: one with a meaning everywhere, a stage, or a
// step or group around the place.
func (l *linter) rootName(at spot, name string, c *context) {
	if text, _ := value(at.node).(string); at.offset > 0 && at.offset <= len(text) && text[at.offset-1] == '-' {
		return // the warning about the hyphen is enough
	}
	if slices.Contains(Roots[:], name) || slices.Contains(NullRoots[:], name) || l.stages[name] != nil || l.loopedStage(name) != nil {
		return
	}
	known := append(slices.Collect(maps.Keys(l.stages)), Roots[:]...)
	for _, level := range c.levels {
		if find(level, name) != nil {
			return
		}
		known = slices.AppendSeq(known, maps.Keys(level))
	}
	l.warnAt(at, "unknown-name", fmt.Sprintf("nothing has the name %s here", quote(name)), l.suggest(name, known))
}

// isSecret reports whether a name is a variable of the type Secret.
func (l *linter) isSecret(name string, c *context) bool {
	root, rest, _ := strings.Cut(name, ".")
	if root != "variables" {
		var list string
		if list, rest, _ = strings.Cut(rest, "."); list != "variables" {
			return false
		}
	}
	var v *Variable
	switch {
	case root == "pipeline":
		v = l.variables[rest]
	case root == "stage" && c.stage != nil:
		v = c.stage.variables[rest]
	case root == "variables":
		if c.stage != nil {
			v = c.stage.variables[rest]
		}
		if v == nil {
			v = l.variables[rest]
		}
	}
	return v != nil && v.Type == "Secret"
}

// secret reports a secret in a place that is kept with the run.
func (l *linter) secret(at spot, ref expression.Reference, c *context) {
	switch c.use {
	case conditionText, nameText, axisText:
		l.errorAt(at, "secret-in-"+c.use.String(), fmt.Sprintf("the secret %s is in the %s, which is stored with the run and shown", quote(ref.Name), c.use),
			"use secrets in envVariables and settings only")
	}
}

// script reports values in a script that may change the script.
func (l *linter) script(at spot, ref expression.Reference, secret bool) {
	switch {
	case secret:
		l.warnAt(at, "secret-in-script", fmt.Sprintf("the secret %s is inserted into the script: a quote or a $ in it changes the script", quote(ref.Name)),
			"put it into envVariables and use the variable")
	case untrusted(ref.Name):
		l.warnAt(at, "untrusted-in-script", fmt.Sprintf("%s comes from outside and is inserted into the script: its author can run commands", ref.Name),
			"put it into envVariables and use the variable in quotes")
	}
}

// untrusted reports whether the author of a change decides about a value.
func untrusted(name string) bool {
	for _, prefix := range []string{"trigger.payload", "trigger.header", "eventPayload", "codebase.build.spec"} {
		if name == prefix || strings.HasPrefix(name, prefix+".") {
			return true
		}
	}
	root, member, _ := strings.Cut(name, ".")
	switch root {
	case "codebase", "trigger":
		return slices.Contains([]string{"branch", "tag", "sourceBranch", "prTitle", "pullRequestBody", "commitMessage", "commitRef", "gitUser", "gitUserId",
			"gitUserEmail", "gitUserAvatar", "sourceRepo"}, member)
	}
	return false
}

// variable checks the name after pipeline.variables and stage.variables. Names may have dots.
func (l *linter) variable(at spot, parts []string, variables map[string]*Variable, owner string) {
	name := ""
	for _, part := range parts[:min(len(parts), 8)] {
		if name += part; variables[name] != nil {
			return
		}
		name += "."
	}
	l.warnAt(at, "unknown-variable", fmt.Sprintf("the %s has no variable %s", owner, quote(parts[0])), l.suggest(parts[0], slices.Collect(maps.Keys(variables))))
}

func (l *linter) axisName(at spot, name string, c *context) {
	if c.open || c.axes[name] {
		return
	}
	for axis := range c.axes {
		if strings.HasPrefix(axis, name+"-") || strings.HasPrefix(axis, name+".") {
			return // the warning about the hyphen is enough
		}
	}
	if len(c.axes) == 0 {
		l.warnAt(at, "unknown-axis", fmt.Sprintf("matrix.%s stands outside of a matrix", bounded(name)), "")
		return
	}
	l.warnAt(at, "unknown-axis", fmt.Sprintf("the matrix has no axis %s", quote(name)), l.suggest(name, slices.Collect(maps.Keys(c.axes))))
}

// stageName checks pipeline.stages.ID and the steps after it.
func (l *linter) stageName(at spot, parts []string, ref expression.Reference, c *context) {
	s := l.stages[parts[0]]
	if s == nil {
		s = l.loopedStage(parts[0])
	}
	if s == nil {
		l.warnAt(at, "unknown-stage", fmt.Sprintf("there is no stage %s", quote(parts[0])), l.suggest(parts[0], slices.Collect(maps.Keys(l.stages))))
		return
	}
	if len(parts) > 1 && parts[1] == "output" {
		l.stageOutput(at)
	}
	if s.Skip != "" || len(parts) < 5 || parts[1] != "spec" || parts[2] != "execution" || parts[3] != "steps" {
		return
	}
	if s == c.stage {
		l.stepName(at, parts[4:], ref, c)
		return
	}
	l.inLevel(at, parts[4:], ref, s.level, nil)
}

// stageOutput reports the output of a stage.
func (l *linter) stageOutput(at spot) {
	l.warnAt(at, "unknown-output", "a stage has no output: outputs belong to its steps", "write pipeline.stages.STAGE.spec.execution.steps.STEP.output.outputVariables.NAME")
}

// loopedStage finds the stage of a child of a strategy.
func (l *linter) loopedStage(id string) *lintStage {
	for i := min(len(id), longestName) - 1; i > 0; i-- {
		if id[i] == '_' {
			if s := l.stages[id[:i]]; s != nil && s.Strategy != nil {
				return s
			}
		}
	}
	return nil
}

// stepName checks a step of the same stage.
func (l *linter) stepName(at spot, parts []string, ref expression.Reference, c *context) {
	if c.stage == nil {
		l.warnAt(at, "unknown-step", fmt.Sprintf("the step %s is named outside of a stage", quote(parts[0])), "write pipeline.stages.STAGE.spec.execution.steps."+bounded(parts[0]))
		return
	}
	if c.order < 0 {
		l.warnAt(at, "own-steps", fmt.Sprintf("the condition of the stage is decided before its step %s runs", quote(parts[0])), "use the condition at the steps")
		return
	}
	for i := len(c.levels) - 1; i >= 0; i-- {
		if find(c.levels[i], parts[0]) != nil {
			l.inLevel(at, parts, ref, c.levels[i], c)
			return
		}
	}
	l.warnAt(at, "unknown-step", fmt.Sprintf("the stage has no step %s", quote(parts[0])), l.elsewhere(parts[0], c))
}

// elsewhere returns the hint for a step that is in another stage.
func (l *linter) elsewhere(id string, c *context) string {
	for _, s := range l.pipeline.All() {
		if other := l.stages[s.Identifier]; other != c.stage && other.level[id] != nil {
			return "write pipeline.stages." + s.Identifier + ".spec.execution.steps." + id
		}
	}
	return l.suggest(id, slices.Collect(maps.Keys(c.stage.level)))
}

// inLevel checks the parts of a name from a step or group on. c is nil for another stage.
func (l *linter) inLevel(at spot, parts []string, ref expression.Reference, level map[string]*lintNode, c *context) {
	n := find(level, parts[0])
	if n == nil {
		l.warnAt(at, "unknown-step", fmt.Sprintf("there is no step %s", quote(parts[0])), l.suggest(parts[0], slices.Collect(maps.Keys(level))))
		return
	}
	if n.level != nil {
		if len(parts) > 2 && parts[1] == "steps" {
			l.inLevel(at, parts[2:], ref, n.level, c)
		}
		return
	}
	if c != nil && n.order > c.order && !l.inside(n, c) {
		l.warnAt(at, "later-step", fmt.Sprintf("the step %s runs later or at the same time", quote(parts[0])), "move it before this place")
	}
	l.output(at, parts, ref, n.step)
}

// inside reports whether a step stands in the group whose field is checked.
func (l *linter) inside(n *lintNode, c *context) bool {
	return c.step == nil && (len(c.groups) == 0 || n.parent == c.groups[len(c.groups)-1])
}

// output checks STEP.output.outputVariables.NAME.
func (l *linter) output(at spot, parts []string, ref expression.Reference, s *Step) {
	if len(parts) < 3 || parts[1] != "output" || parts[2] != "outputVariables" {
		return
	}
	if l.used[s] == nil {
		l.used[s] = map[string]bool{}
	}
	if len(parts) == 3 || ref.Partial {
		l.used[s]["*"] = true
		return
	}
	name := parts[3]
	l.used[s][name] = true
	var known []string
	for _, output := range outputs(s) {
		known = append(known, output.Get("name").Text())
	}
	if slices.Contains(known, name) || isPlugin(s) || s.Spec.Get("outputVariables").Dynamic() {
		return
	}
	l.warnAt(at, "unknown-output", fmt.Sprintf("the step %s declares no output %s", quote(s.Identifier), quote(name)), l.suggest(name, known))
}
