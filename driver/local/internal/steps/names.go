package steps

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"

	"github.com/delegate-io/dlite/internal/recorded"
)

// The kinds of resources that this driver records.
const (
	KindDirectory = "directory"
	KindHostDir   = "host-directory"
	KindParent    = "host-parent" // a folder above one; removed only when empty
	KindNetwork   = "network"
	KindContainer = "container"
	KindVolume    = "volume" // of a container
	KindMount     = "mount"  // on the folder of a volume in memory
	KindProcess   = "process"
	KindGroup     = "control-group" // of all processes of a transaction
)

// IsOurs reports whether s is a name of a transaction or begins with one.
func IsOurs(s string) bool {
	const n = recorded.NameLength
	return len(s) >= n && recorded.IsName(s[:n]) && (len(s) == n || s[n] == '-')
}

// slug turns an id into something that names a file, a container or a host.
func Slug(id string) string { return recorded.Slug(id, 32) }

// UniqueSlug is slug for ids that must not be confused.
func UniqueSlug(id string) string {
	sum := sha256.Sum256([]byte(id))
	return Slug(id) + "-" + hex.EncodeToString(sum[:4])
}

// below reports whether path is dir or within it, by name alone, and gives the
// relative path.
func Below(dir, path string) (string, bool) {
	rel, err := filepath.Rel(dir, path)
	if err != nil || !filepath.IsLocal(rel) {
		return "", false
	}
	return rel, true
}
