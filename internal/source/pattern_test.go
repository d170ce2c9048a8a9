package source_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/delegate-io/dlite/internal/source"
)

func TestNamesSelectBranchesByPatterns(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		patterns []string
		name     string
		want     bool
	}{
		{nil, "", true},
		{nil, "main", true},
		{[]string{"main"}, "main", true},
		{[]string{"main"}, "main2", false},
		{[]string{"main"}, "", false},
		{[]string{"release/*"}, "release/1", true},
		{[]string{"release/*"}, "release/1/a", false},
		{[]string{"release/**"}, "release/1/a", true},
		{[]string{"v?.*"}, "v1.2", true},
		{[]string{"v?.*"}, "v12", false},
		{[]string{"!wip/**"}, "main", true},
		{[]string{"!wip/**"}, "wip/a", false},
		{[]string{"**", "!main"}, "main", false},
		{[]string{"a.b"}, "axb", false},
		{[]string{`a\*`}, `a\b`, true},
		{[]string{"(a"}, "(a", true},
		{[]string{"a*"}, "a\nb", true},
	} {
		assert.Equal(t, test.want, source.Match(test.patterns, test.name), "%q %q", test.patterns, test.name)
	}
}

// A name that matches begins with one of the prefixes: a poll that asks only for the prefixes misses none.
func FuzzPrefixes(f *testing.F) {
	f.Add("release/*", "release/1")
	f.Add("!a", "b")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if !source.Match([]string{pattern}, name) {
			return
		}
		for _, prefix := range source.Prefixes([]string{pattern}) {
			if strings.HasPrefix(name, prefix) {
				return
			}
		}
		t.Errorf("%q matches %q and has none of the prefixes", name, pattern)
	})
}
