package engine

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
)

// maxTimeout bounds time-outs and intervals.
const maxTimeout = 366 * 24 * time.Hour

// ParseTimeout reads a time such as 30s, 10m, "1h 30m" or 1w. The units are s, m, h, d and w. An
// empty text is 0.
func ParseTimeout(text string) (time.Duration, error) {
	units := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour, 'w': 7 * 24 * time.Hour}
	var sum time.Duration
	rest := strings.TrimSpace(text)
	for rest != "" {
		digits := 0
		for digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9' {
			digits++
		}
		if digits == 0 || digits > 9 || digits == len(rest) || units[rest[digits]] == 0 {
			return 0, fmt.Errorf("%q is not a time: write for example 30s, 10m, 1h 30m or 1d", text)
		}
		n, _ := strconv.ParseInt(rest[:digits], 10, 64)
		if n > int64(maxTimeout/units[rest[digits]]) {
			return 0, fmt.Errorf("%q is too long: at most %d days are possible", text, maxTimeout/(24*time.Hour))
		}
		sum += time.Duration(n) * units[rest[digits]]
		rest = strings.TrimLeft(rest[digits+1:], " ")
	}
	if sum > maxTimeout {
		return 0, fmt.Errorf("%q is too long: at most %d days are possible", text, maxTimeout/(24*time.Hour))
	}
	return sum, nil
}

// timeout renders a field that holds a time. Nil is 0.
func (t *turn) timeout(n *Node, field *definition.Node) (time.Duration, error) {
	if field == nil || field.Value == nil {
		return 0, nil
	}
	value, err := t.fieldText(n, "timeout", field)
	if err != nil {
		return 0, err
	}
	limit, err := ParseTimeout(value)
	if err != nil {
		return 0, fmt.Errorf("%s: timeout: %w", at(field.Position), err)
	}
	return limit, nil
}
