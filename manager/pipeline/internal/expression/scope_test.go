package expression_test

import (
	"encoding/base64"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/delegate-io/dlite/manager/pipeline/internal/expression"
)

// names is a scope of fixed values, and an object.
type names map[string]any

func (n names) Lookup(name string) (any, bool) {
	v, ok := n[name]
	return v, ok
}

func (n names) Names() []string { return slices.Sorted(maps.Keys(n)) }

func (n names) Member(name string) (any, bool) { return n.Lookup(name) }

// outwards is a scope that asks several scopes, the innermost first.
type outwards []names

func (o outwards) Lookup(name string) (any, bool) {
	for _, n := range o {
		if v, ok := n.Lookup(name); ok {
			return v, true
		}
	}
	return nil, false
}

func (o outwards) Names() (all []string) {
	for _, n := range o {
		all = append(all, n.Names()...)
	}
	return all
}

var runTime = time.Date(2026, 11, 22, 20, 15, 4, 0, time.UTC)

func author(text string) expression.Text { return expression.Text{Value: text} }

// run is the scope of a step in a run. A pull request started it.
func run() outwards {
	outputs := func(pairs ...string) names {
		vars := names{}
		for i := 0; i < len(pairs); i += 2 {
			vars[pairs[i]] = pairs[i+1]
		}
		return names{"output": names{"outputVariables": vars}, "status": "SUCCEEDED", "exitCode": 0}
	}
	steps := names{
		"build":   outputs("VERSION", "1.2.3", "IMAGE", "app:1.2.3"),
		"build_0": outputs("VERSION", "zero"),
		"build_1": outputs("VERSION", "one"),
		"checks":  names{"steps": names{"unit": outputs("COUNT", "17")}},
	}
	stage := names{
		"name": "Build it", "identifier": "build", "type": "CI", "status": "RUNNING",
		"variables": names{"region": author("eu"), "host": author("<+variables.region>.example"), "key": expression.Secret{ID: "stage_key"}},
		"spec":      names{"execution": names{"steps": steps}},
		"tags":      map[string]any{"team": "core"},
		"matrix":    names{"os": "linux"},
	}
	pipeline := names{
		"identifier": "release", "name": "Release", "sequenceId": 42, "startTs": int64(1795378504000), "executionId": "run-1",
		"triggerType": "WEBHOOK", "triggeredBy": names{"name": "Ada", "email": "ada@team.example"},
		"variables": names{
			"app": author("shop"), "replicas": author("3"), "ten": author("10"), "nine": author("9"), "empty": author(""),
			"url":     author("https://<+pipeline.variables.app>.<+stage.variables.region>.example"),
			"list":    author("a,b,c"),
			"itself":  author("x<+pipeline.variables.itself>"),
			"left":    author("<+pipeline.variables.right>"),
			"right":   author("<+pipeline.variables.left>"),
			"broken":  author("<+pipeline.variables.>"),
			"typo":    author("v<+pipeline.variables.ap>"),
			"number":  author("<+<+pipeline.variables.replicas> * 2>"),
			"secret":  author(`<+secrets.getValue("token")>`),
			"a-b":     author("hyphen"),
			"native":  author("${{secrets.native}}"),
			"json":    author(`{"a": {"b": [1, 2]}, "t": "<+pipeline.variables.app>"}`),
			"percent": int32(7), "ratio": float32(0.5),
		},
		"stages": names{"build": stage, "test": names{"status": "SKIPPED"}},
		"tags":   map[string]string{"owner": "team", "flag": ""},
	}
	step := names{
		"stage": stage, "matrix": names{"os": "linux", "service": map[string]any{"name": "api", "port": 8080}, "a-b": "dash"},
		"step":      names{"name": "Compile", "identifier": "compile", "retryCount": 1, "exitCode": 137},
		"strategy":  names{"iteration": 1, "iterations": 3, "identifierPostFix": "_1", "node": names{"compile": names{"currentStatus": "RUNNING"}}},
		"repeat":    names{"item": "two"},
		"steps":     steps,
		"execution": names{"steps": steps},
		"variables": names{"region": author("eu")},
	}
	outer := names{
		"pipeline": pipeline, "build": stage,
		"codebase": names{
			"branch": "main", "commitSha": "0123456789abcdef0123456789abcdef01234567", "shortCommitSha": "0123456", "prNumber": 12,
			"prTitle": "Fix <+secrets.getValue(\"prod\")> \"now\"", "tag": nil,
			"build": names{"type": "PR", "spec": names{"number": "12"}},
		},
		"trigger": names{
			"type": "Webhook", "event": "PR", "branch": nil, "header": names{"X-Event": "pull_request"},
			"payload": map[string]any{"ref": "refs/heads/main", "commits": []any{map[string]any{"id": "c1"}, map[string]any{"id": "c2"}}, "x-auth": "yes", "size": 12.0, "draft": false},
		},
		"account": names{"identifier": "acc", "name": "Account", "companyName": "Company"},
		"org":     names{"identifier": "default"}, "project": names{"identifier": "shop"},
		"variable": names{"dns": author("ns.example"), "org": names{"region": author("eu")}, "account": names{"mail": author("ci@team.example")}},
		"env":      nil, "infra": nil, "artifact": nil,
		"OnPipelineSuccess": true, "OnStageFailure": false, "Always": true,
		"a": 5, "b": 12, "f": "abc", "g": "def", "h": "key", "v5": "1-2-3", "company": "harness", "nothing": nil,
		"yes": true, "no": false, "text": "false", "half": 0.5, "items": []any{"x", "y", int64(3)}, "set": []string{"p", "q"},
		"object": map[string]any{"k": "v", "n": nil, "deep": map[string]any{"list": []any{1, 2}}},
		"umlaut": "Grüße 😀", "padded": "  5\n", "quote": `it's "quoted" \ and ${x}`,
	}
	return outwards{step, outer}
}

// mode is the way of an evaluation.
type mode string

const (
	render   mode = "render"
	evaluate mode = "evaluate"
	decide   mode = "decide"
)

// eval evaluates a text.
func eval(t testing.TB, m mode, text string, env *expression.Environment) (any, error) {
	t.Helper()
	if m == render {
		tmpl, err := expression.Parse(text)
		if err != nil {
			return nil, err
		}
		return tmpl.Render(env)
	}
	c, err := expression.ParseCondition(text)
	switch {
	case err != nil:
		return nil, err
	case m == decide:
		return c.Decide(env)
	}
	return c.Evaluate(env)
}
func base64Of(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
