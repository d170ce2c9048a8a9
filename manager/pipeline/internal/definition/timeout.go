package definition

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// The bounds of time-outs.
const (
	shortestTimeout = 10 * time.Second
	longestTimeout  = 10 * 365 * 24 * time.Hour
)

var errTimeout = errors.New("must be a time such as 30s, 10m, 1h 30m, 2d or 1w")

// ParseTimeout returns the duration of a time-out such as 1h 30m. The units are w, d, h, m and s;
// the least is 10s. Empty text is 0, no time-out.
func ParseTimeout(text string) (time.Duration, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return 0, nil
	}
	total, err := parseInterval(text)
	if err != nil {
		return 0, err
	}
	if total < shortestTimeout {
		return 0, fmt.Errorf("%s is too short: the least is %s", quote(text), "10s")
	}
	return total, nil
}

// ParseInterval returns the duration of a wait such as 5s or 1m. It has the syntax of
// a time-out, without its minimum.
func ParseInterval(text string) (time.Duration, error) {
	return parseInterval(strings.TrimSpace(text))
}

func parseInterval(text string) (time.Duration, error) {
	var total time.Duration
	for rest := text; rest != ""; {
		digits := 0
		for digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9' {
			digits++
		}
		if digits == 0 || digits > 10 || digits == len(rest) {
			return 0, fmt.Errorf("%s: %w", quote(text), errTimeout)
		}
		var count time.Duration
		for _, c := range rest[:digits] {
			count = count*10 + time.Duration(c-'0')
		}
		unit := unitOf(rest[digits])
		if unit == 0 {
			return 0, fmt.Errorf("%s: %w", quote(text), errTimeout)
		}
		if count > math.MaxInt64/4/unit {
			return 0, fmt.Errorf("%s is too long: the most is 10 years", quote(text))
		}
		if total += count * unit; total > longestTimeout {
			return 0, fmt.Errorf("%s is too long: the most is 10 years", quote(text))
		}
		rest = strings.TrimLeft(rest[digits+1:], " ")
	}
	if text == "" {
		return 0, fmt.Errorf("the text is empty: %w", errTimeout)
	}
	return total, nil
}

func unitOf(letter byte) time.Duration {
	switch letter {
	case 's':
		return time.Second
	case 'm':
		return time.Minute
	case 'h':
		return time.Hour
	case 'd':
		return 24 * time.Hour
	case 'w':
		return 7 * 24 * time.Hour
	}
	return 0
}

func checkTimeoutText(text string) error {
	_, err := ParseTimeout(text)
	return err
}
