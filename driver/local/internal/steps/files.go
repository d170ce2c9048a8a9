package steps

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/delegate-io/dlite/task/stage"
)

var errNotRegular = errors.New("it is not a regular file")

// writeFile makes f at rel below dir, and never outside of it. What is there
// already keeps its place, unless it is neither a file nor a folder: an earlier
// step may have left a pipe that nobody reads.
func WriteFile(dir, rel string, f *stage.File) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	mode := fs.FileMode(f.Mode) & fs.ModePerm
	if f.IsDir {
		if mode == 0 {
			mode = 0o755
		}
		if err := makeFolder(root, rel, mode); err != nil {
			return fmt.Errorf("make folder %q: %w", f.Path, err)
		}
		return nil
	}
	if mode == 0 {
		mode = 0o644
	}
	if err := root.MkdirAll(filepath.Dir(rel), 0o755); err != nil {
		return fmt.Errorf("make folder of %q: %w", f.Path, err)
	}
	if err := fillFile(root, rel, []byte(f.Data), mode); err != nil {
		return fmt.Errorf("write file %q: %w", f.Path, err)
	}
	return nil
}

// makeFolder makes rel and what is missing above it. A new folder gets exactly
// that mode, whatever the umask; one that is there is left as it is.
func makeFolder(root *os.Root, rel string, mode fs.FileMode) error {
	if info, err := root.Stat(rel); err == nil && info.IsDir() {
		return nil
	}
	if err := root.MkdirAll(rel, mode); err != nil {
		return err
	}
	return root.Chmod(rel, mode)
}

func fillFile(root *os.Root, rel string, data []byte, mode fs.FileMode) error {
	// Not blocking, should it be a pipe.
	f, err := root.OpenFile(rel, os.O_WRONLY|os.O_CREATE|syscall.O_NONBLOCK, mode)
	if err != nil {
		return err
	}
	err = func() error {
		if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
			return errNotRegular
		}
		if err := f.Truncate(0); err != nil {
			return err
		}
		if _, err := f.Write(data); err != nil {
			return err
		}
		return f.Chmod(mode)
	}()
	return errors.Join(err, f.Close())
}

// readFile gives the content of a file that a step wrote. The step may have put
// a link, a pipe, a device or anything else in its place, and may still be
// changing it: nothing but a regular file is read, never for ever and never
// more than limit.
func readFile(root *os.Root, rel string, limit int64) ([]byte, error) {
	info, err := root.Lstat(rel)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	f, err := root.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	// Only now it is certain what was opened.
	if opened, err := f.Stat(); err != nil || !os.SameFile(info, opened) {
		return nil, errNotRegular
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("it is larger than %d bytes", limit)
	}
	return b, nil
}
