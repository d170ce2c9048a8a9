package drivertest

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// D1: at least 60 cases that no missing capability takes away, each with a name
// of its own and the rule that it proves.
func TestCasesAreNamedAndSayWhatTheyProve(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	always := 0
	for _, c := range cases() {
		require.NotEmpty(t, c.name)
		require.False(t, names[c.name], "two cases are called %q", c.name)
		names[c.name] = true
		require.Regexp(t, regexp.MustCompile(`^([CPRTDSQL]\d|PROTOCOL|PITFALLS)`), c.spec, c.name)
		require.NotNil(t, c.run, c.name)
		if len(c.needs) == 0 {
			always++
		}
	}
	require.GreaterOrEqual(t, always, 60)
}

// A case that is added without a word on what makes it fail shows up here.
func TestMutationListKnowsEveryCase(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("mutations.md")
	require.NoError(t, err)
	for _, c := range cases() {
		require.True(t, strings.Contains(string(b), "| "+c.name+" |"), "mutations.md does not name %q", c.name)
	}
}

// The page of results is of this suite. "make conformance" makes it anew.
func TestThePageOfResultsKnowsEveryCase(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../docs/conformance.md")
	require.NoError(t, err)
	for _, c := range cases() {
		require.Equal(t, 1, strings.Count(string(b), "\n| "+c.name+" | "+c.spec+" |"), "docs/conformance.md and %q: run make conformance", c.name)
	}
	require.NotContains(t, string(b), "FAILED")
}

func TestTargetLacksWhatItDoesNotDeclare(t *testing.T) {
	t.Parallel()
	target := Target{Can: []Capability{OOM, Users}}
	require.Empty(t, target.lacks(nil))
	require.Empty(t, target.lacks([]Capability{Users}))
	require.Equal(t, []Capability{Names}, target.lacks([]Capability{OOM, Names}))
}
