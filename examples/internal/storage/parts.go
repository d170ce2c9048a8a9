package storage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// partSize is the size of a part before compression, in bytes. A step keeps up to parallel+1 parts in
	// memory.
	partSize = 8 << 20
	parallel = 4
	// maxStored bounds a part in the bucket: data that cannot be compressed becomes a little larger.
	maxStored = partSize + partSize/16
	// maxParts bounds an archive to 64 GiB.
	maxParts = 8192
	// fresh is the age at which a part is written again if another archive needs it. A rule of the bucket
	// that deletes old objects must keep them longer.
	fresh = 7 * 24 * time.Hour
	// attempts bounds the reads of a part whose content does not arrive or has another checksum.
	attempts = 3
)

// part is a piece of an archive.
type part struct {
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

func (p *part) object() string { return layout + "parts/" + p.SHA256 }

func (p *part) check() error {
	if b, err := hex.DecodeString(p.SHA256); err != nil || len(b) != sha256.Size || p.Size <= 0 || p.Size > maxStored {
		return errors.New("a part of it has no valid checksum and size")
	}
	return nil
}

// partWriter stores the written bytes as parts.
type partWriter struct {
	bucket *bucket
	codec  *codec
	ctx    context.Context //nolint:containedctx // of the writer's life: io.Writer has none
	group  *errgroup.Group
	buffer []byte
	parts  []*part
	reused atomic.Int64 // parts that the bucket had
}

func newPartWriter(ctx context.Context, b *bucket, c *codec) *partWriter {
	w := &partWriter{bucket: b, codec: c}
	w.group, w.ctx = errgroup.WithContext(ctx)
	w.group.SetLimit(parallel)
	return w
}

func (w *partWriter) Write(b []byte) (int, error) {
	total := len(b)
	for len(b) > 0 {
		if w.buffer == nil {
			w.buffer = make([]byte, 0, partSize)
		}
		n := min(len(b), partSize-len(w.buffer))
		w.buffer = append(w.buffer, b[:n]...)
		b = b[n:]
		if len(w.buffer) == partSize {
			if err := w.flush(); err != nil {
				return 0, err
			}
		}
	}
	return total, nil
}

func (w *partWriter) flush() error {
	if len(w.buffer) == 0 {
		return nil
	}
	if len(w.parts) == maxParts {
		return fmt.Errorf("the archive is larger than %d GiB", maxParts*partSize>>30)
	}
	if err := context.Cause(w.ctx); err != nil {
		return err
	}
	data, p := w.buffer, &part{}
	w.buffer, w.parts = nil, append(w.parts, p)
	w.group.Go(func() error { return w.store(p, data) })
	return nil
}

// store compresses and writes a part, unless the bucket has it.
func (w *partWriter) store(p *part, data []byte) error {
	data, err := w.codec.compress(data)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	p.SHA256, p.Size = hex.EncodeToString(sum[:]), int64(len(data))
	at, size, err := w.bucket.written(w.ctx, p.object())
	if err == nil && size == p.Size && time.Since(at) < fresh {
		w.reused.Add(1)
		return nil
	}
	return w.bucket.put(w.ctx, p.object(), data)
}

// finish waits until all parts are stored.
func (w *partWriter) finish() (parts []*part, reused int64, err error) {
	err = w.flush()
	if wait := w.group.Wait(); wait != nil {
		err = wait
	}
	return w.parts, w.reused.Load(), err
}

// presence fails if a part is missing, before anything is restored.
func presence(ctx context.Context, b *bucket, parts []*part) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4 * parallel)
	for _, p := range parts {
		group.Go(func() error {
			if _, _, err := b.written(ctx, p.object()); err != nil {
				return fmt.Errorf("part %.12s: %w", p.SHA256, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// partReader reads the content of parts in their order, and the next ones ahead. A reader gets no byte
// of a part before its checksum is verified.
type partReader struct {
	next    chan chan fetched
	current []byte
	stop    context.CancelFunc
	err     error // of an end before the last part; set before next is closed
}

type fetched struct {
	data []byte
	err  error
}

func newPartReader(ctx context.Context, b *bucket, c *codec, parts []*part) *partReader {
	ctx, stop := context.WithCancel(ctx)
	r := &partReader{next: make(chan chan fetched, parallel-2), stop: stop}
	go func() {
		defer close(r.next)
		for _, p := range parts {
			one := make(chan fetched, 1)
			go func() {
				data, err := fetch(ctx, b, p)
				if err == nil {
					if data, err = c.decompress(data); err != nil {
						err = fmt.Errorf("part %.12s: %w", p.SHA256, err)
					}
				}
				one <- fetched{data, err}
			}()
			select {
			case r.next <- one:
			case <-ctx.Done():
				<-one
				r.err = context.Cause(ctx)
				return
			}
		}
	}()
	return r
}

// fetch reads and verifies a part.
func fetch(ctx context.Context, b *bucket, p *part) (data []byte, err error) {
	for range attempts {
		data, err = b.get(ctx, p.object(), p.Size)
		if err == nil {
			if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) == p.SHA256 {
				return data, nil
			}
			err = errors.New("its content does not have its checksum")
		}
		if ctx.Err() != nil || errors.Is(err, errMissing) {
			break
		}
	}
	return nil, fmt.Errorf("part %.12s: %w", p.SHA256, err)
}

func (r *partReader) Read(b []byte) (int, error) {
	for len(r.current) == 0 {
		one, ok := <-r.next
		if !ok && r.err != nil {
			return 0, r.err
		}
		if !ok {
			return 0, io.EOF
		}
		f := <-one
		if f.err != nil {
			return 0, f.err
		}
		r.current = f.data
	}
	n := copy(b, r.current)
	r.current = r.current[n:]
	return n, nil
}

// close ends the fetches and waits for them.
func (r *partReader) close() {
	r.stop()
	for one := range r.next {
		<-one
	}
}
