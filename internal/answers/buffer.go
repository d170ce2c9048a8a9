// Package answers records the answers of task handlers: whole answers in a [Buffer], the status of
// an answer in [Watched]. [Call] runs a handler that may panic.
package answers

import (
	"bytes"
	"fmt"
	"net/http"
)

// Buffer is an [http.ResponseWriter] that holds a handler's answer until it is
// complete. A Buffer is not safe for concurrent use. Use [NewBuffer].
type Buffer struct {
	header http.Header
	body   bytes.Buffer
	most   int
	status int
	err    error
}

// NewBuffer returns an empty Buffer for answers of at most the given number of bytes.
func NewBuffer(most int) *Buffer { return &Buffer{header: make(http.Header), most: most} }

// Header implements [http.ResponseWriter].
func (b *Buffer) Header() http.Header { return b.header }

// WriteHeader implements [http.ResponseWriter].
func (b *Buffer) WriteHeader(status int) {
	if b.status == 0 && status >= 200 { // 1xx is not the final status
		b.status = status
	}
}

// Write implements [http.ResponseWriter]. It returns an error if the answer becomes too
// large.
func (b *Buffer) Write(p []byte) (int, error) {
	b.WriteHeader(http.StatusOK)
	if b.body.Len()+len(p) > b.most {
		b.err = fmt.Errorf("the handler's answer is larger than %d bytes", b.most)
		return 0, b.err
	}
	return b.body.Write(p)
}

// Status returns the status of the answer, 0 if the handler wrote none.
func (b *Buffer) Status() int { return b.status }

// Body returns the body of the answer. It is valid until the next call of a method.
func (b *Buffer) Body() []byte { return b.body.Bytes() }

// Err returns an error if the answer is too large.
func (b *Buffer) Err() error { return b.err }

// Rewrite replaces the body by f of it.
func (b *Buffer) Rewrite(f func(string) string) {
	text := f(b.body.String())
	b.body.Reset()
	b.body.WriteString(text)
	b.header.Del("Content-Length")
}

// Send writes the answer to w. If the answer is too large, Send returns the error and
// leaves w untouched. A handler that wrote nothing leaves w without a status: the caller
// decides what that means.
func (b *Buffer) Send(w http.ResponseWriter) error {
	if b.err != nil {
		return b.err
	}
	for name, values := range b.header {
		w.Header()[name] = values
	}
	if b.status == 0 {
		return nil
	}
	w.WriteHeader(b.status)
	if b.body.Len() > 0 {
		_, _ = w.Write(b.body.Bytes()) // a failed write has no recipient for an error
	}
	return nil
}
