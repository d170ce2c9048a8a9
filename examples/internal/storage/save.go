package storage

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// detects reports whether the step takes the paths of the projects in the workspace if it has none.
func (w *work) detects() bool { return w.policy != "" }

// save stores the paths under the key.
func (w *work) save(ctx context.Context) error {
	if w.policy == "pull" {
		w.printf("The cache is not saved: its policy is pull.")
		return nil
	}
	start := time.Now()
	key, object, err := w.cacheKey()
	if err != nil {
		return err
	}
	if len(w.paths) == 0 {
		return wrong("sourcePaths is required")
	}
	if !w.override {
		if at, _, err := w.bucket.written(ctx, object); err == nil {
			w.printf("The cache %q exists since %s: nothing is saved. Set override to replace it.", key, at.UTC().Format(time.RFC3339))
			return nil
		} else if !errors.Is(err, errMissing) {
			return err
		}
	}
	x := &index{Version: indexVersion, Key: key, Format: w.format, Saved: start.UTC()}
	reused, err := w.store(ctx, x)
	if err != nil {
		return err
	}
	data, err := json.Marshal(x)
	if err != nil {
		return err
	}
	if err := w.bucket.put(ctx, object, data); err != nil {
		return err
	}
	w.printf("Saved the cache %q: %d files with %s, compressed to %s in %d parts, of which the bucket had %d, in %s.",
		key, x.Files, megabytes(x.Bytes), megabytes(x.size()), len(x.Parts), reused, took(start))
	return nil
}

// store writes the parts of the archive.
func (w *work) store(ctx context.Context, x *index) (reused int64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := newCodec(x.Format)
	if err != nil {
		return 0, err
	}
	parts := newPartWriter(ctx, w.bucket, c)
	err = w.pack(ctx, x, parts)
	if err != nil {
		cancel()
	}
	var stored error
	x.Parts, reused, stored = parts.finish()
	if stored != nil && (err == nil || !errors.Is(stored, context.Canceled)) {
		err = stored // the reason of err, if both failed
	}
	return reused, err
}

func (w *work) pack(ctx context.Context, x *index, to io.Writer) error {
	k := &packer{ctx: ctx, tar: tar.NewWriter(to)}
	for _, text := range w.paths {
		p, err := w.places.find(text)
		if err != nil {
			return err
		}
		exists, err := k.add(p)
		if err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		if !exists {
			w.printf("The path %s does not exist, and is left out.", text)
		}
	}
	if k.files == 0 {
		return fmt.Errorf("none of its paths exists: %s", strings.Join(w.paths, ", "))
	}
	if k.skipped > 0 {
		w.printf("%d devices, sockets or pipes are left out.", k.skipped)
	}
	x.Files, x.Bytes = k.files, k.bytes
	return k.tar.Close()
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

func took(start time.Time) string { return time.Since(start).Round(time.Millisecond).String() }
