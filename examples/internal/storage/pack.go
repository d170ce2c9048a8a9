package storage

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

const (
	// maxFiles and maxBytes bound the content of an archive.
	maxFiles = 2_000_000
	maxBytes = maxParts * partSize
)

// packer writes files into an archive. Equal trees give equal archives: the files are ordered by name,
// and owners are left out.
type packer struct {
	ctx     context.Context //nolint:containedctx // of one walk
	tar     *tar.Writer
	files   int
	bytes   int64
	skipped int // devices, sockets and the like
	buffer  []byte
}

// add adds a file, or a directory with its content. It reports whether the place exists.
func (k *packer) add(p place) (bool, error) {
	top := p.path()
	if p.rel == "." {
		// The directory itself is not a part of the cache, and may be a link.
		if real, err := filepath.EvalSymlinks(top); err == nil || errors.Is(err, fs.ErrNotExist) {
			top = real
		}
	}
	if _, err := os.Lstat(top); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return true, filepath.WalkDir(top, func(file string, e fs.DirEntry, err error) error {
		if err == nil {
			err = k.ctx.Err()
		}
		if err != nil {
			return err
		}
		inner := strings.TrimPrefix(strings.TrimPrefix(file, top), string(filepath.Separator))
		as := path.Join(p.name, filepath.ToSlash(inner))
		if as == "." || as == "~" {
			return nil // the workspace and the home exist
		}
		return k.entry(file, as, e)
	})
}

func (k *packer) entry(file, as string, e fs.DirEntry) error {
	info, err := e.Info()
	if err != nil {
		return err
	}
	if k.files++; k.files > maxFiles {
		return fmt.Errorf("it has more than %d files", maxFiles)
	}
	h := &tar.Header{Name: as, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime().Truncate(time.Second)}
	switch mode := info.Mode(); {
	case mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, as+"/"
	case mode.IsRegular():
		h.Typeflag, h.Size = tar.TypeReg, info.Size()
	case mode&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = os.Readlink(file); err != nil {
			return err
		}
		h.Linkname = filepath.ToSlash(h.Linkname)
	default:
		k.skipped++
		return nil
	}
	if k.bytes += h.Size; k.bytes > maxBytes {
		return fmt.Errorf("it has more than %d GiB", maxBytes>>30)
	}
	if err := k.tar.WriteHeader(h); err != nil || h.Typeflag != tar.TypeReg {
		return err
	}
	return k.content(file, h.Size)
}

func (k *packer) content(file string, size int64) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if k.buffer == nil {
		k.buffer = make([]byte, 256<<10)
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{k.tar}, io.LimitReader(f, size), k.buffer)
	if err == nil && n < size {
		err = fmt.Errorf("%s became shorter while it was read", file)
	}
	return err
}
