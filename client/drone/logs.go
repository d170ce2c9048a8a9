package drone

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/logger"
)

const (
	// maxLine is the length at which a line is split, in bytes.
	maxLine = 64 << 10
	// batchEvery is the time for which lines are collected.
	batchEvery = 200 * time.Millisecond
	// maxBatch is the size of the lines that wait to be sent live, in bytes. Further lines
	// arrive with the upload only.
	maxBatch = 1 << 20
	// maxInMemory is the size of a log that is kept in memory. A larger one is kept in a file.
	maxInMemory = 256 << 10
	// maxLog is the size limit of a log, in bytes as JSON.
	maxLog = 256 << 20
	// uploadTimeout limits the upload of a log, with its repetitions.
	uploadTimeout = 2 * time.Minute
)

// line is a line of a log as the server stores it.
type line struct {
	Pos int    `json:"pos"`
	Out string `json:"out"`
	// Time is in whole seconds since the start of the step.
	Time int64 `json:"time"`
}

// logURL is the address that the payloads of this client give to their logs.
func (c *Client) logURL() string { return c.cfg.Endpoint + "/rpc/v2/step" }

// logKey names the log of a step: its id, and the time of its start.
func (c *Client) logKey(step record) string {
	return strconv.FormatInt(step.number("id"), 10) + "/" + strconv.FormatInt(step.number("started"), 10)
}

// Log returns a function for transaction.WithLog. It opens the logs of the stages of this
// client at the server, and other logs with others. If others is nil, the output of other
// stages is dropped.
func (c *Client) Log(others func(context.Context, logger.StreamConfig) logger.TaskLog) func(context.Context, logger.StreamConfig) logger.TaskLog {
	return func(ctx context.Context, target logger.StreamConfig) logger.TaskLog {
		if target.URL == c.logURL() {
			id, started, _ := strings.Cut(target.Key, "/")
			step, err := strconv.ParseInt(id, 10, 64)
			if err == nil {
				begin, _ := strconv.ParseInt(started, 10, 64)
				l := c.openLog(ctx, step, begin)
				if target.SkipOpeningStream && target.Writer == "" {
					l.pos = l.whole.resume() // the output that an earlier process has kept is not repeated
				}
				return l
			}
		}
		if others != nil && target.URL != c.logURL() {
			return others(ctx, target)
		}
		return dropped{}
	}
}

type dropped struct{}

func (dropped) Write(b []byte) (int, error) { return len(b), nil }

func (dropped) Close(context.Context) error { return nil }

// stepLog sends the output of a step to the server: lines while the step runs, and the whole
// log at its end.
type stepLog struct {
	c       *Client
	step    int64
	started int64
	end     context.CancelFunc
	sender  sync.WaitGroup
	wake    chan struct{}

	mu      sync.Mutex
	partial []byte // a line without its end
	pos     int
	batch   []line
	waiting int // size of batch
	whole   spool
	lost    int    // lines above maxLog
	card    []byte // see cardBegin
	inCard  bool   // a part of the card follows in the next line
	closed  bool
}

func (c *Client) openLog(ctx context.Context, step, started int64) *stepLog {
	l := &stepLog{c: c, step: step, started: started, wake: make(chan struct{}, 1), whole: spool{path: c.store.logPath(step)}}
	ctx, l.end = context.WithCancel(context.WithoutCancel(ctx))
	l.sender.Go(func() { l.send(ctx) })
	return l
}

// Write adds output to the log.
func (l *stepLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, os.ErrClosed
	}
	n := len(b)
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		full := i >= 0
		if !full {
			i = len(b) - 1
		}
		if room := maxLine - len(l.partial); i+1 > room {
			i, full = room-1, true
		}
		l.partial = append(l.partial, b[:i+1]...)
		b = b[i+1:]
		if full {
			cut := wholeRunes(l.partial)
			l.add(string(l.partial[:cut]))
			l.partial = append(l.partial[:0], l.partial[cut:]...)
		}
	}
	return n, nil
}

// wholeRunes returns the length of b without a character at its end that is not complete.
func wholeRunes(b []byte) int {
	for i := len(b) - 1; i >= max(0, len(b)-utf8.UTFMax); i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return i
			}
			break
		}
	}
	return len(b)
}

