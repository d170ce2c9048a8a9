package process

import (
	"os"
	"runtime"
	"slices"
)

// Environment returns the variables of the delegate that a process inherits. They name the programs,
// the home directory and the locale. The configuration of the delegate is not among them.
func Environment() map[string]string {
	names := []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE", "TZ"}
	if runtime.GOOS == "windows" {
		names = []string{"PATH", "PATHEXT", "SystemRoot", "SystemDrive", "windir", "ComSpec", "TEMP", "TMP",
			"USERPROFILE", "USERNAME", "APPDATA", "LOCALAPPDATA", "ProgramData", "ProgramFiles", "ProgramFiles(x86)",
			"PROCESSOR_ARCHITECTURE", "NUMBER_OF_PROCESSORS", "PSModulePath"}
	}
	env := map[string]string{}
	for _, n := range names {
		if v, ok := os.LookupEnv(n); ok {
			env[n] = v
		}
	}
	if env["PATH"] == "" && runtime.GOOS != "windows" {
		env["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	return env
}

// List returns variables in the form NAME=value, sorted.
func List(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	return list
}
