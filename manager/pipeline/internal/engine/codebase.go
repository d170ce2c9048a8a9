package engine

import (
	"maps"

	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
)

// codebaseObject has the values of codebase.*. A trigger or the start of the run gives them. Without a
// build among them, the build of the pipeline names the branch, the tag or the pull request.
func (t *turn) codebaseObject() *object {
	given := t.s.Run.Codebase
	if commit, ok := given["commitSha"].(string); ok && given["shortCommitSha"] == nil && len(commit) >= 7 {
		given = maps.Clone(given)
		given["shortCommitSha"] = commit[:7]
	}
	facts := outside(given, codebaseNames[:])
	c := t.m.pipeline.Codebase
	if given["build"] != nil || c == nil || c.Build == nil || c.Build.Kind != definition.Map {
		return facts
	}
	return &object{names: facts.names, member: func(name string) (any, bool) {
		if value, ok := given[name]; ok {
			return value, true
		}
		if value := built(c.Build, name); value != nil {
			return value, true
		}
		return facts.member(name)
	}}
}

// built returns a value of codebase.* that a build of the definition names, or nil.
func built(build *definition.Node, name string) any {
	spec := build.Get("spec")
	kind := build.Get("type").Text()
	switch {
	case name == "build":
		return fieldsObject(build)
	case kind == "branch" && name == "branch", kind == "tag" && name == "tag", kind == "commitSha" && name == "commitSha":
		return authored(spec.Get(name))
	case kind == "commitSha" && name == "branch":
		return authored(spec.Get("branch"))
	case kind == "PR" && name == "prNumber":
		if number, ok := authored(spec.Get("number")).(int64); ok {
			return text(number) // as the number of a trigger
		}
		return authored(spec.Get("number"))
	case kind == "commitSha" && name == "shortCommitSha":
		if commit := spec.Get("commitSha"); !commit.Dynamic() && len(commit.Text()) >= 7 {
			return commit.Text()[:7]
		}
	}
	return nil
}
