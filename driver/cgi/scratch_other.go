//go:build !linux

package cgi

import (
	"errors"
	"io"
	"os"
)

// isEmpty reports whether dir is empty and has the mode of its creation.
func isEmpty(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 && os.PathSeparator == '/' {
		return false
	}
	f, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	_, err = f.Readdirnames(1)
	return errors.Is(err, io.EOF)
}
