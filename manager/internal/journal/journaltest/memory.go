package journaltest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/delegate-io/dlite/manager/internal/journal"
)

// Memory is a shared log in memory that can lose its end. It is safe for concurrent
// use.
type Memory struct {
	mu      sync.Mutex
	header  journal.Header
	entries []journal.Entry // without dropped entries
	end     journal.Position
	at      time.Time
	last    map[string]journal.Entry // by origin
	tokens  int
	state   journal.Snapshot
	chunks  map[string][][]byte
	leading bool
	changed chan struct{}
}

// NewMemory returns an empty log.
func NewMemory() *Memory {
	return &Memory{last: map[string]journal.Entry{}, chunks: map[string][][]byte{}, changed: make(chan struct{})}
}

// Open returns the log as a separate process would open it.
func (m *Memory) Open() (journal.Log, error) {
	return &memoryLog{Memory: m, closed: make(chan struct{})}, nil
}

// Lose removes the last n entries, like a crash of a store that had not saved them. It
// keeps the entries that the saved state covers.
func (m *Memory) Lose(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	keep := max(0, len(m.entries)-n)
	for keep < len(m.entries) && m.entries[keep].Seq <= m.state.Seq {
		keep++
	}
	if keep == len(m.entries) {
		return
	}
	m.end = journal.Position{Seq: m.entries[keep].Seq - 1, Token: m.entries[keep].Prev}
	m.entries = slices.Clone(m.entries[:keep])
	m.last = map[string]journal.Entry{}
	for _, e := range m.entries {
		m.last[e.Origin] = e
	}
}

type memoryLog struct {
	*Memory
	once   sync.Once
	closed chan struct{}
}

func (l *memoryLog) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *memoryLog) Ping(context.Context) error {
	select {
	case <-l.closed:
		return journal.ErrClosed
	default:
		return nil
	}
}

func (l *memoryLog) Shared() bool { return true }

func (l *memoryLog) Header(context.Context) (journal.Header, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.header, nil
}

func (l *memoryLog) SetHeader(_ context.Context, old, header journal.Header) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.header.ID != old.ID || string(l.header.Body) != string(old.Body) {
		return false, nil
	}
	l.header = header
	return true, nil
}

func (l *memoryLog) Append(_ context.Context, log string, b journal.Batch) (journal.Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if log != l.header.ID {
		return journal.Entry{}, journal.ErrOtherLog
	}
	if last, ok := l.last[b.Origin]; ok && last.Counter >= b.Counter {
		if last.Counter == b.Counter {
			return last, nil
		}
		return journal.Entry{}, fmt.Errorf("batch %d comes after %d", b.Counter, last.Counter)
	}
	if now := time.Now().UTC(); now.After(l.at) {
		l.at = now
	}
	l.tokens++
	e := journal.Entry{Batch: b, Prev: l.end.Token, Position: journal.Position{Seq: l.end.Seq + 1, Token: fmt.Sprint(l.tokens)}}
	e.At = l.at
	l.entries, l.end, l.last[b.Origin] = append(l.entries, e), e.Position, e
	close(l.changed)
	l.changed = make(chan struct{})
	return e, nil
}

func (l *memoryLog) Read(ctx context.Context, after uint64) ([]journal.Entry, error) {
	for waited := false; ; waited = true {
		l.mu.Lock()
		i, _ := slices.BinarySearchFunc(l.entries, after+1, func(e journal.Entry, seq uint64) int { return int(e.Seq) - int(seq) }) //nolint:gosec // small
		entries, changed := slices.Clone(l.entries[i:min(i+20, len(l.entries))]), l.changed
		l.mu.Unlock()
		if len(entries) > 0 || waited {
			return entries, nil
		}
		t := time.NewTimer(5 * time.Millisecond)
		select {
		case <-changed:
		case <-t.C:
		case <-l.closed:
			t.Stop()
			return nil, journal.ErrClosed
		case <-ctx.Done():
			t.Stop()
			return nil, ctx.Err()
		}
		t.Stop()
	}
}

func (l *memoryLog) End(context.Context) (journal.End, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return journal.End{Position: l.end, Log: l.header.ID, Now: time.Now()}, nil
}

func (l *memoryLog) Snapshot(context.Context) (journal.Snapshot, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state, nil
}

func (l *memoryLog) Chunk(_ context.Context, id string, n int) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n >= len(l.chunks[id]) {
		return nil, journal.ErrMoved
	}
	return slices.Clone(l.chunks[id][n]), nil
}

func (l *memoryLog) PutChunk(_ context.Context, id string, _ int, chunk []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.chunks[id] = append(l.chunks[id], slices.Clone(chunk))
	return nil
}

func (l *memoryLog) Commit(_ context.Context, s journal.Snapshot) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case s.Seq <= l.state.Seq:
		delete(l.chunks, s.ID)
		return nil
	case !slices.ContainsFunc(l.entries, func(e journal.Entry) bool { return e.Position == s.Position }):
		return journal.ErrMoved
	}
	for id := range l.chunks {
		if id != s.ID {
			delete(l.chunks, id)
		}
	}
	l.entries = slices.DeleteFunc(slices.Clone(l.entries), func(e journal.Entry) bool { return e.Seq <= l.state.Seq })
	l.state = s
	return nil
}

func (l *memoryLog) Lead(context.Context) (func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leading {
		return nil, journal.ErrBusy
	}
	l.leading = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.leading = false
	}, nil
}
