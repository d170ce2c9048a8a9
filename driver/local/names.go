package local

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"

	"github.com/delegate-io/dlite/internal/recorded"
)

// The kinds of resources that this driver records.
const (
	kindDirectory = "directory"
	kindHostDir   = "host-directory"
	kindParent    = "host-parent" // a folder above one; removed only when empty
	kindNetwork   = "network"
	kindContainer = "container"
	kindVolume    = "volume" // of a container
	kindMount     = "mount"  // on the folder of a volume in memory
	kindProcess   = "process"
	kindGroup     = "control-group" // of all processes of a transaction
)

// isOurs reports whether s is a name of a transaction or begins with one.
func isOurs(s string) bool {
	const n = recorded.NameLength
	return len(s) >= n && recorded.IsName(s[:n]) && (len(s) == n || s[n] == '-')
}

// slug turns an id into something that names a file, a container or a host.
func slug(id string) string { return recorded.Slug(id, 32) }

// uniqueSlug is slug for ids that must not be confused.
func uniqueSlug(id string) string {
	sum := sha256.Sum256([]byte(id))
	return slug(id) + "-" + hex.EncodeToString(sum[:4])
}

// below reports whether path is dir or within it, by name alone, and gives the
// relative path.
func below(dir, path string) (string, bool) {
	rel, err := filepath.Rel(dir, path)
	if err != nil || !filepath.IsLocal(rel) {
		return "", false
	}
	return rel, true
}
