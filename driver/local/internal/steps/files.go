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

// WriteFile creates f at rel below dir, and never outside dir. It keeps an existing file in place. It
// fails if rel is neither a file nor a directory: an earlier step may have left a pipe without a
// reader.
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
		if err := makeDirectory(root, rel, mode); err != nil {
			return fmt.Errorf("make directory %q: %w", f.Path, err)
		}
		return nil
	}
	if mode == 0 {
		mode = 0o644
	}
	if err := root.MkdirAll(filepath.Dir(rel), 0o755); err != nil {
		return fmt.Errorf("make parent directory of %q: %w", f.Path, err)
	}
	if err := fillFile(root, rel, []byte(f.Data), mode); err != nil {
		return fmt.Errorf("write file %q: %w", f.Path, err)
	}
	return nil
}

// makeDirectory creates rel and the missing directories above it. A new directory gets exactly the
// given mode, whatever the umask is. An existing directory is not changed.
func makeDirectory(root *os.Root, rel string, mode fs.FileMode) error {
	if info, err := root.Stat(rel); err == nil && info.IsDir() {
		return nil
	}
	if err := root.MkdirAll(rel, mode); err != nil {
		return err
	}
	return root.Chmod(rel, mode)
}

func fillFile(root *os.Root, rel string, data []byte, mode fs.FileMode) error {
	// A process that starts meanwhile would hold the file open for writing until it executes its program. A
	// step could not execute the file then.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	// The file may be a pipe: do not block.
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

// readFile returns the content of a file that a step wrote. The step may have replaced the file by a
// link, a pipe or a device, and may still change it. readFile reads regular files only, never blocks,
// and fails if the file is larger than limit.
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
	// The file may have been replaced between Lstat and OpenFile.
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
