package steps

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"

	"github.com/delegate-io/dlite/internal/recorded"
)

// The kinds of resources that the driver records.
const (
	KindDirectory  = "directory"
	KindHostDir    = "host-directory"
	KindParent     = "host-parent" // a directory above a host directory; removed only if empty
	KindNetwork    = "network"
	KindContainer  = "container"
	KindVolume     = "volume" // of a container
	KindMount      = "mount"  // on the directory of a volume in memory
	KindProcess    = "process"
	KindSupervisor = "supervisor"    // of the host steps of a transaction
	KindGroup      = "control-group" // of all processes of a transaction
)

// IsOurs reports whether s is the name of a transaction or begins with one.
func IsOurs(s string) bool {
	const n = recorded.NameLength
	return len(s) >= n && recorded.IsName(s[:n]) && (len(s) == n || s[n] == '-')
}

// Slug converts an id to the name of a file, a container or a host.
func Slug(id string) string { return recorded.Slug(id, 32) }

// UniqueSlug is a slug that differs for different ids.
func UniqueSlug(id string) string {
	sum := sha256.Sum256([]byte(id))
	return Slug(id) + "-" + hex.EncodeToString(sum[:4])
}

// Below reports whether path is dir or inside it, by the names alone, and returns the relative path.
func Below(dir, path string) (string, bool) {
	rel, err := filepath.Rel(dir, path)
	if err != nil || !filepath.IsLocal(rel) {
		return "", false
	}
	return rel, true
}
