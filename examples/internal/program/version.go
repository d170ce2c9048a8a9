// Package program contains the code that the bundled programs share: commands, the version,
// and settings files.
package program

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// A release build sets release, such as v1.2.3, and the hash of its commit: internal/release.
var release, revision string

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
	commit := ""
	if hash := builtFrom(); hash != "" {
		commit = "revision " + hash + ", "
	}
	return fmt.Sprintf("%s %s (%s%s, %s/%s)", name, Version(), commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// builtFrom returns the short hash of the commit that the program was built from, with "-dirty" if the working tree of a
// release had changes, or "".
func builtFrom() string {
	hash := revision
	if info, ok := debug.ReadBuildInfo(); ok && hash == "" {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				hash = s.Value
			}
		}
	}
	hash, changed := strings.CutSuffix(hash, "-dirty")
	hash = fmt.Sprintf("%.12s", hash)
	if changed {
		hash += "-dirty"
	}
	return hash
}
