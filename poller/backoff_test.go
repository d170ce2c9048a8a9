package poller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// C4: each pause is random, between half of its bound and the bound, and the bound
// doubles up to the longest one.
func TestPausesDoubleUpToTheLongest(t *testing.T) {
	t.Parallel()
	for range 100 {
		b := newBackOff(200*time.Millisecond, 30*time.Second)
		for bound := 200 * time.Millisecond; ; bound = min(2*bound, 30*time.Second) {
			d := b.NextBackOff()
			assert.InDelta(t, float64(bound)*3/4, float64(d), float64(bound)/4+2)
			if bound == 30*time.Second {
				break
			}
		}
		b.Reset()
		assert.LessOrEqual(t, b.NextBackOff(), 200*time.Millisecond)
	}
}
