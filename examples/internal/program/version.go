// Package program contains the code that the bundled programs share: commands, the version,
// and settings files.
package program

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// release is set by a release build: -ldflags="-X github.com/delegate-io/dlite/examples/internal/program.release=v1.2.3".
var release = ""

// Version returns the version of the program: the release, or else the version that
// the Go command recorded, or "devel".
func Version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// Describe returns one line for the commands version and --version: the program, its
// version, the revision it was built from, the Go version and the platform.
func Describe(name string) string {
	revision := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = fmt.Sprintf("revision %.12s, ", s.Value)
			}
		}
	}
	return fmt.Sprintf("%s %s (%s%s, %s/%s)", name, Version(), revision, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
