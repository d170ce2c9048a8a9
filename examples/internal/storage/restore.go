package storage

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// restore writes the files of a key.
func (w *work) restore(ctx context.Context) error {
	if w.policy == "push" {
		w.printf("The cache is not restored: its policy is push.")
		return nil
	}
	start := time.Now()
	key, object, err := w.cacheKey()
	if err != nil {
		return err
	}
	x, err := w.readIndex(ctx, object)
	if errors.Is(err, errMissing) {
		if found, err := w.restoreForeign(ctx); found || err != nil {
			return err
		}
	}
	switch {
	case errors.Is(err, errMissing) && w.mustFind:
		return fmt.Errorf("there is no cache %q", key)
	case errors.Is(err, errMissing):
		w.printf("There is no cache %q.", key)
		return nil
	case err != nil:
		return fmt.Errorf("the cache %q: %w", key, err)
	}
	if err := presence(ctx, w.bucket, x.Parts); err != nil {
		return fmt.Errorf("the cache %q is not complete: %w", key, err)
	}
	u := &unpacker{ctx: ctx, places: w.places}
	if err := w.unpack(ctx, x, u); err != nil {
		return fmt.Errorf("the cache %q, after %d files: %w", key, max(u.files-1, 0), err)
	}
	w.hit = true
	w.printf("Restored the cache %q of %s: %d files with %s from %s in %s.",
		key, x.Saved.Format(time.RFC3339), u.files, megabytes(u.bytes), megabytes(x.size()), took(start))
	return nil
}

func (w *work) unpack(ctx context.Context, x *index, u *unpacker) error {
	c, err := newCodec(x.Format)
	if err != nil {
		return err
	}
	parts := newPartReader(ctx, w.bucket, c, x.Parts)
	defer parts.close()
	return u.unpack(parts)
}
