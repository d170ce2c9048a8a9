package storage

import (
	"context"
	"errors"
	"io/fs"
	"mime"
	"os"
	"path"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// upload stores the files of source, a file, a directory or a pattern, under target and their path in
// the workspace.
func (w *work) upload(ctx context.Context) error {
	start := time.Now()
	if w.source == "" {
		return wrong("sourcePath is required")
	}
	p, err := w.places.find(w.source)
	if err != nil {
		return err
	}
	dir, pattern := p.root, p.rel
	if p.outside {
		dir, pattern = path.Dir(p.name), path.Base(p.name)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	files, err := filesOf(root.FS(), pattern)
	if err != nil {
		return err
	}
	var bytes atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, name := range files {
		group.Go(func() error {
			size, err := w.uploadFile(ctx, root, name, path.Join(w.target, name))
			bytes.Add(size)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	w.printf("Uploaded %d files with %s to the bucket %s in %s.", len(files), megabytes(bytes.Load()), w.bucketName, took(start))
	return nil
}

// filesOf returns the files that match a pattern, and the files in the directories that match.
func filesOf(from fs.FS, pattern string) (files []string, err error) {
	matches, err := fs.Glob(from, pattern)
	if err != nil {
		return nil, wrong("sourcePath: the pattern %.100q is not valid", pattern)
	}
	for _, m := range matches {
		err = errors.Join(err, fs.WalkDir(from, m, func(name string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			if len(files) == maxFiles {
				return wrong("sourcePath names more than %d files", maxFiles)
			}
			files = append(files, name)
			return nil
		}))
	}
	if err == nil && len(files) == 0 {
		err = wrong("sourcePath: there is no file %.100q", pattern)
	}
	return files, err
}

func (w *work) uploadFile(ctx context.Context, root *os.Root, name, as string) (int64, error) {
	info, err := root.Stat(name)
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() { // to open a pipe would wait for a writer
		return 0, wrong("sourcePath: %.100q is not a file", name)
	}
	f, err := root.Open(name)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	kind := mime.TypeByExtension(path.Ext(name))
	if kind == "" {
		kind = "application/octet-stream"
	}
	w.printf("%s (%s)", as, megabytes(info.Size()))
	return info.Size(), w.bucket.putFile(ctx, as, f, info.Size(), kind)
}
