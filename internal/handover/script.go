package handover

import (
	"errors"
	"slices"
)

// ScriptVariable holds the script of a step whose command line must not show the script.
const ScriptVariable = "DLITE_SCRIPT"

// errShowsSecret refuses a step whose command line holds a secret.
var errShowsSecret = errors.New("its command line would show a secret to every process of the machine: " +
	"put the secret into the step's environment, or into the script of a shell or of Python with -c, or of PowerShell with -Command")

// HideScript replaces the script on the command line, which every process can read, by code that runs
// the script from ScriptVariable. The variable is unset before the script starts (rule S5). Line
// numbers, arguments, options and exit codes do not change. HideScript fails if argv is not a known
// interpreter with a script.
func HideScript(argv []string) (out []string, script string, err error) {
	out = slices.Clone(argv)
	if i, ok := scriptIndex(argv); ok {
		out[i] = `eval "unset ` + ScriptVariable + `; $` + ScriptVariable + `"`
		return out, argv[i], nil
	}
	if i, ok := pythonIndex(argv); ok {
		out[i] = `import os; exec(compile(os.environ.pop("` + ScriptVariable + `"), "<string>", "exec"))`
		return out, argv[i], nil
	}
	if i, ok := powerShellIndex(argv); ok {
		out[i] = `$__dlite_script = $env:` + ScriptVariable + `; Remove-Item Env:` + ScriptVariable + `; ` +
			`. ([ScriptBlock]::Create($__dlite_script)); if (-not $?) { exit 1 }`
		return out, argv[i], nil
	}
	return nil, "", errShowsSecret
}
