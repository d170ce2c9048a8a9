package queue

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

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
	Limits map[string]int `json:"limits,omitempty"`
}

type savedDelegate struct {
	Order      uint64   `json:"order"`
	ID         string   `json:"id"`
	Name       string   `json:"name,omitempty"`
	HostName   string   `json:"host,omitempty"`
	Type       string   `json:"type,omitempty"`
	Runs       string   `json:"runs,omitempty"` // the version
	Tags       []string `json:"tags"`           // null and an empty list differ
	Types      []string `json:"types"`
	Draining   bool     `json:"draining,omitempty"`
	Drained    bool     `json:"drained,omitempty"`
	Max        int      `json:"max,omitempty"`
	Lost       bool     `json:"lost,omitempty"`
	Removed    bool     `json:"removed,omitempty"`
	Registered instant  `json:"registered"`
	Seen       instant  `json:"seen"`
	Idle       instant  `json:"idle"`
	Version    uint64   `json:"version"`
	Due        instant  `json:"due,omitempty"`
}

type savedWork struct {
	ID           string          `json:"id"`
	Seq          uint64          `json:"seq"`
	Stage        bool            `json:"stage,omitempty"`
	Priority     Priority        `json:"priority,omitempty"`
	Groups       []string        `json:"groups,omitempty"`
	Selectors    []string        `json:"selectors"` // null and an empty list differ
	QueueTimeout time.Duration   `json:"queue,omitempty"`
	RunTimeout   time.Duration   `json:"run,omitempty"`
	NotBefore    instant         `json:"notBefore,omitempty"`
	State        workState       `json:"state,omitempty"`
	Types        [][]string      `json:"types,omitempty"`  // of the variants
	Bodies       bool            `json:"bodies,omitempty"` // the bodies of the variants follow
	Variant      int32           `json:"variant,omitempty"`
	Delegate     uint64          `json:"delegate,omitempty"`
	Size         int             `json:"size,omitempty"`
	Was          map[string]fate `json:"was,omitempty"`
	Due          instant         `json:"due,omitempty"`
	Tasks        int             `json:"tasks"`
	Ended        int             `json:"ended,omitempty"` // the order in which works ended, from 1
}

type savedTask struct {
	ID        string       `json:"id"`
	Seq       uint64       `json:"seq,omitempty"`
	Owner     uint64       `json:"owner,omitempty"`
	State     taskState    `json:"state,omitempty"`
	Detached  bool         `json:"detached,omitempty"`
	Half      bool         `json:"half,omitempty"`
	Stopping  bool         `json:"stopping,omitempty"`
	Answered  bool         `json:"answered,omitempty"`
	Former    bool         `json:"former,omitempty"`
	Stop      bool         `json:"stop,omitempty"` // its delegate is to stop it
	Submitted instant      `json:"submitted,omitempty"`
	Offered   instant      `json:"offered,omitempty"`
	Acquired  instant      `json:"acquired,omitempty"`
	Ended     instant      `json:"ended,omitempty"`
	Due       instant      `json:"due,omitempty"`
	Body      bool         `json:"body,omitempty"` // follows
	End       *savedEnding `json:"end,omitempty"`
}

type savedEnding struct {
	Kind    string    `json:"kind,omitempty"`
	Outcome Outcome   `json:"outcome,omitempty"`
	Error   string    `json:"error,omitempty"`
	Code    task.Code `json:"code,omitempty"`
	Data    bool      `json:"data,omitempty"` // follows
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

// recordReader reads records.
type recordReader struct {
	r    *bufio.Reader
	kind byte // of the next record, 0 if it is not read yet
	buf  bytes.Buffer
}

// next returns the kind of the next record.
func (r *recordReader) next() (byte, error) {
	if r.kind == 0 {
		b, err := r.r.ReadByte()
		if err != nil {
			return 0, cut(err)
		}
		r.kind = b
	}
	return r.kind, nil
}

// cut returns the error for a queue that ends too early.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// bytes reads a record of the given kind. The result is valid until the next call.
func (r *recordReader) bytes(kind byte) ([]byte, error) {
	got, err := r.next()
	if err != nil {
		return nil, err
	}
	if got != kind {
		return nil, fmt.Errorf("a record of kind %q where %q was expected", got, kind)
	}
	r.kind = 0
	n, err := binary.ReadUvarint(r.r)
	if err != nil {
		return nil, cut(err)
	}
	if n > 1<<40 {
		return nil, fmt.Errorf("a record of %d bytes", n)
	}
	r.buf.Reset()
	if _, err := io.CopyN(&r.buf, r.r, int64(n)); err != nil { // allocates no more than there is
		return nil, cut(err)
	}
	return r.buf.Bytes(), nil
}

func (r *recordReader) json(kind byte, v any) error {
	b, err := r.bytes(kind)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("a record of kind %q: %w", kind, err)
	}
	return nil
}

func (r *recordReader) body() (*task.Task, error) {
	t := &task.Task{}
	if err := r.json(recordBody, t); err != nil {
		return nil, err
	}
	var err error
	t.Data, err = r.data()
	return t, err
}

// data reads a copy of a data record, nil for an empty one.
func (r *recordReader) data() (json.RawMessage, error) {
	b, err := r.bytes(recordData)
	if len(b) == 0 {
		return nil, err
	}
	return bytes.Clone(b), err
}
