package handover

import (
	"errors"
	"path"
	"regexp"
	"slices"
	"strings"
)

// ScriptVariable holds the script of a step whose command line must not show the script.
const ScriptVariable = "DLITE_SCRIPT"

// errShowsSecret refuses a step whose command line holds a secret.
var errShowsSecret = errors.New("its command line would show a secret to every process of the machine: " +
	"put the secret into the step's environment, or into the script of a shell or of Python with -c")

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
	return nil, "", errShowsSecret
}

var python = regexp.MustCompile(`^python[0-9.]*(\.exe)?$`)

// pythonIndex returns the index of the script in python -c SCRIPT.
func pythonIndex(argv []string) (int, bool) {
	if len(argv) < 3 || !python.MatchString(path.Base(strings.ReplaceAll(argv[0], `\`, "/"))) {
		return 0, false
	}
	i := slices.Index(argv, "-c") + 1
	return i, i > 0 && i < len(argv)
}
