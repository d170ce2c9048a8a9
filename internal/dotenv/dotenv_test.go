package dotenv

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The dialects differ in comments, in unknown escapes, and in text after a closing quote.
func TestTheDialectsDiffer(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"A=fix #12":        {"fix #12", "fix"},
		`A="a\xb"`:         {`a\xb`, "axb"},
		`A="x" and "y"`:    {`"x" and "y"`, "error"},
		"A=\"a\r\nb\"":     {"a\nb", "a\r\nb"},
		"export\tA=1":      {"1", "1"},
		"a.b-c=1":          {"1", "1"},
		"a:b=1":            {"error", "1"},
		"A=":               {"", ""},
		"A='it's \\n'  #c": {"'it's \\n'  #c", "error"},
	} {
		for d, want := range want {
			for e := range Entries(text, Dialect(d)) {
				if want == "error" {
					require.Error(t, e.Err, "%d %s", d, text)
					continue
				}
				require.NoError(t, e.Err, "%d %s", d, text)
				assert.Equal(t, want, e.Value, "%d %s", d, text)
			}
		}
	}
}

func TestEntriesAreNumberedByTheirFirstLine(t *testing.T) {
	t.Parallel()
	var lines []int
	for e := range Entries("\n# c\nA='1\n2\n'\nbroken\nB=\"3\n\nC=4", Settings) {
		lines = append(lines, e.Line)
	}
	require.Equal(t, []int{3, 6, 7, 9}, lines, "after a malformed line the next line is read")
	for range Entries("A=1\nB=2", Data) {
		break // the caller may stop
	}
}
