// Package retryafter reads the header Retry-After of an answer.
package retryafter

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Parse returns the pause that an answer asks for, in both forms of the header: seconds and
// a date. It returns 0 without the header, for invalid values and for past dates. The caller
// bounds the pause.
func Parse(h http.Header, now time.Time) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if n, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
