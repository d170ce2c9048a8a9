package process

import "bytes"

// OutputLimit is how many bytes [LimitedOutput] keeps.
const OutputLimit = 64 << 10

// LimitedOutput keeps the first OutputLimit bytes that are written to it.
type LimitedOutput struct {
	b         []byte
	truncated bool
}

// Write never fails.
func (l *LimitedOutput) Write(p []byte) (int, error) {
	room := OutputLimit - len(l.b)
	l.truncated = l.truncated || len(p) > room
	l.b = append(l.b, p[:min(len(p), room)]...)
	return len(p), nil
}

// String returns the complete lines of the output.
func (l *LimitedOutput) String() string {
	if l.truncated {
		return string(l.b[:bytes.LastIndexByte(l.b, '\n')+1])
	}
	return string(l.b)
}
