package retryafter_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/delegate-io/dlite/internal/retryafter"
)

func TestBothFormsOfTheHeaderAreReadAndOthersIgnored(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"":                              0,
		"7":                             7 * time.Second,
		" 7 ":                           7 * time.Second,
		"-1":                            0,
		"1.5":                           0,
		"99999999999999999999":          0,
		"Fri, 02 Jan 2026 03:05:05 GMT": time.Minute,
		"Fri, 02 Jan 2026 03:03:05 GMT": 0,
		"soon":                          0,
	} {
		assert.Equal(t, want, retryafter.Parse(http.Header{"Retry-After": {value}}, now), "%q", value)
	}
	assert.Zero(t, retryafter.Parse(http.Header{}, now))
}
