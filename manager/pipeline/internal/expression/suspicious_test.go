package expression

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAConditionWarnsOfPlacesWhoseResultIsRarelyIntended(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		`<+codebase.build.type> == "tag" || "branch"`:              {"constant-operand"},
		`"a" && <+x.y> == "b"`:                                     {"constant-operand"},
		`<+trigger.payload.ref> == "refs/tags/v*"`:                 {"literal-pattern"},
		`"v*" != <+codebase.tag>`:                                  {"literal-pattern"},
		`<+execution.steps.a.status> == "Success"`:                 {"unknown-status"},
		`<+pipeline.variables.n> > 9`:                              {"ordered-text"},
		`<+a.b> <= "10"`:                                           {"ordered-text"},
		`!(<+a.b> == "x*")`:                                        {"literal-pattern"},
		`<+a.b> == "x" && <+execution.steps.a.status> == "FAILED"`: nil,
		`<+trigger.payload.ref> =~ "refs/tags/v.*"`:                nil,
		`<+a.b> > 9 || true`:                                       nil,
	} {
		c, err := ParseCondition(text)
		require.NoError(t, err, text)
		var codes []string
		for _, w := range c.Warnings() {
			codes = append(codes, w.Code)
		}
		require.Equal(t, want, codes, text)
	}
}
