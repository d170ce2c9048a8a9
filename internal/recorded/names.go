package recorded

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	namePrefix = "dlite-"
	// NameLength is the length in bytes of a name of [NewName].
	NameLength = len(namePrefix) + 12 + 1 + 16
)

// NewName returns a new name for the resources of a transaction. The hash lets an operator find the
// transaction. The random part separates two attempts at one transaction, even if two delegates share
// a machine or a cluster.
func NewName(transaction string) string {
	sum := sha256.Sum256([]byte(transaction))
	return namePrefix + hex.EncodeToString(sum[:6]) + "-" + RandomHex(8)
}

// IsName reports whether [NewName] made s. A cleanup removes nothing with another name.
func IsName(s string) bool {
	if len(s) != NameLength || !strings.HasPrefix(s, namePrefix) {
		return false
	}
	hash, random, ok := strings.Cut(s[len(namePrefix):], "-")
	return ok && len(hash) == 12 && isHex(hash) && isHex(random)
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

// RandomHex returns random bytes in hexadecimal.
func RandomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails, according to its documentation
	return hex.EncodeToString(b)
}

// Slug converts an id to the name of a file, a container, a volume or a host: at most limit bytes of
// a-z, 0-9 and -, without - at either end. Different ids may have the same slug. An id without such
// characters gives "x".
func Slug(id string, limit int) string {
	s := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, id)
	if len(s) > limit {
		s = s[:limit]
	}
	if s = strings.Trim(s, "-"); s == "" {
		return "x"
	}
	return s
}

// VariableName converts a name to a part of a variable's name: in upper case, with _ for every
// character other than ASCII letters and digits.
func VariableName(name string) string {
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
