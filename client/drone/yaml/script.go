package yaml

import (
	"regexp"
	"strings"

	"github.com/delegate-io/dlite/task/stage"
)

// posixShell returns the command line of commands for a POSIX shell: it prints each command
// before it runs it, and ends with the first that fails.
func posixShell(commands []string, prolog string) stage.Run {
	var b strings.Builder
	b.WriteString(prolog)
	b.WriteString("set -e\n")
	for _, command := range commands {
		b.WriteString("printf '%s\\n' " + shellQuote("+ "+command) + "\n" + command + "\n")
	}
	return stage.Run{Entrypoint: []string{"/bin/sh", "-c"}, Command: []string{b.String()}}
}

func shellQuote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// hostProlog sets the variables with paths that only the driver knows.
func hostProlog(path string) string {
	prolog := `export DRONE_WORKSPACE="$DLITE_WORKSPACE" DRONE_HOME="$DLITE_WORKSPACE"
export HOME="$DLITE_VOLUME_DRONE_HOME" HOMEPATH="$DLITE_VOLUME_DRONE_HOME" USERPROFILE="$DLITE_VOLUME_DRONE_HOME"
`
	if path != "" {
		// Drone expands variables in PATH, and in no other variable.
		prolog += `export PATH="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "`", "\\`", "$(", `\$(`).Replace(path) + "\"\n"
	}
	return prolog
}

// powerShell returns the command line of commands for PowerShell.
func powerShell(commands []string, prolog string) stage.Run {
	var b strings.Builder
	b.WriteString(prolog)
	b.WriteString("$ErrorActionPreference = 'Stop'\n")
	for _, command := range commands {
		b.WriteString("Write-Output " + powerQuote("+ "+command) + "\n" + command + "\nif ($LastExitCode -gt 0) { exit $LastExitCode }\n")
	}
	return stage.Run{Entrypoint: []string{"powershell", "-NoProfile", "-NonInteractive", "-Command"}, Command: []string{b.String()}}
}

func powerQuote(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

var pathVariable = regexp.MustCompile(`\$\{?(\w+)\}?`)

func windowsProlog(path string) string {
	prolog := `$Env:DRONE_WORKSPACE = $Env:DLITE_WORKSPACE; $Env:DRONE_HOME = $Env:DLITE_WORKSPACE
$Env:HOME = $Env:DLITE_VOLUME_DRONE_HOME; $Env:HOMEPATH = $Env:HOME; $Env:USERPROFILE = $Env:HOME
`
	if path != "" {
		quoted := strings.NewReplacer("`", "``", `"`, "`\"", "$(", "`$(").Replace(path)
		prolog += `$Env:PATH = "` + pathVariable.ReplaceAllString(quoted, "$${Env:$1}") + "\"\n"
	}
	return prolog
}
