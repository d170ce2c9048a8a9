package queuelog

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// The statuses that matter here. Any other one means that the init has ended.
const (
	Queued  = "QUEUED"
	Running = "RUNNING"
)

// State is what is known of a stage.
type State struct {
	// Status is the init's: [Queued] until a delegate has taken it, [Running] until
	// it has ended, and then something else, such as "SUCCESS" or "ABORTED".
	Status string
	// Place counts from 1 while the stage is queued; 0 is unknown.
	Place int
	// Reason says why it is queued, or why it was ended in the queue. May be empty.
	Reason string
	// Since is when it began to wait.
	Since time.Time
	// Delegate is the name of who has taken it. May be empty.
	Delegate string
}

// maxText bounds a line, in bytes.
const maxText = 1000

// queuedText is the line of a stage that waits.
func queuedText(s State, again bool, now time.Time) string {
	var b strings.Builder
	b.WriteString("queued")
	if again {
		b.WriteString(" again")
	}
	if w := waited(s, now); w != "" {
		b.WriteString(" for " + w)
	}
	if s.Place > 0 {
		fmt.Fprintf(&b, ": place %d", s.Place)
	}
	if s.Reason != "" {
		b.WriteString(": " + s.Reason)
	}
	return clean(b.String())
}

// takenText is the line of a stage that waits no longer.
func takenText(s State, now time.Time) string {
	text := "taken by a delegate"
	if s.Delegate != "" {
		text = "taken by delegate " + s.Delegate
	}
	if w := waited(s, now); w != "" {
		text += " after " + w
	}
	return clean(text)
}

// endedText is the line of a stage that no delegate has taken.
func endedText(s State, now time.Time) string {
	text := s.Status + " in the queue"
	if w := waited(s, now); w != "" {
		text += " after " + w
	}
	if s.Reason != "" {
		text += ": " + s.Reason
	}
	return clean(text)
}

// waited is a time in whole seconds, empty where it is less than two or not known.
func waited(s State, now time.Time) string {
	d := now.Sub(s.Since).Truncate(time.Second)
	if s.Since.IsZero() || d < 2*time.Second {
		return ""
	}
	return d.String()
}

// clean makes one line of a text.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "..."
	}
	return text
}
