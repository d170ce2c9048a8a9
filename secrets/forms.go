package secrets

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
)

// formMaker makes the texts by which values give themselves away.
type formMaker struct {
	minLine int
	plain   bool // the values by themselves, for comparison
	out     texts

	group   int // the forms from here on are of one text
	scratch []byte
}

// grow makes room for the forms of values, as many as they usually have.
func (m *formMaker) grow(values []string) {
	number, size := 0, 0
	for _, v := range values {
		n := 14
		if bitsOf(v) != 0 {
			n = 26
		}
		number += n
		size += n * len(v) * 3 / 2
	}
	m.out.ends = slices.Grow(m.out.ends, number)
	m.out.bytes = slices.Grow(m.out.bytes, size)
}

// forms adds the forms of a value, the value itself among them.
func (m *formMaker) forms(value string) {
	if m.plain {
		m.any(value)
		return
	}
	m.every(value)
	if !strings.ContainsAny(value, "\r\n") {
		return
	}
	lf := lineEnds.Replace(value)
	for _, end := range []string{"\n", "\r\n"} {
		if v := strings.ReplaceAll(lf, "\n", end); v != value {
			m.every(v)
		}
	}
	// What terminals make of them.
	m.group = m.out.len()
	m.add(strings.ReplaceAll(lf, "\n", "\r"))
	m.add(strings.ReplaceAll(lf, "\n", "\r\r\n"))
	for line := range strings.SplitSeq(lf, "\n") {
		if line = strings.TrimSpace(line); longEnough(line, m.minLine, 8) {
			m.escapes(line)
		}
	}
}

var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// every adds a text and everything that is written in its place.
func (m *formMaker) every(v string) {
	m.escapes(v)
	m.scratch = append(append(m.scratch[:0], 0, 0), v...)
	m.base64(len(v))
	m.hex(len(v))
}

// any adds a form.
func (m *formMaker) any(text string) {
	m.out.bytes = append(m.out.bytes, text...)
	m.out.end()
}

// add adds a form, unless the group has it.
func (m *formMaker) add(text string) {
	m.out.bytes = append(m.out.bytes, text...)
	m.end()
}

// end adds what has been appended to the last form's bytes as another one, unless
// the group has it.
func (m *formMaker) end() {
	form := m.out.bytes[m.out.begin(m.out.len()):]
	for i := m.group; i < m.out.len(); i++ {
		if bytes.Equal(m.out.at(i), form) {
			m.out.drop()
			return
		}
	}
	m.out.end()
}

// base64 adds the encodings of the last size bytes of scratch, before which there
// are two more, by themselves, and those of their characters that they alone
// decide when they begin at the first, second or third byte of a group.
func (m *formMaker) base64(size int) {
	n := len(m.scratch)
	for lead := range 3 {
		m.scratch = base64.StdEncoding.AppendEncode(m.scratch[:n], m.scratch[2-lead:n])
		enc := m.scratch[n:]
		m.base64At(lead, size, enc)
		foreign := false
		for i, b := range enc {
			switch b {
			case '+':
				enc[i], foreign = '-', true
			case '/':
				enc[i], foreign = '_', true
			}
		}
		if foreign {
			m.base64At(lead, size, enc)
		}
	}
	m.scratch = m.scratch[:n]
}

// base64At adds what is found of an encoding in which size bytes follow lead others.
func (m *formMaker) base64At(lead, size int, padded []byte) {
	end := bytes.TrimRight(padded, "=")
	// The first characters hold bits of what is before the value.
	from := (lead*8 + 5) / 6
	// The last one holds bits of what is after it, unless the value ends a group.
	to := (lead + size) * 8 / 6
	// A form of few characters is found everywhere by accident.
	if to-from >= 6 {
		m.out.add(end[from:to])
	}
	if lead == 0 || len(end)-from >= 6 {
		// The value at the end of the encoded text: the rest is padding.
		if to < len(end) || to-from < 6 {
			m.out.add(end[from:])
		}
		if len(end) < len(padded) {
			m.out.add(padded[from:])
		}
	}
	if lead == 0 {
		m.wrapped(padded, 64)
		m.wrapped(padded, 76)
	}
}

// wrapped adds an encoding's whole and its lines when it is wrapped.
func (m *formMaker) wrapped(text []byte, width int) {
	if len(text) <= width {
		return
	}
	for _, end := range []string{"\n", "\r\n"} {
		for i := 0; i < len(text); i += width {
			if i > 0 {
				m.out.bytes = append(m.out.bytes, end...)
			}
			m.out.bytes = append(m.out.bytes, text[i:min(i+width, len(text))]...)
		}
		m.out.end()
	}
	for l := range slices.Chunk(text, width) {
		if len(l) >= 16 {
			m.out.add(l)
		}
	}
}

// hex adds the hexadecimal digits of the last size bytes of scratch, in either
// case, unless so few that numbers and checksums have them by accident.
func (m *formMaker) hex(size int) {
	if size < 4 {
		return
	}
	n := len(m.scratch)
	m.scratch = hex.AppendEncode(m.scratch, m.scratch[n-size:])
	digits := m.scratch[n:]
	m.out.add(digits)
	m.wrapped(digits, 60) // as xxd -p does
	letters := false
	for i, d := range digits {
		if d >= 'a' {
			digits[i], letters = d-'a'+'A', true
		}
	}
	if letters {
		m.out.add(digits)
	}
	m.scratch = m.scratch[:n]
}
