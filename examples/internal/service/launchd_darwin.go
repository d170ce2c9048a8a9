package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	"github.com/kardianos/service"
)

func (i *installation) checkPlatform(context.Context) error {
	switch {
	case !i.User && os.Geteuid() != 0:
		return errors.New("a service of the system needs root: use sudo, or install a service of this user with --user")
	case i.User && os.Geteuid() == 0:
		return errors.New("--user installs a service of the current user, which is root: leave the flag out")
	case i.rights == Docker:
		return errors.New("--rights docker: macOS has no group for a Docker engine: leave --rights out")
	}
	return nil
}

// release does nothing: a program that runs can be replaced.
func (i *installation) release(context.Context) error { return nil }

// createAccount chooses the user that called sudo: macOS has no simple way to make a user, and tools for builds expect
// a real one.
func (i *installation) createAccount(_ context.Context, made *record) error {
	made.Rights = i.rights
	if i.User || i.rights == Root {
		return nil
	}
	i.account = os.Getenv("SUDO_USER")
	if i.account == "" || i.account == "root" {
		return errors.New("the service needs a user: call sudo as that user, or choose root with --rights root")
	}
	return nil
}

// protectSettings gives the settings and the folders to the user of the service.
func (i *installation) protectSettings() error { return i.giveToAccount(i.paths.Settings) }

func (i *installation) giveToAccount(path string) error {
	if i.account == "" {
		return nil
	}
	u, err := user.Lookup(i.account)
	if err != nil {
		return err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return err
	}
	return os.Chown(path, uid, gid)
}

// define writes the property list. launchd reads it at the start.
func (i *installation) define(ctx context.Context, binary string, _ record) error {
	if err := i.makeFolders(); err != nil {
		return err
	}
	for _, path := range []string{i.paths.State, i.paths.Runtime, i.paths.Settings} {
		if err := i.giveToAccount(path); err != nil {
			return err
		}
	}
	text := plist{Service: i.Service, At: i.paths, Binary: binary, Account: i.account}.text()
	if _, err := os.Stat(i.paths.Definition); errors.Is(err, fs.ErrNotExist) {
		n, err := service.New(idle{}, &service.Config{
			Name: i.Name, Executable: binary, Option: service.KeyValue{"UserService": i.User, "LaunchdConfig": text},
		})
		if err != nil {
			return err
		}
		return n.Install()
	}
	if err := i.halt(ctx); err != nil { // launchd keeps a list that it has read
		return err
	}
	return writeFile(i.paths.Definition, []byte(text), 0o644)
}

// awaitStopped waits until launchd has ended the process.
func (s Service) awaitStopped(ctx context.Context) error {
	paths, err := s.Paths()
	if err != nil {
		return err
	}
	for {
		if _, err := Read(ctx, paths.Socket()); errors.Is(err, ErrNotRunning) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stopping %s (%s): %w", s.Name, filepath.Base(paths.Definition), ctx.Err())
		case <-time.After(tick):
		}
	}
}
