package expression

import (
	"errors"
	"fmt"
	"time"
)

// moment is a date, or a date with a time.
type moment struct {
	at   time.Time
	date bool
}

// String returns the text in the form of ISO 8601.
func (m moment) String() string {
	if m.date {
		return m.at.Format("2006-01-02")
	}
	return m.at.Format("2006-01-02T15:04:05.999999999")
}

// units are the units of plusDays, minusDays and so on. Days and larger units are 0.
var units = map[string]time.Duration{
	"Years": 0, "Months": 0, "Weeks": 0, "Days": 0,
	"Hours": time.Hour, "Minutes": time.Minute, "Seconds": time.Second,
}

const maxAmount = 1_000_000_000

// plus returns the moment after n units. A day that the month does not have becomes the last day
// of the month.
func (m moment) plus(n int64, unit string) (moment, error) {
	if n > maxAmount || n < -maxAmount {
		return m, fmt.Errorf("%d is too much: at most %d", n, maxAmount)
	}
	d := units[unit]
	if m.date && d != 0 {
		return m, fmt.Errorf("a date has no %s: use currentTime", unit)
	}
	switch unit {
	case "Years", "Months":
		months := n
		if unit == "Years" {
			months *= 12
		}
		first := m.at.AddDate(0, 0, 1-m.at.Day()).AddDate(0, int(months), 0)
		last := first.AddDate(0, 1, -1).Day()
		m.at = first.AddDate(0, 0, min(m.at.Day(), last)-1)
	case "Weeks":
		m.at = m.at.AddDate(0, 0, int(7*n))
	case "Days":
		m.at = m.at.AddDate(0, 0, int(n))
	default:
		if n > int64(1<<62/d) || n < -int64(1<<62/d) {
			return m, errors.New("the date is out of range")
		}
		m.at = m.at.Add(time.Duration(n) * d)
	}
	if y := m.at.Year(); y < 0 || y > 9999 {
		return m, errors.New("the date is out of range: the year must be from 0 to 9999")
	}
	return m, nil
}
