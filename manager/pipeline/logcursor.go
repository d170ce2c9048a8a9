package pipeline

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// logCursor is a place in the logs of a run. A log has the number of the start of its stage or step. The text form
// is a list of numbers that were read to their end, and of numbers with their next line: 1-12,14:300,16.
type logCursor struct {
	done []span        // sorted, and not next to each other
	next map[int]int64 // of logs that were read in part
}

// span is the numbers of logs from first to last.
type span struct{ first, last int }

const (
	// mostPlaces bounds the elements of a cursor. A stream follows fewer logs at a time.
	mostPlaces = 10_000
	// mostNumber bounds the numbers in a cursor.
	mostNumber = 1 << 30
)

var errCursor = errors.New("it is not an id of this stream")

// parseCursor reads the text form. The empty text is the beginning.
func parseCursor(text string) (*logCursor, error) {
	c := &logCursor{next: map[int]int64{}}
	if text == "" {
		return c, nil
	}
	parts := strings.SplitN(text, ",", mostPlaces+1)
	if len(parts) > mostPlaces {
		return nil, errCursor
	}
	last := 0
	for _, part := range parts {
		number, line, partly := strings.Cut(part, ":")
		first, end, isSpan := strings.Cut(number, "-")
		if !isSpan {
			end = first
		}
		from, err := strconv.Atoi(first)
		to, err2 := strconv.Atoi(end)
		if err != nil || err2 != nil || from <= last || to < from || to > mostNumber || partly && isSpan {
			return nil, errCursor
		}
		last = to
		if !partly {
			c.finish(from, to)
			continue
		}
		n, err := strconv.ParseInt(line, 10, 64)
		if err != nil || n < 0 {
			return nil, errCursor
		}
		c.next[from] = n
	}
	return c, nil
}

// finish notes that logs were read to their end.
func (c *logCursor) finish(first, last int) {
	for n := range c.next {
		if n >= first && n <= last {
			delete(c.next, n)
		}
	}
	i, _ := slices.BinarySearchFunc(c.done, first, func(s span, first int) int { return s.last + 1 - first })
	j := i
	for ; j < len(c.done) && c.done[j].first <= last+1; j++ {
		first, last = min(first, c.done[j].first), max(last, c.done[j].last)
	}
	c.done = slices.Replace(c.done, i, j, span{first, last})
}

// finished reports whether a log was read to its end.
func (c *logCursor) finished(number int) bool {
	i, _ := slices.BinarySearchFunc(c.done, number, func(s span, n int) int { return s.last - n })
	return i < len(c.done) && c.done[i].first <= number
}

func (c *logCursor) String() string {
	var b strings.Builder
	add := func(text string) {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(text)
	}
	partly := slices.Sorted(maps.Keys(c.next))
	for _, s := range c.done {
		for ; len(partly) > 0 && partly[0] < s.first; partly = partly[1:] {
			add(c.place(partly[0]))
		}
		text := strconv.Itoa(s.first)
		if s.last > s.first {
			text += "-" + strconv.Itoa(s.last)
		}
		add(text)
	}
	for _, n := range partly {
		add(c.place(n))
	}
	return b.String()
}

func (c *logCursor) place(number int) string {
	return strconv.Itoa(number) + ":" + strconv.FormatInt(c.next[number], 10)
}
