package kubernetes

import (
	"crypto/sha256"
	"encoding/hex"
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

func newSignal() chan struct{} { return make(chan struct{}) }
