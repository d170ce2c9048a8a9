// Package atomicfile replaces small files. A reader finds the old content or the new content, even
// after a crash.
//
//	err := atomicfile.WriteFile(path, content)
//
// Start reading at file.go.
package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
)

// Unfinished is the suffix of the temporary file beside the written file. A process that is killed
// leaves it. The next write of the same file replaces it.
const Unfinished = ".new"

// WriteFile creates or replaces a file with mode 0600, and returns when the content is on the disk.
// After an error the file has the old content, or its state after a crash of the machine is unknown. A
// file must have one writer at a time.
func WriteFile(path string, content []byte) error {
	if err := write(path, content, true); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// ReplaceFile is [WriteFile] without the wait for the disk. The content survives the process, but not
// a crash of the machine.
func ReplaceFile(path string, content []byte) error { return write(path, content, false) }

func write(path string, content []byte, sync bool) error {
	f, err := os.OpenFile(path+Unfinished, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil && sync {
		// Sync before the rename: after a crash the name must not exist without the content.
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
