package storage

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// maxForeign bounds the archives of a key: the plugin writes one for each path.
const maxForeign = 1000

// restoreForeign restores a cache that the plugin for caches wrote: an archive for each path of the key, with the name
// KEY/PATH, or REPOSITORY/KEY/PATH. It reports whether there is one.
func (w *work) restoreForeign(ctx context.Context) (bool, error) {
	if w.prefix != "" || w.key == "" {
		return false, nil // the plugin does not write there
	}
	key, err := w.foreignKey()
	if err != nil {
		return false, nil //nolint:nilerr // a key that the plugin could not write either
	}
	for _, prefix := range []string{key + "/", path.Join(w.repository, key) + "/"} {
		objects, err := w.bucket.list(ctx, prefix, maxForeign)
		if err != nil {
			return false, err
		}
		if len(objects) == 0 {
			continue
		}
		start, files, size := time.Now(), 0, int64(0)
		for _, o := range objects {
			u := &unpacker{ctx: ctx, places: w.places, files: files, bytes: size}
			if err := w.unpackForeign(ctx, o.Key, u); err != nil {
				return true, fmt.Errorf("the archive %.200q of another program: %w", o.Key, err)
			}
			files, size = u.files, u.bytes
		}
		w.hit = true
		w.printf("Restored the cache %q of another program: %d archives, %d files with %s in %s.", key, len(objects), files, megabytes(size), took(start))
		return true, nil
	}
	return false, nil
}

// foreignKey is the key as that plugin writes it: its checksums are other ones.
func (w *work) foreignKey() (string, error) {
	root, err := os.OpenRoot(w.places.workspace)
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	key, err := expandKey(w.key, keyFunctions{workspace: root.FS(), env: w.env, foreign: true})
	if err == nil && path.Clean("/"+key) == "/" {
		err = errors.New("the key is empty")
	}
	return path.Clean(key), err
}

func (w *work) unpackForeign(ctx context.Context, name string, u *unpacker) error {
	body, err := w.bucket.open(ctx, name)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	plain, err := decompressed(body)
	if err != nil {
		return err
	}
	defer func() { _ = plain.Close() }()
	return u.unpack(plain)
}

// decompressed reads tar, also with gzip or zstd around it. The first bytes tell them apart.
func decompressed(r io.Reader) (io.ReadCloser, error) {
	b := bufio.NewReaderSize(r, 1<<20)
	magic, err := b.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		return gzip.NewReader(b)
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		d, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}
	return io.NopCloser(b), nil
}
