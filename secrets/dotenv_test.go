package secrets

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDotenvVariable(t *testing.T) {
	t.Parallel()
	const text = "# c=1\n\nA=a\r\n B = b c  # comment\nexport C=c\nD=\nE=#x\nF=pa$$w${A}d#1\nG='it''s'\n"
	for name, want := range map[string]string{"A": "a", "B": "b c", "C": "c", "D": "", "E": "", "F": "pa$$w${A}d#1"} {
		v, err := dotenvVariable(strings.TrimSuffix(text, "G='it''s'\n"), name)
		require.NoError(t, err, name)
		assert.Equal(t, want, v, name)
	}
	for in, want := range map[string]string{
		`X="a\"b\\c\nd\te\$f"`: "a\"b\\c\nd\te$f", `X='a\nb"'`: `a\nb"`, "X='one\ntwo' # c\nY=1": "one\ntwo", "X=1\nX=2": "2",
		"X=\"a\nb\"\r\nY=2": "a\nb", "exported=1\nX=2": "2", "X=a=b": "a=b", "X=\"\"": "",
	} {
		v, err := dotenvVariable(in, "X")
		require.NoError(t, err, in)
		assert.Equal(t, want, v, in)
	}
	for _, in := range []string{"hush", "=hush", "a hush=1", "X='hush", "X=\"hush\\", "X='a'hush", text} {
		_, err := dotenvVariable(in, "X")
		require.ErrorContains(t, err, "not a dotenv file", in)
		assert.NotContains(t, err.Error(), "hush")
	}
}

// An escaped value in double quotes survives, whatever lines precede it.
func FuzzDotenvVariable(f *testing.F) {
	f.Add("value", "A=1\n")
	f.Add("a\"b\\\n'$x #", "# comment\nB='2\n'\n")
	f.Add("", "=\"")
	f.Fuzz(func(t *testing.T, value, before string) {
		text := `X="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`).Replace(value) + "\"\n"
		if got, err := dotenvVariable(text, "X"); err != nil || got != value {
			t.Fatalf("%q: %q %v", text, got, err)
		}
		if _, err := dotenvVariable(before, "no such name"); err != nil && !strings.Contains(err.Error(), "no field") {
			return // the file is invalid and reported as such
		}
		if before == "" || strings.HasSuffix(before, "\n") {
			if got, err := dotenvVariable(before+text, "X"); err != nil || got != value {
				t.Fatalf("%q: %q %v", before+text, got, err)
			}
		}
	})
}
