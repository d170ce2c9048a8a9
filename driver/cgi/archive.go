package cgi

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// Limits of archives.
const (
	maxUnpacked = 1 << 30
	maxEntries  = 100_000
	// maxDirectory limits the list of entries of a zip, in bytes. The whole list is
	// read into memory before the first entry.
	maxDirectory = 32 << 20
)

// unpack extracts an archive to dir. It supports zip, and tar without compression or
// with gzip or zstd. If the archive has only one directory at its top, like the
// archives of repository hosts, dir gets the content of that directory.
func unpack(file, dir string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	into := dir + ".unpacked"
	if err := os.Mkdir(into, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(into)
	if err != nil {
		return err
	}
	u := &unpacking{root: root, room: maxUnpacked, entries: maxEntries}
	err = errors.Join(u.all(f), root.Close())
	if err != nil {
		return err
	}
	top := into
	if list, err := os.ReadDir(into); err == nil && len(list) == 1 && list[0].IsDir() {
		top = filepath.Join(into, list[0].Name())
	}
	if err := os.Remove(dir); err != nil {
		return err
	}
	if err := os.Rename(top, dir); err != nil || top == into {
		return err
	}
	return os.Remove(into)
}

// unpacking extracts one archive. It writes only below root.
type unpacking struct {
	root    *os.Root
	room    int64
	entries int
}

func (u *unpacking) all(f *os.File) error {
	r := bufio.NewReader(f)
	magic, err := r.Peek(4)
	if err != nil {
		return fmt.Errorf("it is not an archive: %w", err)
	}
	switch {
	case bytes.HasPrefix(magic, []byte("PK\x03\x04")):
		return u.zip(f)
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(r)
		if err != nil {
			return err
		}
		return u.tar(z)
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return err
		}
		defer z.Close()
		return u.tar(z)
	}
	return u.tar(r)
}

func (u *unpacking) tar(r io.Reader) error {
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch h.Typeflag {
		case tar.TypeReg:
			err = u.file(h.Name, h.FileInfo().Mode(), t)
		case tar.TypeDir:
			err = u.dir(h.Name)
		case tar.TypeSymlink:
			err = u.link(h.Name, h.Linkname)
		case tar.TypeXGlobalHeader:
		default:
			err = fmt.Errorf("%q is not a file, directory or link", h.Name)
		}
		if err != nil {
			return err
		}
	}
}

func (u *unpacking) zip(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	in := &bounded{r: f, room: maxDirectory}
	z, err := zip.NewReader(in, info.Size())
	if err != nil {
		return err
	}
	in.room = math.MaxInt64
	for _, e := range z.File {
		if err := u.zipped(e); err != nil {
			return err
		}
	}
	return nil
}

// bounded fails when a caller reads more than the limit.
type bounded struct {
	r    io.ReaderAt
	room int64
}

func (b *bounded) ReadAt(p []byte, off int64) (int, error) {
	if b.room -= int64(len(p)); b.room < 0 {
		return 0, fmt.Errorf("its list of entries takes more than %d bytes", maxDirectory)
	}
	return b.r.ReadAt(p, off)
}

func (u *unpacking) zipped(e *zip.File) error {
	mode := e.Mode()
	if mode.IsDir() {
		return u.dir(e.Name)
	}
	r, err := e.Open()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	switch {
	case mode.IsRegular():
		return u.file(e.Name, mode, r)
	case mode&fs.ModeSymlink != 0:
		target, err := io.ReadAll(io.LimitReader(r, 4<<10))
		if err != nil {
			return err
		}
		return u.link(e.Name, string(target))
	}
	return fmt.Errorf("%q is not a file, directory or link", e.Name)
}

// name checks the name of an entry, and counts the entry.
func (u *unpacking) name(s string) (string, error) {
	if u.entries--; u.entries < 0 {
		return "", fmt.Errorf("it has more than %d entries", maxEntries)
	}
	name := filepath.FromSlash(path.Clean(s))
	if !filepath.IsLocal(name) {
		return "", fmt.Errorf("%q points outside the archive", s)
	}
	return name, nil
}

func (u *unpacking) dir(s string) error {
	name, err := u.name(s)
	if err != nil {
		return err
	}
	return u.root.MkdirAll(name, 0o755)
}

func (u *unpacking) file(s string, mode fs.FileMode, r io.Reader) error {
	name, err := u.name(s)
	if err != nil {
		return err
	}
	if err := u.root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644|mode.Perm()&0o111)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, io.LimitReader(r, u.room+1))
	if u.room -= n; u.room < 0 {
		err = fmt.Errorf("it has more than %d bytes", maxUnpacked)
	}
	return errors.Join(err, f.Close())
}

// link creates a link. It refuses targets outside the archive.
func (u *unpacking) link(s, target string) error {
	name, err := u.name(s)
	if err != nil {
		return err
	}
	if strings.HasPrefix(target, "/") || !filepath.IsLocal(filepath.Join(filepath.Dir(name), filepath.FromSlash(target))) {
		return fmt.Errorf("the link %q points outside the archive", s)
	}
	if err := u.root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return u.root.Symlink(filepath.FromSlash(target), name)
}
