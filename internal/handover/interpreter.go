package handover

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// scriptIndex returns the index of the script in the command line of a shell: sh -c SCRIPT, with other
// options before or in -c.
func scriptIndex(argv []string) (int, bool) {
	if len(argv) < 3 {
		return 0, false
	}
	name := path.Base(strings.ReplaceAll(argv[0], `\`, "/"))
	switch strings.TrimSuffix(name, ".exe") {
	case "sh", "bash", "dash", "ash", "ksh", "zsh":
	default:
		return 0, false
	}
	command := false
	for i := 1; i < len(argv); i++ {
		arg := argv[i]
		switch {
		case arg == "--":
			return i + 1, command && i+1 < len(argv)
		case strings.HasPrefix(arg, "--"):
		case len(arg) > 1 && (arg[0] == '-' || arg[0] == '+'):
			command = command || arg[0] == '-' && strings.Contains(arg, "c")
			i += strings.Count(arg, "o") // -o is followed by the name of an option
		default:
			return i, command
		}
	}
	return 0, false
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

// powerShellIndex returns the index of the script in pwsh -Command SCRIPT. PowerShell joins several
// arguments after -Command, so the script must be the last one.
func powerShellIndex(argv []string) (int, bool) {
	if len(argv) < 3 {
		return 0, false
	}
	name := strings.ToLower(path.Base(strings.ReplaceAll(argv[0], `\`, "/")))
	switch strings.TrimSuffix(name, ".exe") {
	case "pwsh", "powershell":
	default:
		return 0, false
	}
	last := len(argv) - 1
	for i, arg := range argv[1:last] {
		if option := strings.ToLower(arg); len(option) > 1 && strings.HasPrefix("-command", option) {
			return last, i+2 == last
		}
	}
	return 0, false
}

// shellQuote quotes s as one word for a POSIX shell.
func shellQuote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
