package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/peterbourgon/ff/v3/ffcli"

	"github.com/delegate-io/dlite/examples/internal/program"
)

func installCommand() *ffcli.Command {
	c := &ffcli.Command{Name: "install", ShortUsage: "agent install <directory>", ShortHelp: "copy this program into a directory"}
	c.Exec = func(_ context.Context, args []string) error {
		args, err := program.Arguments(c.FlagSet, args, "directory")
		if err != nil {
			return err
		}
		return install(args[0])
	}
	return c
}

// install copies this program to the file agent of a directory, which it makes if it is
// missing. Another process sees the whole file or none.
func install(dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	from, err := os.Open(self)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	to, err := os.CreateTemp(dir, ".agent-*")
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Chmod(0o755), to.Close()); err == nil {
		err = os.Rename(to.Name(), filepath.Join(dir, "agent"))
	}
	if err != nil {
		_ = os.Remove(to.Name())
	}
	return err
}
