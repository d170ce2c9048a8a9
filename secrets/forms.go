package secrets

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
)

// formBuilder makes the forms of values: the byte strings that show a value in a text.
type formBuilder struct {
	minLine int
	plain   bool // make no encoded forms
	out     patternList

	group   int // index of the first form of the current text
	scratch []byte
}

// reserve makes room in out for the usual number of forms of values.
func (b *formBuilder) reserve(values []string) {
	number, size := 0, 0
	for _, v := range values {
		n := 14
		if escapeBits(v) != 0 {
			n = 26
		}
		number += n
		size += n * len(v) * 3 / 2
	}
	b.out.ends = slices.Grow(b.out.ends, number)
	b.out.bytes = slices.Grow(b.out.bytes, size)
}

// addForms adds the forms of a value, the value itself included.
func (b *formBuilder) addForms(value string) {
	if b.plain {
		b.addAlways(value)
		return
	}
	b.addEncodings(value)
	if !strings.ContainsAny(value, "\r\n") {
		return
	}
	lf := toLF.Replace(value)
	for _, end := range []string{"\n", "\r\n"} {
		if v := strings.ReplaceAll(lf, "\n", end); v != value {
			b.addEncodings(v)
		}
	}
	// Terminals write these line ends.
	b.group = b.out.len()
	b.add(strings.ReplaceAll(lf, "\n", "\r"))
	b.add(strings.ReplaceAll(lf, "\n", "\r\r\n"))
	for line := range strings.SplitSeq(lf, "\n") {
		if line = strings.TrimSpace(line); longEnough(line, b.minLine, 8) {
			b.addEscapes(line)
		}
	}
}

var toLF = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// addEncodings adds a text and all its encodings.
func (b *formBuilder) addEncodings(v string) {
	b.addEscapes(v)
	b.scratch = append(append(b.scratch[:0], 0, 0), v...)
	b.addBase64(len(v))
	b.addHex(len(v))
}

// addAlways adds a form without looking for duplicates.
func (b *formBuilder) addAlways(text string) {
	b.out.bytes = append(b.out.bytes, text...)
	b.out.finish()
}

// add adds a form, unless the group has it.
func (b *formBuilder) add(text string) {
	b.out.bytes = append(b.out.bytes, text...)
	b.finish()
}

// finish ends the unfinished form in out. It discards the form if the group has it.
func (b *formBuilder) finish() {
	form := b.out.bytes[b.out.begin(b.out.len()):]
	for i := b.group; i < b.out.len(); i++ {
		if bytes.Equal(b.out.at(i), form) {
			b.out.discard()
			return
		}
	}
	b.out.finish()
}

// addBase64 adds the base64 of the last size bytes of scratch, alone and within a
// longer encoded text. Two bytes precede them in scratch: they stand for the bytes
// before the value, which may begin at the first, second or third byte of a base64
// group. Only characters that depend on the value alone belong to a form.
func (b *formBuilder) addBase64(size int) {
	n := len(b.scratch)
	for lead := range 3 {
		b.scratch = base64.StdEncoding.AppendEncode(b.scratch[:n], b.scratch[2-lead:n])
		enc := b.scratch[n:]
		b.addBase64At(lead, size, enc)
		differs := false // in the URL alphabet
		for i, c := range enc {
			switch c {
			case '+':
				enc[i], differs = '-', true
			case '/':
				enc[i], differs = '_', true
			}
		}
		if differs {
			b.addBase64At(lead, size, enc)
		}
	}
	b.scratch = b.scratch[:n]
}

// addBase64At adds the forms in a padded encoding of lead other bytes and size bytes
// of the value.
func (b *formBuilder) addBase64At(lead, size int, padded []byte) {
	end := bytes.TrimRight(padded, "=")
	// The first characters contain bits of the bytes before the value.
	from := (lead*8 + 5) / 6
	// The last character contains bits of the bytes after the value, unless the
	// value ends with a group.
	to := (lead + size) * 8 / 6
	// Shorter forms occur by accident.
	if to-from >= 6 {
		b.out.add(end[from:to])
	}
	if lead == 0 || len(end)-from >= 6 {
		// Here the encoded text ends with the value; padding may follow.
		if to < len(end) || to-from < 6 {
			b.out.add(end[from:])
		}
		if len(end) < len(padded) {
			b.out.add(padded[from:])
		}
	}
	if lead == 0 {
		b.addLines(padded, 64)
		b.addLines(padded, 76)
	}
}

// addLines adds the lines of an encoding that is wrapped at width columns. A program may
// print one of them alone. The whole encoding is found because breaks are ignored.
func (b *formBuilder) addLines(text []byte, width int) {
	if len(text) <= width {
		return
	}
	for line := range slices.Chunk(text, width) {
		if len(line) >= 16 {
			b.out.add(line)
		}
	}
}

// addHex adds the hexadecimal digits of the last size bytes of scratch, in lower and
// upper case. Less than four bytes have none: the digits would occur by accident in
// numbers and checksums.
func (b *formBuilder) addHex(size int) {
	if size < 4 {
		return
	}
	n := len(b.scratch)
	b.scratch = hex.AppendEncode(b.scratch, b.scratch[n-size:])
	digits := b.scratch[n:]
	b.out.add(digits)
	b.addLines(digits, 60) // the format of xxd -p
	letters := false
	for i, d := range digits {
		if d >= 'a' {
			digits[i], letters = d-'a'+'A', true
		}
	}
	if letters {
		b.out.add(digits)
	}
	b.scratch = b.scratch[:n]
}
