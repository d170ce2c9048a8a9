package jsonscan

import "testing"

// plainEnd tests eight bytes at a time: a match in one byte must not hide another.
func TestPlainEndFindsTheFirstSpecialByte(t *testing.T) {
	t.Parallel()
	slow := func(b []byte) int {
		for i, c := range b {
			if c == '"' || c == '\\' || c < ' ' {
				return i
			}
		}
		return len(b)
	}
	special := []byte{0, 1, 0x1f, ' ', '!', '"', '#', '[', '\\', ']', 0x7f, 0x80, 0x9f, 0xa0, 0xa2, 0xdc, 0xff}
	for at := range 12 {
		for _, c := range special {
			for _, d := range special {
				b := []byte("0123456789abcdef")
				b[at], b[at+1] = c, d
				if plainEnd(b, 0) != slow(b) {
					t.Fatalf("%q: %d instead of %d", b, plainEnd(b, 0), slow(b))
				}
			}
		}
	}
}
