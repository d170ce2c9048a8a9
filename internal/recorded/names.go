package recorded

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	namePrefix = "dlite-"
	// NameLength is how many bytes a name of [NewName] has.
	NameLength = len(namePrefix) + 12 + 1 + 16
)

// NewName names what belongs to a transaction. The hash lets an operator find
// it; the random part keeps two attempts at one transaction apart, also when two
// delegates share a machine or a cluster.
func NewName(transaction string) string {
	sum := sha256.Sum256([]byte(transaction))
	return namePrefix + hex.EncodeToString(sum[:6]) + "-" + RandomHex(8)
}

// IsName reports whether s is a name that [NewName] made, so that nothing else is
// ever removed.
func IsName(s string) bool {
	if len(s) != NameLength || !strings.HasPrefix(s, namePrefix) {
		return false
	}
	hash, random, ok := strings.Cut(s[len(namePrefix):], "-")
	return ok && len(hash) == 12 && isHex(hash) && isHex(random)
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

// RandomHex is as many random bytes, in hexadecimal.
func RandomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails, says its documentation
	return hex.EncodeToString(b)
}

// Slug turns an id into something that names a file, a container, a volume or a
// host: at most limit bytes of a-z, 0-9 and -, with no - at either end. Different
// ids may have one slug, and one with nothing to keep is "x".
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

// VariableName turns a name into the part of a variable's name: in capitals, with
// a _ for what is neither a letter nor a digit of ASCII.
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
