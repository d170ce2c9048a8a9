package yaml

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPatternsMatchPaths(t *testing.T) {
	t.Parallel()
	for pattern, c := range map[string]struct{ yes, no []string }{
		"main":          {[]string{"main"}, []string{"", "mai", "main2", "feature/main"}},
		"feature/*":     {[]string{"feature/x", "feature/"}, []string{"feature", "feature/x/y", "a/feature/x"}},
		"*":             {[]string{"main", ""}, []string{"a/b"}},
		"**":            {[]string{"main", "a/b", ""}, nil},
		"feature/**":    {[]string{"feature/x", "feature/x/y"}, []string{"feature", "features/x"}},
		"**/x":          {[]string{"x", "a/x", "a/b/x"}, []string{"ax", "x/a"}},
		"a/**/b":        {[]string{"a/b", "a/x/b", "a/x/y/b"}, []string{"ab", "a/xb"}},
		"refs/tags/v*":  {[]string{"refs/tags/v1.2"}, []string{"refs/tags/1", "refs/tags/v1/x"}},
		"{a,b-*}/?":     {[]string{"a/x", "b-1/y"}, []string{"a", "a/", "c/x", "b/x"}},
		"v[0-9].[^a]":   {[]string{"v1.b", "v9.0"}, []string{"va.b", "v1.a", "v1./"}},
		`a\*`:           {[]string{"a*"}, []string{"ab", `a\*`}},
		"a.b+c(d)|e":    {[]string{"a.b+c(d)|e"}, []string{"axb+c(d)|e", "e"}},
		"*-*-*-*-*-*-*": {[]string{"1-2-3-4-5-6-7"}, []string{"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}},
	} {
		for _, value := range c.yes {
			assert.True(t, condition{include: []string{pattern}}.met(value), "%s and %q", pattern, value)
			assert.False(t, condition{exclude: []string{pattern}}.met(value), "%s and %q", pattern, value)
		}
		for _, value := range c.no {
			assert.False(t, condition{include: []string{pattern}}.met(value), "%s and %q", pattern, value)
			assert.True(t, condition{exclude: []string{pattern}}.met(value), "%s and %q", pattern, value)
		}
	}
}

func TestAStepIsSkippedIfAConditionIsNotMet(t *testing.T) {
	t.Parallel()
	in := Input{Variables: push()}
	in.Variables["DRONE_BUILD_ACTION"], in.Variables["DRONE_DEPLOY_TO"], in.Variables["DRONE_CRON"] = "sync", "production", "nightly"
	for when, skipped := range map[string]bool{
		"{}": false, "{branch: main}": false, "{branch: [x, m*]}": false, "{branch: x}": true,
		"{branch: {include: [m*], exclude: [main]}}": true, "{branch: {exclude: [x]}}": false, "{branch: null}": false,
		"{event: push, branch: x}": true, "{event: [push, tag], branch: main}": false, "{event: {exclude: [pull_request]}}": false,
		"{action: opened}": true, "{action: sync}": false, "{ref: refs/heads/*}": false, "{ref: [refs/tags/*]}": true,
		"{repo: team/*}": false, "{repo: other/*}": true, "{instance: drone.example}": false, "{instance: [a.example]}": true,
		"{target: production}": false, "{target: [staging]}": true, "{cron: nightly}": false, "{cron: [weekly]}": true,
		"{paths: [docs/**]}": false, "{status: failure}": false,
	} {
		plan, err := compile(t, "kind: pipeline\nsteps: [{name: a, image: b, when: "+when+"}]\nservices: [{name: s, image: b, when: "+when+"}]", in)
		require.NoError(t, err, when)
		for _, name := range []string{"a", "s"} {
			assert.Equal(t, skipped, plan.step(name).Skipped, when)
			assert.Equal(t, skipped, plan.step(name).Number == 0, when)
		}
	}
}

func TestTheStatusDecidesAfterWhichStepsAStepRuns(t *testing.T) {
	t.Parallel()
	for status, want := range map[string][2]bool{
		"null": {true, false}, "success": {true, false}, "failure": {false, true}, "[success, failure]": {true, true},
		"[failure]": {false, true}, "{exclude: [success]}": {false, true}, "{exclude: [failure]}": {true, false}, "'*'": {true, true},
	} {
		plan := compiled(t, "kind: pipeline\nsteps: [{name: a, image: b, when: {status: "+status+"}}]", Input{})
		a := plan.step("a")
		assert.Equal(t, want, [2]bool{a.OnSuccess, a.OnFailure}, status)
	}
}
