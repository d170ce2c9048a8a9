package kubernetes

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/delegate-io/dlite/internal/recorded"
)

// slugLength leaves room in a name of 63 bytes for what goes around an id.
const slugLength = 40

// labelValue stands for a value that may be anything, in a label.
func labelValue(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

// hostName turns a name of a background step into that of a host: as a slug, with
// its dots.
func hostName(name string) string {
	labels := strings.Split(name, ".")
	for i, label := range labels {
		labels[i] = recorded.Slug(label, 63)
	}
	return strings.Join(labels, ".")
}

func newSignal() chan struct{} { return make(chan struct{}) }
