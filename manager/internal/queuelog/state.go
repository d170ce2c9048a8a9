package queuelog

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Statuses of an init. Every other status means that the init has ended.
const (
	Queued  = "QUEUED"
	Running = "RUNNING"
)

// State is the known state of a stage.
type State struct {
	// Status is the status of the init: [Queued] until a delegate has taken it,
	// [Running] until it has ended, and then another value, such as "SUCCESS" or
	// "ABORTED".
	Status string
	// Place counts from 1 while the stage is queued. 0 means unknown.
	Place int
	// Reason is the reason why the stage is queued, or why it ended in the queue. It
	// may be empty.
	Reason string
	// Since is the time at which the stage began to wait.
	Since time.Time
	// Delegate is the name of the delegate that has taken the stage. It may be empty.
	Delegate string
}

// maxText bounds a line, in bytes.
const maxText = 1000

// queuedText returns the line for a waiting stage.
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

// takenText returns the line for a stage that a delegate has taken.
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

// endedText returns the line for a stage that ended in the queue.
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

// waited returns the waiting time in whole seconds. It is empty if the time is unknown
// or less than two seconds.
func waited(s State, now time.Time) string {
	d := now.Sub(s.Since).Truncate(time.Second)
	if s.Since.IsZero() || d < 2*time.Second {
		return ""
	}
	return d.String()
}

// clean returns the text as one line of limited length.
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
