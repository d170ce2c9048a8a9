package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// removal is an order to remove a service.
type removal struct {
	record record
	// settings keeps the file config.env and the operator's changes of the unit.
	keepSettings bool
	// data removes the folder of the program's files.
	data   bool
	quiet  bool
	printf func(format string, args ...any)
}

// remove removes a service that has stopped: everything that the installation made and the program left.
func (i *installation) remove(ctx context.Context, r removal) error {
	if r.printf = i.printf; r.quiet {
		r.printf = func(string, ...any) {}
	}
	err := i.undefine(ctx, r)
	if r.record.Copied != "" {
		err = errors.Join(err, r.file(r.record.Copied), r.emptyDir(filepath.Dir(r.record.Copied)))
	}
	if r.keepSettings {
		r.printf("kept %s", i.paths.Settings)
	} else {
		err = errors.Join(err, r.file(i.paths.Settings), r.emptyDir(filepath.Dir(i.paths.Settings)))
	}
	err = errors.Join(err, r.tree(i.paths.Runtime))
	if r.data {
		err = errors.Join(err, r.tree(i.paths.State))
	} else if _, statErr := os.Stat(i.paths.State); statErr == nil {
		r.printf("kept %s, the data: remove it by hand, or with --delete-data", i.paths.State)
	}
	if r.record.Account != "" {
		if removed := i.removeAccount(ctx, r.record.Account); removed != nil {
			err = errors.Join(err, removed)
		} else {
			r.printf("removed the user %s", r.record.Account)
		}
	}
	return err
}

// file removes a file.
func (r removal) file(path string) error {
	err := os.Remove(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil:
		r.printf("removed %s", path)
	}
	return err
}

// tree removes a folder with everything in it.
func (r removal) tree(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	r.printf("removed %s", path)
	return nil
}

// emptyDir removes a folder if it is empty. Folders that the system has anyway are never removed.
func (r removal) emptyDir(path string) error {
	switch path {
	case "/usr/local/bin", "/etc":
		return nil
	}
	if entries, err := os.ReadDir(path); err != nil || len(entries) > 0 {
		return nil //nolint:nilerr // it is not there, or has files of others
	}
	return r.file(path)
}
