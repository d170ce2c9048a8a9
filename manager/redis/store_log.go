package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/delegate-io/dlite/manager/internal/journal"
)

// Header returns the header of the log.
func (l *Store) Header(ctx context.Context) (journal.Header, error) {
	m, err := l.client.HMGet(ctx, l.key("head"), "id", "body").Result()
	if err != nil {
		return journal.Header{}, explain(err)
	}
	id, _ := m[0].(string)
	body, _ := m[1].(string)
	if id == "" {
		return journal.Header{}, nil
	}
	return journal.Header{ID: id, Body: []byte(body)}, nil
}

// SetHeader replaces the header.
func (l *Store) SetHeader(ctx context.Context, old, header journal.Header) (bool, error) {
	n, err := headerScript.Run(ctx, l.client, []string{l.key("head")}, old.ID, old.Body, header.ID, header.Body).Int()
	return n == 1, explain(err)
}

// Append writes a batch. Its durability depends on the settings of Redis.
func (l *Store) Append(ctx context.Context, log string, b journal.Batch) (journal.Entry, error) {
	keys := []string{l.key("head"), l.key("origins"), l.key("log")}
	f, err := appendScript.Run(ctx, l.client, keys, log, b.Origin, b.Counter, b.Rules, b.Body).StringSlice()
	if err != nil {
		return journal.Entry{}, explain(err)
	}
	var n numbers
	e := journal.Entry{Batch: b, Position: journal.Position{Seq: n.unsigned(f[0]), Token: f[1]}, Prev: f[2]}
	e.At = n.instant(f[3])
	return e, n.err
}

// Read returns entries. It waits up to readFor for one.
func (l *Store) Read(ctx context.Context, after uint64) ([]journal.Entry, error) {
	end, err := l.read()
	if err != nil {
		return nil, err
	}
	defer end()
	streams, err := l.client.XRead(ctx, &goredis.XReadArgs{
		Streams: []string{l.key("log"), l.key("wake"), strconv.FormatUint(after, 10) + "-0", "$"}, Count: readEntries, Block: readFor,
	}).Result()
	if errors.Is(err, goredis.Nil) || err == nil && streams[0].Stream != l.key("log") {
		return nil, nil
	}
	if err != nil {
		return nil, explain(err)
	}
	messages := streams[0].Messages
	entries := make([]journal.Entry, len(messages))
	for i, m := range messages {
		if entries[i], err = entryOf(m); err != nil {
			return nil, fmt.Errorf("%w: entry %s: %w", journal.ErrDamaged, m.ID, err)
		}
	}
	return entries, nil
}

func entryOf(m goredis.XMessage) (journal.Entry, error) {
	field := func(name string) string {
		s, _ := m.Values[name].(string)
		return s
	}
	var n numbers
	id, isFirst := strings.CutSuffix(m.ID, "-0")
	if !isFirst {
		return journal.Entry{}, errors.New("it is not the id of a log entry")
	}
	e := journal.Entry{
		Position: journal.Position{Seq: n.unsigned(id), Token: field("k")}, Prev: field("p"),
		Batch: journal.Batch{
			Origin: field("o"), Counter: n.unsigned(field("c")), Rules: int(n.signed(field("r"))),
			At: n.instant(field("t")), Body: []byte(field("b")),
		},
	}
	return e, n.err
}

// End returns the end of the log.
func (l *Store) End(ctx context.Context) (journal.End, error) {
	f, err := endScript.Run(ctx, l.client, []string{l.key("head")}).StringSlice()
	if err != nil {
		return journal.End{}, explain(err)
	}
	var n numbers
	end := journal.End{Log: f[0], Position: journal.Position{Seq: n.unsigned(f[1]), Token: f[2]}, Now: n.instant(f[3])}
	return end, n.err
}

