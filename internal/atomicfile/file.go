// Package atomicfile writes small files such that who reads one finds its old content
// or its new one, whoever dies in between.
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

// Unfinished ends the name of a file beside the one that is written, which a
// process leaves there when it is killed. The next write of the same file
// replaces it.
const Unfinished = ".new"

// WriteFile gives a file another content, or makes it, with mode 0600, and returns
// when that is on the disk. An error leaves the old content, or says that it is not
// known what a crash of the machine leaves. One file is for one writer at a time.
func WriteFile(path string, content []byte) error {
	if err := write(path, content, true); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// ReplaceFile is [WriteFile] without waiting for the disk: the content survives the
// process, and not a crash of the machine.
func ReplaceFile(path string, content []byte) error { return write(path, content, false) }

func write(path string, content []byte, sync bool) error {
	f, err := os.OpenFile(path+Unfinished, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil && sync {
		// Before it has its name: a crash must not leave the name alone.
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
