package handover

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// AppendReadout makes the interpreter of argv write the variables in names to file after its script, as
// NAME=value, each followed by a zero byte. It knows POSIX shells, Python and PowerShell. If argv is none of
// them with a script, it returns argv and false. The exit code and the line numbers of the script do not
// change, even if the script exits early.
func AppendReadout(argv, names []string, file string) ([]string, bool) {
	out := slices.Clone(argv)
	if i, ok := scriptIndex(argv); ok {
		out[i] = shellReadout(argv[i], names, file)
		return out, true
	}
	if i, ok := pythonIndex(argv); ok && utf8.ValidString(argv[i]) {
		out[i] = pythonReadout(argv[i], names, file)
		return out, true
	}
	if i, ok := powerShellIndex(argv); ok && !powerShellHeader.MatchString(argv[i]) {
		out[i] = powerShellReadout(argv[i], names, file)
		return out, true
	}
	return argv, false
}

// shellReadout adds an EXIT trap before the script and a call after it that do the same. The shell prints
// nothing, even under set -x. No value gets on a command line, because printf is a builtin of these shells.
func shellReadout(script string, names []string, file string) string {
	var b strings.Builder
	b.WriteString(`__dlite_read() { __dlite_rc=$?; { set +x; } 2>/dev/null; { `)
	for _, name := range names {
		// ${NAME+x} works for unset variables, also under set -u.
		b.WriteString(`if [ -n "${` + name + `+x}" ]; then printf '%s=%s\0' ` + name + ` "${` + name + `}"; fi; `)
	}
	b.WriteString(`} >|` + shellQuote(file) + ` 2>/dev/null || :; return "$__dlite_rc"; }; trap __dlite_read EXIT; `)
	// The prefix is on the first line of the script, so its line numbers do not change. The empty line
	// keeps a trailing backslash from joining the call to the script.
	b.WriteString(script)
	b.WriteString("\n\n__dlite_read\n")
	return b.String()
}

// pythonReadout runs the script as a string, so that it may begin with an import from __future__, and
// writes the variables when Python exits.
func pythonReadout(script string, names []string, file string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = strconv.QuoteToASCII(name)
	}
	return `import atexit as __dlite_exit
def __dlite_read(names=[` + strings.Join(quoted, ", ") + `], file=` + strconv.QuoteToASCII(file) + `, vars=globals()):
    with open(file, "wb") as out:
        for name in names:
            if name in vars: out.write((name + "=" + str(vars[name])).encode("utf-8", "surrogateescape") + b"\0")
__dlite_exit.register(__dlite_read)
exec(compile(` + strconv.QuoteToASCII(script) + `, "<string>", "exec"))
`
}

// powerShellHeader matches a script that begins with a statement that must come first.
var powerShellHeader = regexp.MustCompile(`(?i)^(\s|#[^\n]*\n)*(using\s|param\s*\(|#requires\s|\[CmdletBinding)`)

// powerShellReadout writes the variables in a finally block, which also runs after exit. The result of the
// script's last command decides the exit code, as without the block.
func powerShellReadout(script string, names []string, file string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = powerShellQuote(name)
	}
	return `$__dlite_ok = $false; try { ` + script + `
$__dlite_ok = $? } finally { $__dlite_out = ''; foreach ($__dlite_name in ` + strings.Join(quoted, ",") + `) { ` +
		`$__dlite_value = Get-Variable -Name $__dlite_name -ValueOnly -ErrorAction SilentlyContinue; ` +
		`if ($null -ne $__dlite_value) { $__dlite_out += $__dlite_name + '=' + [string]$__dlite_value + [char]0 } }; ` +
		`[IO.File]::WriteAllText(` + powerShellQuote(file) + `, $__dlite_out) }; if (-not $__dlite_ok) { exit 1 }`
}

// powerShellQuote quotes s as a literal string of PowerShell.
func powerShellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

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