// add adds a line. The caller holds mu.
func (l *stepLog) add(text string) {
	if l.takeCard(text) {
		return
	}
	text = strings.ToValidUTF8(text, "\uFFFD")
	next := line{Pos: l.pos, Out: text, Time: max(0, time.Now().Unix()-l.started)}
	b, err := json.Marshal(next)
	if err != nil || l.whole.size+int64(len(b)) > maxLog || l.whole.add(b) != nil {
		l.lost++
		return
	}
	l.pos++
	if l.waiting+len(text) > maxBatch {
		return
	}
	l.batch, l.waiting = append(l.batch, next), l.waiting+len(text)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// take returns the lines that wait to be sent live.
func (l *stepLog) take() []line {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.batch
	l.batch, l.waiting = nil, 0
	return b
}

// send sends lines in batches until ctx ends. Lines that the server does not take arrive with
// the upload.
func (l *stepLog) send(ctx context.Context) {
	for {
		select {
		case <-l.wake:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(batchEvery):
		case <-ctx.Done():
			return
		}
		if lines := l.take(); len(lines) > 0 {
			_, err := l.c.attempt(ctx, request{method: http.MethodPost, path: stepPath(l.step) + "/logs/batch", body: jsonBody(lines)}, nil)
			if err != nil && ctx.Err() == nil {
				l.c.cfg.Log.Debug().Err(err).Msg("the Drone server did not take lines of a log: they arrive with the upload")
			}
		}
	}
}

// Close uploads the log.
func (l *stepLog) Close(ctx context.Context) error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	if len(l.partial) > 0 {
		l.add(string(l.partial))
	}
	l.closed = true
	l.mu.Unlock()
	l.end()
	l.sender.Wait()
	defer l.whole.close()
	ctx, cancel := context.WithTimeout(ctx, uploadTimeout)
	defer cancel()
	l.uploadCard(ctx)
	return l.upload(ctx)
}

// upload sends the whole log. The server takes it once.
func (l *stepLog) upload(ctx context.Context) error {
	p := newPause()
	for refused := 0; ; {
		status, err := l.c.attempt(ctx, request{method: http.MethodPost, path: stepPath(l.step) + "/logs/upload", body: l.whole.body, timeout: uploadTimeout}, nil)
		switch {
		case err == nil, alreadyUploaded(err):
			if l.lost > 0 {
				return &logger.LossError{Lines: int64(l.lost), Err: fmt.Errorf("the log is larger than %d MiB, or the disk is full", maxLog>>20)}
			}
			return nil
		case status == http.StatusInternalServerError:
			refused++
		}
		if !errors.Is(err, client.ErrRetryable) || refused >= 2*serverErrors || !p.wait(ctx, err) {
			return &logger.LossError{Lines: int64(l.pos), Bytes: l.whole.size, Err: err}
		}
	}
}

// alreadyUploaded reports whether the server has the log of an earlier attempt: it takes a log
// once. Its answer quotes the database, which is SQLite, PostgreSQL or MySQL.
func alreadyUploaded(err error) bool {
	var e *client.Error
	if !errors.As(err, &e) || e.Status != http.StatusInternalServerError {
		return false
	}
	text := strings.ToLower(e.Message)
	return strings.Contains(text, "unique constraint") || strings.Contains(text, "duplicate")
}

// spool holds the lines of a log as the content of a JSON list, an item in each line. With a path, it is a file from the
// first line on, so that a process that starts after this one was killed has the lines.
type spool struct {
	path   string
	memory bytes.Buffer
	file   *os.File
	size   int64
}

func (s *spool) add(b []byte) error {
	if s.size > 0 {
		b = append([]byte{','}, b...)
	}
	b = append(b, '\n')
	if s.file == nil && (s.path != "" || s.size+int64(len(b)) > maxInMemory) {
		if err := s.openFile(); err != nil {
			return err
		}
	}
	if s.file == nil {
		s.memory.Write(b)
	} else if _, err := s.file.WriteAt(b, s.size); err != nil {
		return err
	}
	s.size += int64(len(b))
	return nil
}

// openFile moves the lines into a file.
func (s *spool) openFile() error {
	var f *os.File
	var err error
	if s.path != "" {
		f, err = os.OpenFile(s.path, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
	}
	if f == nil {
		f, err = os.CreateTemp("", "dlite-log-*")
	}
	if err != nil {
		return err
	}
	if _, err := f.Write(s.memory.Bytes()); err != nil {
		_ = f.Close()
		_ = os.Remove(f.Name())
		return err // the memory keeps the lines
	}
	s.file, s.memory = f, bytes.Buffer{}
	return nil
}

// resume continues with the lines that an earlier process has kept. It returns their number.
func (s *spool) resume() (lines int) {
	f, err := os.OpenFile(s.path, os.O_RDWR, 0o600)
	if s.path == "" || err != nil {
		return 0
	}
	s.file = f
	for r := bufio.NewReader(f); ; lines++ {
		b, err := r.ReadBytes('\n')
		if err != nil { // the end, or a line that was being written
			return lines
		}
		s.size += int64(len(b))
	}
}

// body returns the list.
func (s *spool) body() (io.Reader, int64, error) {
	var content io.Reader = bytes.NewReader(s.memory.Bytes())
	if s.file != nil {
		content = io.NewSectionReader(s.file, 0, s.size)
	}
	return io.MultiReader(strings.NewReader("["), content, strings.NewReader("]")), s.size + 2, nil
}

func (s *spool) close() {
	if s.file != nil {
		_ = s.file.Close()
		_ = os.Remove(s.file.Name())
	}
}