// Snapshot describes the saved state.
func (l *Store) Snapshot(ctx context.Context) (journal.Snapshot, error) {
	m, err := l.client.HGetAll(ctx, l.key("state")).Result()
	if err != nil || m["id"] == "" {
		return journal.Snapshot{}, explain(err)
	}
	var n numbers
	s := journal.Snapshot{
		ID: m["id"], Position: journal.Position{Seq: n.unsigned(m["seq"]), Token: m["token"]},
		At: n.instant(m["at"]), Saved: n.instant(m["saved"]),
		Rules: int(n.signed(m["rules"])), Size: n.signed(m["size"]), Chunks: int(n.signed(m["chunks"])),
	}
	return s, n.err
}

func (l *Store) chunks(id string) string { return l.key("chunks:" + id) }

// Chunk reads a part of a saved state.
func (l *Store) Chunk(ctx context.Context, id string, n int) ([]byte, error) {
	b, err := l.client.HGet(ctx, l.chunks(id), strconv.Itoa(n)).Bytes()
	if errors.Is(err, goredis.Nil) {
		return nil, fmt.Errorf("%w: part %d of %s is missing", journal.ErrMoved, n, id)
	}
	return b, explain(err)
}

// PutChunk stores a part of a state that is being saved. The parts expire an hour after
// the last one.
func (l *Store) PutChunk(ctx context.Context, id string, n int, chunk []byte) error {
	_, err := l.client.TxPipelined(ctx, func(p goredis.Pipeliner) error {
		p.HSet(ctx, l.chunks(id), strconv.Itoa(n), chunk)
		p.Expire(ctx, l.chunks(id), keepChunks)
		return nil
	})
	return explain(err)
}

// Commit makes a state the saved one.
func (l *Store) Commit(ctx context.Context, s journal.Snapshot) error {
	for {
		was, err := l.client.HGet(ctx, l.key("state"), "id").Result()
		if err != nil && !errors.Is(err, goredis.Nil) {
			return explain(err)
		}
		keys := []string{l.key("state"), l.key("log"), l.key("origins"), l.chunks(s.ID), l.chunks(was)}
		result, err := commitScript.Run(ctx, l.client, keys, was, s.ID, s.Seq, s.Token, s.At.UnixMicro(), s.Saved.UnixMicro(),
			s.Rules, s.Size, s.Chunks, s.At.Add(-keepOrigins).UnixMicro()).Text()
		switch {
		case err != nil:
			return explain(err)
		case result == "lost":
			return fmt.Errorf("%w: entry %d of the new state, or a part of the state, is missing", journal.ErrMoved, s.Seq)
		case result != "again":
			return nil
		}
	}
}

// Lead allows one process at a time. If that process dies, another one may lead 30
// seconds later.
func (l *Store) Lead(ctx context.Context) (func(), error) {
	me, key := rand.Text(), l.key("lead")
	err := l.client.SetArgs(ctx, key, me, goredis.SetArgs{Mode: "NX", TTL: leadFor}).Err()
	if errors.Is(err, goredis.Nil) {
		return nil, journal.ErrBusy
	}
	if err != nil {
		return nil, explain(err)
	}
	// Losing the lock is harmless: Commit checks the saved state.
	renew := func(ctx context.Context, d time.Duration) error {
		return leadScript.Run(ctx, l.client, []string{key}, me, d.Milliseconds()).Err()
	}
	ctx, stop := context.WithCancel(ctx)
	var kept sync.WaitGroup
	kept.Go(func() {
		t := time.NewTicker(leadFor / 3)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				_ = renew(ctx, leadFor) // another process may lead now
			}
		}
	})
	return func() {
		stop()
		kept.Wait()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = renew(ctx, 0) // otherwise the lock expires
	}, nil
}

// numbers parses numbers and records the first error.
type numbers struct{ err error }

func (n *numbers) unsigned(s string) uint64 {
	u, err := strconv.ParseUint(s, 10, 64)
	n.note(err)
	return u
}

func (n *numbers) signed(s string) int64 {
	i, err := strconv.ParseInt(s, 10, 64)
	n.note(err)
	return i
}

// instant parses microseconds since 1970.
func (n *numbers) instant(s string) time.Time { return time.UnixMicro(n.signed(s)).UTC() }

func (n *numbers) note(err error) {
	if n.err == nil {
		n.err = err
	}
}
