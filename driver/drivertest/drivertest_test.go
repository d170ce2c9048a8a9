package drivertest

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Rule D1: at least 60 cases need no capability. Each case has a unique name and cites
// the rule that it proves.
func TestCasesHaveNamesAndCiteRules(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	always := 0
	for _, c := range cases() {
		require.NotEmpty(t, c.name)
		require.False(t, names[c.name], "two cases have the name %q", c.name)
		names[c.name] = true
		require.Regexp(t, regexp.MustCompile(`^([CPRTDSQL]\d|protocol\.md \d)`), c.rule, c.name)
		require.NotNil(t, c.run, c.name)
		if c.needs == (Capabilities{}) {
			always++
		}
	}
	require.GreaterOrEqual(t, always, 60)
}

// mutations.md must list the defects that make each case fail.
func TestMutationListHasEveryCase(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("mutations.md")
	require.NoError(t, err)
	for _, c := range cases() {
		require.True(t, strings.Contains(string(b), "| "+c.name+" |"), "mutations.md does not name %q", c.name)
	}
}

// docs/conformance.md must match this suite. "make conformance" generates it.
func TestConformancePageHasEveryCase(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../docs/conformance.md")
	require.NoError(t, err)
	for _, c := range cases() {
		require.Equal(t, 1, strings.Count(string(b), "\n| "+c.name+" | "+c.rule+" |"), "docs/conformance.md and %q: run make conformance", c.name)
	}
	require.NotContains(t, string(b), "FAILED")
}

func TestTargetLacksUndeclaredCapabilities(t *testing.T) {
	t.Parallel()
	target := Target{Can: Capabilities{OOM: true, Users: true}}
	require.Empty(t, target.lacks(Capabilities{}))
	require.Empty(t, target.lacks(Capabilities{Users: true}))
	require.Equal(t, []string{"Names"}, target.lacks(Capabilities{OOM: true, Names: true}))
}
