package upgrade

import (
	"fmt"

	"golang.org/x/mod/semver"
)

// maxVersion is the longest version, in bytes.
const maxVersion = 64

// checkVersion refuses a text that is not a version such as v1.2.3 or v1.2.3-rc.1. A version becomes part of paths.
func checkVersion(v string) error {
	if len(v) > maxVersion || !semver.IsValid(v) || semver.Canonical(v) != v {
		return fmt.Errorf("%.80q is not a version of the form v1.2.3", v)
	}
	return nil
}

// Older reports whether version a precedes b. A version that is not of the form v1.2.3 precedes all others.
func Older(a, b string) bool { return semver.Compare(a, b) < 0 }
