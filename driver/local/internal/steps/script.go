package steps

import (
	"errors"
	"path"
	"regexp"
	"slices"
	"strings"
)

// scriptVariable holds the script of a step whose command line must not show it.
const scriptVariable = "DLITE_SCRIPT"

// errShowsSecret is why a step whose command line holds a secret is not run.
var errShowsSecret = errors.New("its command line would show a secret to every process of the machine: " +
	"put the secret into the step's environment, or into the script of a shell or of Python with -c")

// conceal takes the script of argv off the command line, which everybody can
// read, and gives it the variable's value to run; the variable is gone before the
// script begins (SPEC S5). Line numbers, arguments, options and exit codes stay
// what they are. It fails when there is no script that it knows how to run.
func conceal(argv []string) (out []string, script string, err error) {
	out = slices.Clone(argv)
	if i, ok := scriptIndex(argv); ok {
		out[i] = `eval "unset ` + scriptVariable + `; $` + scriptVariable + `"`
		return out, argv[i], nil
	}
	if i, ok := pythonIndex(argv); ok {
		out[i] = `import os; exec(compile(os.environ.pop("` + scriptVariable + `"), "<string>", "exec"))`
		return out, argv[i], nil
	}
	return nil, "", errShowsSecret
}

var python = regexp.MustCompile(`^python[0-9.]*(\.exe)?$`)

// pythonIndex finds the script in python -c SCRIPT.
func pythonIndex(argv []string) (int, bool) {
	if len(argv) < 3 || !python.MatchString(path.Base(strings.ReplaceAll(argv[0], `\`, "/"))) {
		return 0, false
	}
	i := slices.Index(argv, "-c") + 1
	return i, i > 0 && i < len(argv)
}
