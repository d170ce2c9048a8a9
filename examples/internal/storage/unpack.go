package storage

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// unpacker restores an archive, which may be hostile. Each file is created inside an [os.Root], which
// no link can leave, and never through an existing file or link.
type unpacker struct {
	ctx    context.Context //nolint:containedctx // of one archive
	places *places
	roots  map[string]opened
	last   *parent     // of the last entry: entries of a directory follow each other
	dirs   []directory // their modes and times are set at the end
	files  int
	bytes  int64
	buffer []byte
}

// opened is a directory of the stage, or the reason why it cannot be opened.
type opened struct {
	root *os.Root
	err  error
}

// parent is an open directory.
type parent struct {
	of   *os.Root
	name string
	root *os.Root
}

type directory struct {
	root *os.Root
	name string
	mode fs.FileMode
	time time.Time
}

func (u *unpacker) unpack(r io.Reader) (err error) {
	u.roots, u.buffer = map[string]opened{}, make([]byte, 256<<10)
	defer func() {
		err = errors.Join(err, u.leave())
		for _, o := range u.roots {
			if o.err == nil {
				err = errors.Join(err, o.root.Close())
			}
		}
	}()
	// An entry may be a link in the path of one of these directories.
	for _, dir := range u.places.directories() {
		_, _ = u.root(dir) // an error counts if an entry needs the directory
	}
	archive := tar.NewReader(r)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = u.ctx.Err()
		}
		if err == nil {
			err = u.entry(h, archive)
		}
		if err != nil {
			return err
		}
	}
	for _, d := range slices.Backward(u.dirs) {
		if err := errors.Join(d.root.Chtimes(d.name, d.time, d.time), d.root.Chmod(d.name, d.mode)); err != nil {
			return err
		}
	}
	// The end of the archive may come before the end of its last part.
	_, err = io.CopyBuffer(io.Discard, io.LimitReader(r, 1<<20), u.buffer)
	return err
}

func (u *unpacker) entry(h *tar.Header, content io.Reader) error {
	if u.files++; u.files > maxFiles {
		return fmt.Errorf("it has more than %d files", maxFiles)
	}
	if u.bytes += h.Size; h.Size < 0 || u.bytes > maxBytes {
		return fmt.Errorf("it has more than %d GiB", maxBytes>>30)
	}
	p, err := u.places.destination(h.Name)
	if err != nil {
		return err
	}
	isDir := h.Typeflag == tar.TypeDir
	if p.rel == "." && !isDir {
		if !p.outside || h.Typeflag == tar.TypeSymlink { // later entries would follow the link
			return fmt.Errorf("its entry %.100q replaces a whole directory of the stage", h.Name)
		}
		p.root, p.rel = filepath.Dir(p.root), filepath.Base(p.root)
	}
	root, err := u.root(p.root)
	if err != nil {
		return err
	}
	name, mode := filepath.FromSlash(p.rel), fs.FileMode(h.Mode)&fs.ModePerm
	if isDir {
		return u.directory(root, name, mode, h.ModTime)
	}
	if root, err = u.parent(root, filepath.Dir(name)); err != nil {
		return err
	}
	name = filepath.Base(name)
	switch h.Typeflag {
	case tar.TypeReg:
		return u.file(root, name, mode, h, content)
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) > maxName || strings.ContainsRune(h.Linkname, 0) {
			return fmt.Errorf("its link %.100q has no valid target", h.Name)
		}
		return replacing(root, name, func() error { return root.Symlink(filepath.FromSlash(h.Linkname), name) })
	}
	return fmt.Errorf("its entry %.100q is not a file, a directory or a symbolic link (type %q)", h.Name, h.Typeflag)
}

// root opens a directory of the stage once, and creates it if it is missing.
func (u *unpacker) root(dir string) (*os.Root, error) {
	o, ok := u.roots[dir]
	if !ok {
		if o.err = os.MkdirAll(dir, 0o755); o.err == nil {
			o.root, o.err = os.OpenRoot(dir)
		}
		u.roots[dir] = o
	}
	return o.root, o.err
}

// parent opens a directory, and creates it if it is missing.
func (u *unpacker) parent(root *os.Root, dir string) (*os.Root, error) {
	if dir == "." {
		return root, nil
	}
	if u.last != nil && u.last.of == root && u.last.name == dir {
		return u.last.root, nil
	}
	if err := u.leave(); err != nil {
		return nil, err
	}
	if err := root.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	opened, err := root.OpenRoot(dir)
	if err == nil {
		u.last = &parent{root, dir, opened}
	}
	return opened, err
}

// leave closes the directory of the last entry.
func (u *unpacker) leave() error {
	if u.last == nil {
		return nil
	}
	err := u.last.root.Close()
	u.last = nil
	return err
}

// replacing creates a file or a link, and removes the one that has its name.
func replacing(root *os.Root, name string, create func() error) error {
	err := create()
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := root.Remove(name); err != nil {
		return err
	}
	return create()
}

// directory creates a directory that can be written until the end.
func (u *unpacker) directory(root *os.Root, name string, mode fs.FileMode, at time.Time) error {
	if name == "." {
		return nil // it exists, and its mode belongs to the stage
	}
	if info, err := root.Lstat(name); err == nil && !info.IsDir() {
		if err := root.Remove(name); err != nil {
			return err
		}
	}
	if err := root.MkdirAll(name, 0o755); err != nil {
		return err
	}
	u.dirs = append(u.dirs, directory{root, name, mode, at})
	return root.Chmod(name, mode|0o700)
}

func (u *unpacker) file(root *os.Root, name string, mode fs.FileMode, h *tar.Header, content io.Reader) error {
	var f *os.File
	err := replacing(root, name, func() (err error) {
		f, err = root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode|0o200)
		return err
	})
	if err != nil {
		return err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{f}, content, u.buffer)
	if err == nil && n != h.Size {
		err = io.ErrUnexpectedEOF
	}
	return errors.Join(err, f.Chmod(mode), f.Close(), root.Chtimes(name, h.ModTime, h.ModTime))
}
