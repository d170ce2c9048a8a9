package logger

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strconv"
	"time"
	"unicode/utf8"
)

// Line is a line of a step's output, as it travels (docs/protocol.md 4).
type Line struct {
	// Level is "info".
	Level string `json:"level"`
	// Pos is the number of the line within its writer, from 0.
	Pos int64 `json:"pos"`
	// Out is the text with its newline, unless the configuration trims it. A line
	// that is too long continues in the next one, and has no newline.
	Out string `json:"out"`
	// Time is the time at which the line was complete, in UTC with nanoseconds.
	Time time.Time `json:"time"`
	// Args are the fields of a structured line. Usually nil.
	Args map[string]string `json:"args"`
}

// posPrefix begins every encoded line. The position follows.
const posPrefix = `{"level":"info","pos":`

// appendLine appends a line as JSON and a newline. now comes from a timeFormatter.
// The result equals that of encoding/json for a Line. appendLine is several times
// faster, and runs for every line of every step.
func appendLine(dst []byte, pos int64, out, now []byte) []byte {
	dst = append(dst, posPrefix...)
	dst = strconv.AppendInt(dst, pos, 10)
	dst = append(dst, `,"out":`...)
	dst = appendString(dst, out)
	dst = append(dst, `,"time":"`...)
	dst = append(dst, now...)
	return append(dst, "\",\"args\":null}\n"...)
}

// appendString appends text as a JSON string. It replaces each byte that is not
// UTF-8 with U+FFFD.
func appendString(dst, text []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	plain := 0 // start of the text that needs no escape and is not appended yet
	for i := asciiPrefix(text); i < len(text); i += asciiPrefix(text[i:]) {
		c := text[i]
		size := 1
		if c >= utf8.RuneSelf {
			var r rune
			if r, size = utf8.DecodeRune(text[i:]); r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
		}
		dst = append(dst, text[plain:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			if c < ' ' {
				dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			} else {
				dst = append(dst, `\ufffd`...)
			}
		}
		i += size
		plain = i
	}
	return append(append(dst, text[plain:]...), '"')
}

const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// asciiPrefix returns the number of leading bytes that are ASCII and need no escape.
// It examines eight bytes at a time.
func asciiPrefix(b []byte) int {
	i := 0
	for ; len(b)-i >= 8; i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		quote, slash := x^('"'*ones), x^('\\'*ones)
		// Each term sets the high bit of the first byte that it matches, and of no
		// byte before.
		found := ((quote-ones)&^quote | (slash-ones)&^slash | (x-' '*ones)&^x | x) & highs
		if found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c == '"' || c == '\\' || c < ' ' || c >= utf8.RuneSelf {
			break
		}
	}
	return i
}

// timeFormatter formats the times of lines. Within a second it formats only the
// fraction again.
type timeFormatter struct {
	second int64
	text   []byte
	whole  int // length of the text before the fraction; 0 before the first call
}

// format returns t in UTC. The result is valid until the next call.
func (s *timeFormatter) format(t time.Time) []byte {
	if s.whole == 0 || t.Unix() != s.second {
		s.second = t.Unix()
		s.text = t.UTC().AppendFormat(s.text[:0], "2006-01-02T15:04:05")
		s.whole = len(s.text)
	}
	s.text = s.text[:s.whole]
	if n := t.Nanosecond(); n > 0 {
		var digits [10]byte
		digits[0] = '.'
		for i := 9; i > 0; i-- {
			digits[i] = byte('0' + n%10)
			n /= 10
		}
		s.text = append(s.text, bytes.TrimRight(digits[:], "0")...)
	}
	s.text = append(s.text, 'Z')
	return s.text
}

// posOf returns the position in a line of appendLine.
func posOf(line []byte) int64 {
	n, ok := parsePos(line)
	if !ok {
		panic("logger: an encoded line has no position") // only appendLine encodes lines
	}
	return n
}

// parsePos is posOf for a line that may be damaged.
func parsePos(line []byte) (pos int64, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(posPrefix))
	digits, _, found := bytes.Cut(rest, []byte(","))
	if !ok || !found {
		return 0, false
	}
	n, err := strconv.ParseInt(string(digits), 10, 64)
	return n, err == nil && n >= 0
}
