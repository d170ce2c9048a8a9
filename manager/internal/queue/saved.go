package queue

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/delegate-io/dlite/task"
)

// A saved queue is a sequence of records. A record is a byte with its kind, the length
// of its content (a varint), and the content. Entities are JSON; payloads, which may be
// large, are records of their own. An entity belongs to the account, delegate or work
// before it, and refers to a delegate by its number.
const (
	recordHeader   = 'H'
	recordAccount  = 'A'
	recordDelegate = 'D'
	recordWork     = 'W' // followed by the bodies of its variants
	recordTask     = 'T' // followed by its body, unless that is a variant's, and by its answer's data
	recordBody     = 'B' // a task without its data; followed by the data
	recordData     = '='
	recordEnd      = 'Z'
)

// savedVersion is the version of the format. A change that older programs would
// misunderstand increases it.
const savedVersion = 1

type savedHeader struct {
	Version int     `json:"version"`
	Epoch   string  `json:"epoch"`
	Last    instant `json:"last"`
	Seq     uint64  `json:"seq"`
}

type savedAccount struct {
	ID     string         `json:"id"`
	Paused bool           `json:"paused,omitempty"`
	Note   string         `json:"note,omitempty"` // of the pause
	Limits map[string]int `json:"limits,omitempty"`
}

type savedDelegate struct {
	delegateFacts
	savedRegistration
}

// savedRegistration is a Registration: Go converts one to the other, as they differ only in their tags.
type savedRegistration struct {
	ID       string   `json:"id"`
	NewID    string   `json:"-"`
	Name     string   `json:"name,omitempty"`
	HostName string   `json:"host,omitempty"`
	Type     string   `json:"type,omitempty"`
	Version  string   `json:"runs,omitempty"`
	Tags     []string `json:"tags"` // null and an empty list differ
	Types    []string `json:"types"`
	Group    string   `json:"group,omitempty"`
	Draining bool     `json:"draining,omitempty"`
	Refused  *Refusal `json:"-"`
}

type savedWork struct {
	workFacts
	Types    [][]string `json:"types,omitempty"` // of the variants
	Groups   []string   `json:"groups,omitempty"`
	Bodies   bool       `json:"bodies,omitempty"` // the bodies of the variants follow
	Delegate uint64     `json:"delegate,omitempty"`
	Tasks    int        `json:"tasks"`
}

type savedTask struct {
	taskFacts
	Owner uint64  `json:"owner,omitempty"`
	Stop  bool    `json:"stop,omitempty"` // its delegate is to stop it
	Body  bool    `json:"body,omitempty"` // follows
	End   *ending `json:"end,omitempty"`  // its data follow if it has any
}

// recordWriter writes records until a write fails.
type recordWriter struct {
	w   *bufio.Writer
	buf bytes.Buffer
	err error
}

// bytes writes a record.
func (w *recordWriter) bytes(kind byte, b []byte) {
	if w.err != nil {
		return
	}
	var head [1 + binary.MaxVarintLen64]byte
	head[0] = kind
	n := binary.PutUvarint(head[1:], uint64(len(b)))
	if _, w.err = w.w.Write(head[:1+n]); w.err == nil {
		_, w.err = w.w.Write(b)
	}
}

// json writes a record of an entity.
func (w *recordWriter) json(kind byte, v any) {
	if w.err != nil {
		return
	}
	w.buf.Reset()
	if w.err = json.NewEncoder(&w.buf).Encode(v); w.err == nil {
		w.bytes(kind, w.buf.Bytes())
	}
}

// body writes a task, and its data as they are.
func (w *recordWriter) body(t *task.Task) {
	plain := *t
	plain.Data = nil
	w.json(recordBody, &plain)
	w.bytes(recordData, t.Data)
}

// recordReader reads records until it fails.
type recordReader struct {
	r    *bufio.Reader
	kind byte // of the next record, 0 if it is not read yet
	buf  bytes.Buffer
	err  error
}

// fail keeps the first error. A queue that ends too early is not one that ends.
func (r *recordReader) fail(err error) {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if r.err == nil {
		r.err = err
	}
}

// next returns the kind of the next record, 0 after an error.
func (r *recordReader) next() byte {
	if r.kind == 0 && r.err == nil {
		var err error
		if r.kind, err = r.r.ReadByte(); err != nil {
			r.fail(err)
		}
	}
	return r.kind
}

// bytes reads a record of the given kind. The result is valid until the next call, and nil
// after an error.
func (r *recordReader) bytes(kind byte) []byte {
	if got := r.next(); got != kind {
		r.fail(fmt.Errorf("a record of kind %q where %q was expected", got, kind))
	}
	if r.err != nil {
		return nil
	}
	r.kind = 0
	n, err := binary.ReadUvarint(r.r)
	if n > 1<<40 {
		err = fmt.Errorf("a record of %d bytes", n)
	}
	r.buf.Reset()
	if err == nil {
		_, err = io.CopyN(&r.buf, r.r, int64(n)) // allocates no more than there is
	}
	if err != nil {
		r.fail(err)
		return nil
	}
	return r.buf.Bytes()
}

func (r *recordReader) json(kind byte, v any) {
	if b := r.bytes(kind); r.err == nil {
		if err := json.Unmarshal(b, v); err != nil {
			r.fail(fmt.Errorf("a record of kind %q: %w", kind, err))
		}
	}
}

func (r *recordReader) body() *task.Task {
	t := &task.Task{}
	r.json(recordBody, t)
	t.Data = r.data()
	return t
}

// data reads a copy of a data record, nil for an empty one.
func (r *recordReader) data() json.RawMessage {
	if b := r.bytes(recordData); len(b) > 0 {
		return bytes.Clone(b)
	}
	return nil
}
