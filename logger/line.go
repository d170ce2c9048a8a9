package logger

import "time"

// Line is a line of a step's output as a log service knows it (PROTOCOL 4).
type Line struct {
	// Level is "info".
	Level string `json:"level"`
	// Pos counts the lines of a writer from 0.
	Pos int64 `json:"pos"`
	// Out is the text, with its newline unless that was to be trimmed. A line
	// that was too long continues in the next one; it has no newline then.
	Out string `json:"out"`
	// Time is when the line was complete, in UTC, with nanoseconds on the wire.
	Time time.Time `json:"time"`
	// Args are fields of a structured line; usually nil.
	Args map[string]string `json:"args"`
}
