package logger

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strconv"
	"time"
	"unicode/utf8"
)

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

// posPrefix is what every encoded line begins with. The number follows.
const posPrefix = `{"level":"info","pos":`

// appendLine appends a line as JSON, with a newline behind it and none inside;
// now is from a stamp. It is what encoding/json would make of a Line, at several times the speed:
// this is done for every line of every step.
func appendLine(dst []byte, pos int64, out, now []byte) []byte {
	dst = append(dst, posPrefix...)
	dst = strconv.AppendInt(dst, pos, 10)
	dst = append(dst, `,"out":`...)
	dst = appendString(dst, out)
	dst = append(dst, `,"time":"`...)
	dst = append(dst, now...)
	return append(dst, "\",\"args\":null}\n"...)
}

// appendString appends text as a JSON string. Bytes that are not UTF-8 become
// U+FFFD, one for each.
func appendString(dst, text []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	plain := 0 // where the text begins that needs no escape
	for i := asciiText(text); i < len(text); i += asciiText(text[i:]) {
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

// asciiText is how many bytes from the first one on are ASCII and need no escape.
// It looks at eight of them at a time.
func asciiText(b []byte) int {
	i := 0
	for ; len(b)-i >= 8; i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		quote, slash := x^('"'*ones), x^('\\'*ones)
		// Each term has the high bit of the first byte that it is about set, and
		// of none before that.
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

// stamp writes times as lines have them. Of two within a second it formats the
// fraction alone anew.
type stamp struct {
	second int64
	text   []byte
	whole  int // length of the text up to the fraction; 0 before the first
}

// format is t in UTC. The text is good until the next call.
func (s *stamp) format(t time.Time) []byte {
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

// posOf is the pos of a line that appendLine made.
func posOf(line []byte) int64 {
	digits := line[len(posPrefix):]
	n, err := strconv.ParseInt(string(digits[:bytes.IndexByte(digits, ',')]), 10, 64)
	if err != nil {
		panic("logger: a line without pos") // made by nobody but us
	}
	return n
}
