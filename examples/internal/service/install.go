package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// installation is an order to install a service.
type installation struct {
	Service
	paths Paths
	// about describes the service for people.
	about string
	// check checks a file of settings.
	check func(file string) error
	// settings is the file to copy, or empty to keep the installed one.
	settings string
	rights   Rights
	ports    bool // see Program
	// account is the user that runs the program, or empty for the default of the rights.
	account  string
	watchdog time.Duration
	start    bool
	wait     time.Duration
	out      io.Writer
}

func (i *installation) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(i.out, format+"\n", args...) // a closed output must not stop the installation
}

// run installs the service, or installs it again with the present program. It keeps the settings unless it gets a new
// file. If a first installation fails before the start, it removes everything again.
func (i *installation) run(ctx context.Context) (err error) {
	if err := i.checkPlatform(ctx); err != nil {
		return err
	}
	old, again, err := i.installed(ctx)
	if err != nil {
		return err
	}
	if err := i.checkSettings(); err != nil {
		return err
	}
	made := old
	defer func() {
		if err != nil && !again {
			err = errors.Join(err, i.remove(context.WithoutCancel(ctx), removal{record: made, data: true, quiet: true}))
		}
	}()
	if again {
		if err := i.release(ctx); err != nil {
			return err
		}
	}
	binary, err := i.copyProgram(&made)
	if err != nil {
		return err
	}
	if err := i.createAccount(ctx, &made); err != nil {
		return err
	}
	if err := i.writeSettings(); err != nil {
		return err
	}
	if err := i.define(ctx, binary, made); err != nil {
		return err
	}
	verb := "installed"
	if again {
		verb = "installed again"
	}
	i.printf("%s is %s: program %s, settings %s", i.Name, verb, binary, i.paths.Settings)
	if !i.start {
		i.printf("start it with: %s start%s", i.Program, i.flags())
		return nil
	}
	if again {
		return i.Restart(ctx, i.wait, i.out)
	}
	again = true // from here on the installation stays
	return i.Start(ctx, i.wait, i.out)
}

// flags returns the flags that name the service, for advice.
func (s Service) flags() (f string) {
	if s.User {
		f += " --user"
	}
	if s.Name != DefaultName(s.Program) {
		f += " --name " + s.Name
	}
	return f
}

func (i *installation) checkSettings() error {
	file := i.settings
	if file == "" {
		file = i.paths.Settings
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("--env-file is missing: name a file with settings; \"%s settings\" lists them", i.Program)
		}
	}
	if err := i.check(file); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// copyProgram copies the running program to its place, and returns the program that the service starts. A program
// that a package has installed stays where it is, so that an upgrade of the package upgrades the service.
func (i *installation) copyProgram(made *record) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return "", err
	}
	if self == i.paths.Binary || !i.User && isPackaged(self) {
		return self, nil
	}
	if err := copyFile(i.paths.Binary, self, 0o755); err != nil {
		return "", fmt.Errorf("copying the program: %w", err)
	}
	made.Copied = i.paths.Binary
	return i.paths.Binary, nil
}

// isPackaged reports whether a program is at a place for packages.
func isPackaged(program string) bool {
	for _, dir := range []string{"/usr/bin/", "/usr/sbin/", "/usr/lib/", "/usr/libexec/", "/opt/", "/nix/", "/snap/"} {
		if runtime.GOOS != "windows" && strings.HasPrefix(program, dir) {
			return true
		}
	}
	return false
}

// writeSettings copies the settings. Only root, or the user of a user's service, can read them.
func (i *installation) writeSettings() error {
	if i.settings == "" {
		return nil
	}
	text, err := os.ReadFile(i.settings)
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(i.paths.Settings); err == nil && !bytes.Equal(old, text) {
		i.printf("the settings in %s are replaced", i.paths.Settings)
	}
	if err := writeFile(i.paths.Settings, text, 0o600); err != nil {
		return fmt.Errorf("writing the settings: %w", err)
	}
	return i.protectSettings()
}

// copyFile replaces a file by a copy of another one.
func copyFile(to, from string, mode fs.FileMode) error {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // it was only read
	return replace(to, mode, func(w io.Writer) error {
		_, err := io.Copy(w, r)
		return err
	})
}

// writeFile replaces a file.
func writeFile(to string, text []byte, mode fs.FileMode) error {
	return replace(to, mode, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// replace writes a new file beside the old one and then takes its place, so that the file is always complete. A
// process that runs the old program continues with it.
func replace(to string, mode fs.FileMode, write func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	w, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+".new-*")
	if err != nil {
		return err
	}
	err = write(w)
	if err == nil {
		err = w.Chmod(mode)
	}
	if err == nil {
		err = w.Sync()
	}
	if err = errors.Join(err, w.Close()); err == nil {
		err = os.Rename(w.Name(), to)
	}
	if err != nil {
		return errors.Join(err, os.Remove(w.Name()))
	}
	return nil
}
