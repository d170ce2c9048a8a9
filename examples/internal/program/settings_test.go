package program

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.env")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// Rule X2: the error of an unknown setting suggests the setting that was probably meant.
func TestAnUnknownSettingIsNamedWithTheNearestOne(t *testing.T) {
	t.Parallel()
	valid := []string{"ACCOUNT_ID", "MAX_STAGES", "TOKEN"}
	canonical := func(name string) string { return strings.TrimPrefix(name, "PREFIX_") }
	for name, want := range map[string]string{
		"MAX_STAGE":        "f: unknown setting MAX_STAGE: did you mean MAX_STAGES?",
		"max_stages":       "f: unknown setting max_stages: did you mean MAX_STAGES?",
		"PREFIX_MAX_STAGE": "f: unknown setting PREFIX_MAX_STAGE: did you mean MAX_STAGES?",
		"ACOUNT_ID":        "f: unknown setting ACOUNT_ID: did you mean ACCOUNT_ID?",
		"SOMETHING":        `f: unknown setting SOMETHING: "program settings" lists the valid ones`,
	} {
		err := CheckNames("f", map[string]string{name: "visibly-fake", "TOKEN": "x"}, valid, canonical, `"program settings"`)
		assert.EqualError(t, err, want)
	}
	assert.NoError(t, CheckNames("f", map[string]string{"TOKEN": "x"}, valid, canonical, ""))
}

// Rule X2: no error of a settings file shows a value, which may be a secret.
func TestABrokenSettingsFileIsNotQuoted(t *testing.T) {
	t.Parallel()
	file := write(t, "TOKEN visibly-fake-secret\n")
	_, err := ReadSettings(file)
	require.ErrorContains(t, err, file)
	assert.NotContains(t, err.Error(), "visibly-fake-secret")
	_, err = ReadSettings(filepath.Join(t.TempDir(), "none.env"))
	require.ErrorContains(t, err, "no such file")
	got, err := ReadSettings(write(t, "A=1\nB=\"two words\" # comment\n"))
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"A": "1", "B": "two words"}, got)
	got, err = ReadSettings("")
	require.NoError(t, err)
	assert.Empty(t, got)
}

func TestTheVersionNamesProgramAndPlatform(t *testing.T) {
	t.Parallel()
	assert.Regexp(t, `^delegate \S+ \(.*go1\.\d+.*, \w+/\w+\)$`, Describe("delegate"))
}
