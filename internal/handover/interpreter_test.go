package handover

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The text that PowerShell gets. A real PowerShell runs it in TestOutputsOfPowerShell of package local,
// where there is one.
func TestPowerShellScripts(t *testing.T) {
	t.Parallel()
	argv := []string{`C:\Tools\PWSH.exe`, "-NoProfile", "-command", "$A = 1 # visibly-fake"}
	out, ok := AppendReadout(argv, []string{"A", "B"}, `C:\it's\vars`)
	require.True(t, ok)
	assert.Equal(t, argv[:3], out[:3])
	assert.Equal(t, "$__dlite_ok = $false; try { $A = 1 # visibly-fake\n$__dlite_ok = $? } finally { $__dlite_out = ''; "+
		"foreach ($__dlite_name in 'A','B') { $__dlite_value = Get-Variable -Name $__dlite_name -ValueOnly -ErrorAction SilentlyContinue; "+
		"if ($null -ne $__dlite_value) { $__dlite_out += $__dlite_name + '=' + [string]$__dlite_value + [char]0 } }; "+
		`[IO.File]::WriteAllText('C:\it''s\vars', $__dlite_out) }; if (-not $__dlite_ok) { exit 1 }`, out[3])
	hidden, script, err := HideScript(out)
	require.NoError(t, err)
	assert.Equal(t, out[3], script)
	assert.NotContains(t, strings.Join(hidden, " "), "visibly-fake")
	assert.Contains(t, hidden[3], "Remove-Item Env:DLITE_SCRIPT")

	for _, first := range []string{"param($x)", "using namespace System", "#requires -version 7", "# comment\n  Param (\n$x)", "[CmdletBinding()]param()"} {
		argv[3] = first + "\n$A = 1"
		_, ok = AppendReadout(argv, []string{"A"}, "f")
		assert.False(t, ok, "the statement must come first: %s", first)
	}
	for line, want := range map[string]int{
		"pwsh -c X": 2, "powershell.exe -NonInteractive -Comm X": 3, "pwsh -Command X Y": 0, "pwsh -File X": 0, "pwsh - X": 0, "sh -Command X": 0, "pwsh -c": 0,
	} {
		got, ok := powerShellIndex(strings.Fields(line))
		assert.Equal(t, want != 0, ok, line)
		if ok {
			assert.Equal(t, want, got, line)
		}
	}
}
