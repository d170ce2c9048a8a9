package task

import (
	"bytes"
	"fmt"
	"net/http"
)

// Buffer is an [http.ResponseWriter] that holds a handler's answer until it is
// complete. An answer larger than [MaxBody] becomes a failure. A Buffer is not
// safe for concurrent use.
type Buffer struct {
	header   http.Header
	body     bytes.Buffer
	status   int
	tooLarge bool
}

// NewBuffer returns an empty Buffer.
func NewBuffer() *Buffer { return &Buffer{header: make(http.Header)} }

// Header implements [http.ResponseWriter].
func (b *Buffer) Header() http.Header { return b.header }

// WriteHeader implements [http.ResponseWriter].
func (b *Buffer) WriteHeader(status int) {
	if b.status == 0 && status >= 200 { // 1xx is not the final status
		b.status = status
	}
}

// Write implements [http.ResponseWriter]. It returns an error if the answer
// becomes larger than [MaxBody].
func (b *Buffer) Write(p []byte) (int, error) {
	b.WriteHeader(http.StatusOK)
	if b.body.Len()+len(p) > MaxBody {
		b.tooLarge = true
		return 0, fmt.Errorf("the answer is larger than %d bytes", MaxBody)
	}
	return b.body.Write(p)
}

// Rewrite replaces the body by f of it.
func (b *Buffer) Rewrite(f func(string) string) {
	text := f(b.body.String())
	b.body.Reset()
	b.body.WriteString(text)
	b.header.Del("Content-Length")
}

// Send writes the answer to w. An answer that is too large becomes an error. A
// handler that wrote nothing leaves w untouched: the caller decides what that
// means.
func (b *Buffer) Send(w http.ResponseWriter) {
	if b.tooLarge {
		WriteError(w, errTooLarge)
		return
	}
	for name, values := range b.header {
		w.Header()[name] = values
	}
	if b.status == 0 {
		return
	}
	w.WriteHeader(b.status)
	if b.body.Len() > 0 {
		_, _ = w.Write(b.body.Bytes()) // a failed write has no recipient for an error
	}
}

var errTooLarge = fmt.Errorf("the handler's answer is larger than %d bytes", MaxBody)
