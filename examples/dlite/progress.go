package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

const (
	// small is the size of a body that is sent or received without a word about it, in bytes.
	small = 1 << 20
	// perLine is the number of bytes between two lines of progress where there is no terminal.
	perLine = 8 << 20
	// perPaint is the time between two paintings of a bar.
	perPaint = 100 * time.Millisecond
)

// progress shows how much of a large request or answer was transferred: a bar on a terminal, elsewhere lines. Both are written to
// the standard error.
type progress struct {
	p    *program
	next http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (t *progress) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil && r.ContentLength > small {
		r = r.Clone(r.Context())
		r.Body = t.p.counted("sent", r.Body, r.ContentLength)
	}
	answer, err := t.next.RoundTrip(r)
	// An event stream has no end, and an answer on the terminal is its own progress.
	if err == nil && !t.p.isTerminal() && !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream") {
		answer.Body = t.p.counted("received", answer.Body, answer.ContentLength)
	}
	return answer, err
}

// counted returns a body that shows its progress. A size below 0 is not known.
func (p *program) counted(verb string, body io.ReadCloser, size int64) io.ReadCloser {
	c := &counter{ReadCloser: body, out: p.err, verb: verb, size: size, printed: time.Now()}
	if f, ok := p.err.(*os.File); ok {
		c.bar = term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
	}
	return c
}

// counter counts the bytes that are read from a body.
type counter struct {
	io.ReadCloser

	out  io.Writer
	verb string
	size int64
	bar  bool

	mu      sync.Mutex // guards the following fields: a request's body is closed by another goroutine
	done    int64
	line    int64 // done at the last line
	printed time.Time
	painted bool
}

// Read implements [io.Reader].
func (c *counter) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done += int64(n)
	switch {
	case c.done <= small:
	case c.bar && time.Since(c.printed) >= perPaint:
		c.printed, c.painted = time.Now(), true
		_, _ = fmt.Fprintf(c.out, "\r\x1b[K%s", c.text())
	case !c.bar && c.done-c.line >= perLine:
		c.line = c.done
		_, _ = fmt.Fprintln(c.out, c.text())
	}
	return n, err
}

// Close implements [io.Closer]. It removes the bar.
func (c *counter) Close() error {
	c.mu.Lock()
	if c.painted {
		c.painted = false
		_, _ = fmt.Fprint(c.out, "\r\x1b[K")
	}
	c.mu.Unlock()
	return c.ReadCloser.Close()
}

// text is the progress in words, with a bar if the size is known and there is a terminal for it.
func (c *counter) text() string {
	const width = 20
	text := fmt.Sprintf("%s %.1f MB", c.verb, float64(c.done)/1e6)
	if c.size <= 0 {
		return text
	}
	text += fmt.Sprintf(" of %.1f MB", float64(c.size)/1e6)
	if c.bar {
		full := int(min(c.done, c.size) * width / c.size)
		text += " [" + strings.Repeat("#", full) + strings.Repeat(" ", width-full) + "]"
	}
	return text
}
