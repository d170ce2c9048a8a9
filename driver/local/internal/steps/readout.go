package steps

import (
	"path"
	"slices"
	"strings"
)

// readOut makes the shell of argv write the variables of names to file after
// its script: NAME=value, each ended by a zero byte. It reports false, and
// leaves argv alone, when argv is not a shell with a script.
//
// The script keeps its exit code, also when it calls exit: an EXIT trap set
// before it and a call after it do the same. Nothing is printed, not even under
// set -x, and no value gets on a command line, as printf is part of these
// shells.
func readOut(argv, names []string, file string) ([]string, bool) {
	i, ok := scriptIndex(argv)
	if !ok {
		return argv, false
	}
	var b strings.Builder
	b.WriteString(`__dlite_read() { __dlite_rc=$?; { set +x; } 2>/dev/null; { `)
	for _, name := range names {
		// ${NAME+x} so that neither set -u nor an unset variable matters.
		b.WriteString(`if [ -n "${` + name + `+x}" ]; then printf '%s=%s\0' ` + name + ` "${` + name + `}"; fi; `)
	}
	b.WriteString(`} >|` + shellQuote(file) + ` 2>/dev/null || :; return "$__dlite_rc"; }; trap __dlite_read EXIT; `)
	// All on the script's first line, so that its line numbers stay. The empty
	// line keeps a trailing backslash from swallowing the call.
	b.WriteString(argv[i])
	b.WriteString("\n\n__dlite_read\n")
	out := slices.Clone(argv)
	out[i] = b.String()
	return out, true
}

// scriptIndex finds the script in a shell's argv: sh -c SCRIPT, with other
// options before or around the c.
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
			i += strings.Count(arg, "o") // -o takes the option's name
		default:
			return i, command
		}
	}
	return 0, false
}

// shellQuote makes s one word of a POSIX shell.
func shellQuote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// parseReadOut reads what readOut's script wrote. A last entry without its end
// was cut off and is left out.
func parseReadOut(text string) map[string]string {
	vars := map[string]string{}
	for {
		entry, rest, ok := strings.Cut(text, "\x00")
		if !ok {
			return vars
		}
		if name, value, ok := strings.Cut(entry, "="); ok {
			vars[name] = value
		}
		text = rest
	}
}
