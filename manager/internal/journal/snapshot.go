package journal

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// A saved state is a stream in sealed chunks: the last entry of each origin, then the
// output of the machine.

// chunkSize is the size of a chunk. A small chunk does not delay other users of a
// shared store.
const chunkSize = 256 << 10

// forgetOrigins is how long the state contains an origin after its last entry.
const forgetOrigins = 48 * time.Hour

// chunkPlace returns the place of a chunk. It includes the state, the position, and
// whether the chunk is the last one.
func chunkPlace(s Snapshot, n int, last bool) place {
	at := []uint64{s.Seq, uint64(s.At.UnixNano()), uint64(s.Rules), 0} //nolint:gosec // to tell them apart
	if last {
		at[3] = 1
	}
	return place{purpose: "state " + s.ID, n: uint64(n), about: at} //nolint:gosec // not negative
}

// save writes the state of the replica into the log.
func (r *replica[C]) save(ctx context.Context, log Log, now time.Time) (Snapshot, error) {
	w := &snapshotWriter{ctx: ctx, log: log, seal: r.seal, snapshot: Snapshot{
		ID: rand.Text(), Position: r.pos, At: r.at, Saved: now, Rules: r.rules,
	}}
	_, err := w.Write(r.appendSeen(nil))
	if err == nil {
		err = r.machine.Save(w)
	}
	if err == nil {
		err = w.flush(true)
	}
	if err == nil {
		_, err = retry(ctx, func() (struct{}, error) { return struct{}{}, log.Commit(ctx, w.snapshot) })
	}
	if err != nil {
		return Snapshot{}, fmt.Errorf("saving the state: %w", err)
	}
	return w.snapshot, nil
}

// snapshotWriter splits a stream into chunks.
type snapshotWriter struct {
	ctx      context.Context //nolint:containedctx // an io.Writer is given none
	log      Log
	seal     *sealer
	snapshot Snapshot
	chunk    []byte
}

func (w *snapshotWriter) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		if len(w.chunk) == chunkSize {
			if err := w.flush(false); err != nil {
				return 0, err
			}
		}
		if w.chunk == nil {
			w.chunk = make([]byte, 0, chunkSize+64) // plus the overhead of sealing
		}
		part := b[:min(len(b), chunkSize-len(w.chunk))]
		w.chunk, b = append(w.chunk, part...), b[len(part):]
	}
	return n, nil
}

func (w *snapshotWriter) flush(last bool) error {
	s := &w.snapshot
	sealed, err := w.seal.seal(chunkPlace(*s, s.Chunks, last), w.chunk)
	if err != nil {
		return err
	}
	_, err = retry(w.ctx, func() (struct{}, error) {
		return struct{}{}, w.log.PutChunk(w.ctx, s.ID, s.Chunks, sealed)
	})
	s.Chunks++
	s.Size += int64(len(sealed))
	w.chunk = w.chunk[:0]
	return err
}

// snapshotReader joins the chunks to a stream.
type snapshotReader struct {
	ctx      context.Context //nolint:containedctx // an io.Reader is given none
	log      Log
	seal     *sealer
	snapshot Snapshot
	n        int
	chunk    []byte
	err      error
}

func (r *snapshotReader) Read(b []byte) (int, error) {
	for len(r.chunk) == 0 && r.err == nil {
		r.chunk, r.err = r.next()
	}
	if len(r.chunk) == 0 {
		return 0, r.err
	}
	n := copy(b, r.chunk)
	r.chunk = r.chunk[n:]
	return n, nil
}

func (r *snapshotReader) next() ([]byte, error) {
	s := r.snapshot
	if r.n == s.Chunks {
		return nil, io.EOF
	}
	sealed, err := retry(r.ctx, func() ([]byte, error) { return r.log.Chunk(r.ctx, s.ID, r.n) })
	if err != nil {
		return nil, err
	}
	chunk, err := r.seal.open(chunkPlace(s, r.n, r.n == s.Chunks-1), sealed)
	if err != nil {
		return nil, fmt.Errorf("part %d of %d: %w", r.n+1, s.Chunks, err)
	}
	r.n++
	return chunk, nil
}

// appendSeen leaves out origins that have not written for forgetOrigins: they will not
// write again.
func (r *replica[C]) appendSeen(b []byte) []byte {
	origins := slices.DeleteFunc(slices.Sorted(maps.Keys(r.seen)), func(o string) bool {
		return r.at.Sub(r.seen[o].at) > forgetOrigins
	})
	b = binary.AppendUvarint(b, uint64(len(origins)))
	for _, o := range origins {
		b = binary.AppendUvarint(b, uint64(len(o)))
		b = append(b, o...)
		b = binary.AppendUvarint(b, r.seen[o].counter)
		b = binary.AppendVarint(b, r.seen[o].at.UnixNano())
	}
	return b
}

// maxOrigin bounds the length of an origin in a damaged log.
const maxOrigin = 1 << 10

func readSeen(r *bufio.Reader) (map[string]mark, error) {
	var errs []error
	number := func() uint64 {
		n, err := binary.ReadUvarint(r)
		errs = append(errs, err)
		return n
	}
	seen := map[string]mark{}
	for n := number(); n > 0 && errors.Join(errs...) == nil; n-- {
		origin := make([]byte, min(number(), maxOrigin))
		_, err := io.ReadFull(r, origin)
		counter := number()
		at, err2 := binary.ReadVarint(r)
		errs = append(errs, err, err2)
		seen[string(origin)] = mark{counter, time.Unix(0, at).UTC()}
	}
	return seen, errors.Join(errs...)
}
