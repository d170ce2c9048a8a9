package local

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strings"
)

const (
	namePrefix = "dlite-"
	nameLength = len(namePrefix) + 12 + 1 + 16
)

// newName names what belongs to a transaction. The hash lets an operator find
// it; the random part keeps two attempts at one transaction apart, also when two
// delegates share this machine.
func newName(transaction string) string {
	sum := sha256.Sum256([]byte(transaction))
	return namePrefix + hex.EncodeToString(sum[:6]) + "-" + randomHex(8)
}

// isName reports whether s is a name that newName made, so that nothing else is
// ever removed.
func isName(s string) bool {
	if len(s) != nameLength || !strings.HasPrefix(s, namePrefix) {
		return false
	}
	hash, random, ok := strings.Cut(s[len(namePrefix):], "-")
	return ok && len(hash) == 12 && isHex(hash) && isHex(random)
}

// isOurs reports whether s is such a name or begins with one.
func isOurs(s string) bool {
	return len(s) >= nameLength && isName(s[:nameLength]) && (len(s) == nameLength || s[nameLength] == '-')
}

func isHex(s string) bool {
	return strings.Trim(s, "0123456789abcdef") == ""
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails, says its documentation
	return hex.EncodeToString(b)
}

// slug turns an id into something that names a file, a container or a host.
func slug(id string) string {
	s := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, id)
	if len(s) > 32 {
		s = s[:32]
	}
	if s = strings.Trim(s, "-"); s == "" {
		return "x"
	}
	return s
}

// uniqueSlug is slug for ids that must not be confused.
func uniqueSlug(id string) string {
	sum := sha256.Sum256([]byte(id))
	return slug(id) + "-" + hex.EncodeToString(sum[:4])
}

// variableName turns a name into the part of a variable's name.
func variableName(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		case r >= 'a' && r <= 'z':
			return r + 'A' - 'a'
		}
		return '_'
	}, name)
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
