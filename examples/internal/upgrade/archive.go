package upgrade

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
)

// Limits of an archive.
const (
	maxProgram = 1 << 30
	maxEntries = 1000
)

// extract copies the program out of an archive, and nothing else. Its name in the archive must be name: an entry with
// the name that is a link, or a second one, makes the archive invalid.
func extract(to io.Writer, archive *os.File, name string) error {
	size, err := archive.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = archive.Seek(0, io.SeekStart)
	}
	if err != nil {
		return err
	}
	find := fromTar
	if strings.HasSuffix(name, ".exe") {
		find = fromZip
	}
	if err := find(to, archive, size, name); err != nil {
		return fmt.Errorf("extract %s: %w", name, err)
	}
	return nil
}

var (
	errTwice   = errors.New("the archive has the program twice")
	errMissing = errors.New("the archive does not have the program")
	errEntries = fmt.Errorf("the archive has more than %d files", maxEntries)
	errSize    = fmt.Errorf("the archive has more than %d MiB uncompressed", maxProgram>>20)
)

// fromTar also bounds the bytes of the entries that it skips, because skipping reads them.
func fromTar(to io.Writer, archive *os.File, _ int64, name string) error {
	unzipped, err := gzip.NewReader(archive)
	if err != nil {
		return err
	}
	bounded := &io.LimitedReader{R: unzipped, N: maxProgram + 1}
	r, found, n := tar.NewReader(bounded), false, 0
	for ; ; n++ {
		h, err := r.Next()
		switch {
		case bounded.N <= 0:
			return errSize
		case errors.Is(err, io.EOF) && !found:
			return errMissing
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case n >= maxEntries:
			return errEntries
		case path.Clean(h.Name) != name:
			continue
		case h.Typeflag != tar.TypeReg:
			return fmt.Errorf("its entry is not a regular file (type %q)", h.Typeflag)
		case found:
			return errTwice
		}
		found = true
		if _, err := io.Copy(to, r); err != nil {
			if bounded.N <= 0 {
				return errSize
			}
			return err
		}
	}
}

func fromZip(to io.Writer, archive *os.File, size int64, name string) error {
	r, err := zip.NewReader(archive, size)
	if err != nil {
		return err
	}
	if len(r.File) > maxEntries {
		return errEntries
	}
	var program *zip.File
	for _, f := range r.File {
		switch {
		case path.Clean(f.Name) != name:
		case !f.Mode().IsRegular():
			return fmt.Errorf("its entry is not a regular file (mode %s)", f.Mode())
		case program != nil:
			return errTwice
		default:
			program = f
		}
	}
	if program == nil {
		return errMissing
	}
	content, err := program.Open()
	if err != nil {
		return err
	}
	defer content.Close() //nolint:errcheck // nothing was written
	n, err := io.Copy(to, io.LimitReader(content, maxProgram+1))
	if err == nil && n > maxProgram {
		err = errSize
	}
	return err
}
