package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
)

type installCommand struct {
	Dir string `arg:"" help:"Folder, which is made when it is missing."`
}

// Run copies this program to agent in the folder. Who looks finds all of it or none.
func (c *installCommand) Run() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	from, err := os.Open(self)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	to, err := os.CreateTemp(c.Dir, ".agent-*")
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Chmod(0o755), to.Close()); err == nil {
		err = os.Rename(to.Name(), filepath.Join(c.Dir, "agent"))
	}
	if err != nil {
		_ = os.Remove(to.Name())
	}
	return err
}

// version is what this program was built from.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
