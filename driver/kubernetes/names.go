package kubernetes

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"

	"github.com/delegate-io/dlite/internal/recorded"
)

// slugLength limits the slug of an id, so that the whole name fits into 63 bytes.
const slugLength = 40

// labelValue returns a hash of a value, which is valid in a label.
func labelValue(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

// hostName turns the name of a background step into a host name: a slug that keeps dots.
func hostName(name string) string {
	labels := strings.Split(name, ".")
	for i, label := range labels {
		labels[i] = recorded.Slug(label, 63)
	}
	return strings.Join(labels, ".")
}

// plainName matches names that a hosts file can have. Kubernetes refuses some of them as
// aliases of a pod: those with an underscore.
var plainName = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?$`)

// hostNames returns the names by which other steps reach a background step: its host name and,
// if a hosts file can have it, the name itself.
func hostNames(name string) []string {
	slug, plain := hostName(name), strings.ToLower(name)
	if plain == slug || !plainName.MatchString(plain) {
		return []string{slug}
	}
	return []string{slug, plain}
}

func newSignal() chan struct{} { return make(chan struct{}) }
