package handover

import (
	"path"
	"slices"
	"strings"
)

// AppendReadout makes the shell of argv write the variables in names to file after its script, as
// NAME=value, each followed by a zero byte. If argv is not a shell with a script, it returns argv and
// false.
//
// The exit code of the script does not change, even if the script calls exit: an EXIT trap before the
// script and a call after it do the same. The shell prints nothing, even under set -x. No value gets
// on a command line, because printf is a builtin of these shells.
func AppendReadout(argv, names []string, file string) ([]string, bool) {
	i, ok := scriptIndex(argv)
	if !ok {
		return argv, false
	}
	var b strings.Builder
	b.WriteString(`__dlite_read() { __dlite_rc=$?; { set +x; } 2>/dev/null; { `)
	for _, name := range names {
		// ${NAME+x} works for unset variables, also under set -u.
		b.WriteString(`if [ -n "${` + name + `+x}" ]; then printf '%s=%s\0' ` + name + ` "${` + name + `}"; fi; `)
	}
	b.WriteString(`} >|` + shellQuote(file) + ` 2>/dev/null || :; return "$__dlite_rc"; }; trap __dlite_read EXIT; `)
	// The prefix is on the first line of the script, so its line numbers do not change. The empty line
	// keeps a trailing backslash from joining the call to the script.
	b.WriteString(argv[i])
	b.WriteString("\n\n__dlite_read\n")
	out := slices.Clone(argv)
	out[i] = b.String()
	return out, true
}

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

// shellQuote quotes s as one word for a POSIX shell.
func shellQuote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// parseReadout reads the file that the script of AppendReadout wrote. It skips an incomplete last
// entry.
func parseReadout(text string) map[string]string {
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
