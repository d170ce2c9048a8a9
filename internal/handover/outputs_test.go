package handover

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/dotenv"
)

// Section 5 of docs/protocol.md: the forms of an output file.
func TestParseOutputs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]map[string]string{
		"":                                 {},
		"\n  \n# comment\n":                {},
		"A=1":                              {"A": "1"},
		"A=1\r\nB=2\r\n":                   {"A": "1", "B": "2"},
		"export A=1\n  B = two words  \n":  {"A": "1", "B": "two words"},
		"A=\nB=\"\"\nC=''":                 {"A": "", "B": "", "C": ""},
		"A=x=y=z":                          {"A": "x=y=z"},
		"A=fix #12":                        {"A": "fix #12"},
		"A=1\nA=2":                         {"A": "2"},
		"image.tag=1\nx-y=2":               {"image.tag": "1", "x-y": "2"},
		`A="a\nb\t\"c\" \\ \$D $E \x"`:     {"A": "a\nb\t\"c\" \\ $D $E \\x"},
		`A='a\nb "c" $D'`:                  {"A": `a\nb "c" $D`},
		"A=\"one\ntwo\"\nB=3":              {"A": "one\ntwo", "B": "3"},
		"A='one\r\ntwo'\r\nB=3":            {"A": "one\ntwo", "B": "3"},
		`A="x" # note`:                     {"A": "x"},
		`A="x" and "y"`:                    {"A": `"x" and "y"`},
		`A={"a": "b"}`:                     {"A": `{"a": "b"}`},
		"A=${B} $(C) `D`":                  {"A": "${B} $(C) `D`"},
		"A=__B64__YQpi":                    {"A": "a\nb"},
		"A=__B64__YQ==\nB=\"__B64__Yg==\"": {"A": "a", "B": "b"},
		"A=__B64__":                        {"A": ""},
	} {
		got, err := parseOutputs(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
}

// An error about an output file must not show secrets.
func TestParseOutputsNamesMalformedLinesWithoutTheirContent(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"A=1\nhunter2\nB=2":           "line 2: not of the form KEY=VALUE",
		"A=1\nhunter2 x=1\nB=2":       "line 2: not of the form KEY=VALUE",
		"A=1\n=hunter2\nB=2":          "line 2: not of the form KEY=VALUE",
		"A=1\nX=\"hunter2\nB=2":       "line 2: the quote is not closed",
		"A=1\nX=__B64__hunter2!\nB=2": "line 2: the value is not valid base64",
		"A=1\nX=hun\x00ter2\nB=2":     "line 2: the value holds a zero byte",
		"A='1\n'\nhunter2\nB=2":       "line 3: not of the form KEY=VALUE",
	} {
		got, err := parseOutputs(text)
		require.EqualError(t, err, want, text)
		require.NotContains(t, err.Error(), "hunter2")
		require.NotContains(t, got, "X")
		require.Equal(t, "2", got["B"], "a malformed line must not take others with it")
	}
}

func FuzzParseOutputs(f *testing.F) {
	for _, s := range []string{"A=1", "A=\"x\ny\"\n", "export A='b'", "A=__B64__YQ==", "A=\"\\", "=\n'\"", "A='\r\n'"} {
		f.Add(s, "some value")
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		vars, err := parseOutputs(text)
		for k := range vars {
			require.True(t, dotenv.IsName(k))
		}
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				require.Regexp(t, `^line \d+: (not of the form KEY=VALUE|the (quote is not closed|value is not valid base64|value holds a zero byte))$`, line)
			}
		}
		// base64 carries any value, and a value does not disturb the next line.
		if strings.ContainsRune(value, 0) {
			return
		}
		lines := "A=" + base64Prefix + base64.StdEncoding.EncodeToString([]byte(value)) + "\n"
		vars, err = parseOutputs(lines + "B=2")
		require.NoError(t, err)
		require.Equal(t, map[string]string{"A": value, "B": "2"}, vars)
		// Double quotes with escapes do the same.
		quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\r", `\r`, "\n", `\n`, "$", `\$`).Replace(value)
		vars, err = parseOutputs("A=\"" + quoted + "\"\nB=2")
		require.NoError(t, err)
		if !strings.HasPrefix(value, base64Prefix) {
			require.Equal(t, map[string]string{"A": value, "B": "2"}, vars)
		}
	})
}

func TestScriptIndex(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		argv string
		want int // 0 is no script
	}{
		{"sh -c X", 2}, {"/bin/bash -e -c X", 3}, {"bash -ec X arg0 arg1", 2}, {"bash -eo pipefail -c X", 4},
		{"bash --noprofile --norc -c X", 4}, {"sh -c -- X", 3}, {"zsh +e -c X", 3}, {"dash -c -e X", 3},
		{"sh X -c", 0}, {"python -c X", 0}, {"pwsh -Command X", 0}, {"sh -c", 0}, {"sh", 0}, {"", 0}, {"sh -e X", 0},
	} {
		got, ok := scriptIndex(strings.Fields(c.argv))
		assert.Equal(t, c.want != 0, ok, c.argv)
		if ok {
			assert.Equal(t, c.want, got, c.argv)
		}
	}
}
