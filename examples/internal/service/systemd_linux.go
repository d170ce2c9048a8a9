package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// The units are written here and not by kardianos/service, which serves launchd and Windows: it cannot install again,
// waits for the registration at each start, and takes a program that starts or drains for one that is not installed.

// minSystemd is the first version with LoadCredential.
const minSystemd = 247

// callTimeout limits calls of systemd that wait for nothing.
const callTimeout = 30 * time.Second

// systemctl runs systemctl and returns its output.
func (s Service) systemctl(ctx context.Context, args ...string) (string, error) {
	if s.User {
		args = append([]string{"--user"}, args...)
	}
	cmd := exec.CommandContext(ctx, "systemctl", args...)
	cmd.Env = os.Environ()
	if s.User && os.Getenv("XDG_RUNTIME_DIR") == "" {
		cmd.Env = append(cmd.Env, fmt.Sprintf("XDG_RUNTIME_DIR=/run/user/%d", os.Getuid()))
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// call is systemctl with a time-out.
func (s Service) call(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return s.systemctl(ctx, args...)
}

func (i *installation) checkPlatform(ctx context.Context) error {
	switch {
	case !i.User && os.Geteuid() != 0:
		return fmt.Errorf("a service of the system needs root: use sudo, or install a service of this user with --user")
	case i.User && os.Geteuid() == 0:
		return fmt.Errorf("--user installs a service of the current user, which is root: leave the flag out")
	case i.User && i.rights != Own:
		return fmt.Errorf("--user: a service of a user has the rights of the user: leave --rights out")
	}
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return fmt.Errorf("systemd does not run on this machine: run \"%s server\" under your own service manager", i.Program)
	}
	out, err := i.call(ctx, "--version")
	if err != nil {
		return err
	}
	if v := systemdVersion(out); v < minSystemd {
		return fmt.Errorf("systemd %d is too old: version %d or later is needed; run \"%s server\" under a unit of your own", v, minSystemd, i.Program)
	}
	if i.rights == Docker {
		if _, err := user.LookupGroup("docker"); err != nil {
			return errors.New("--rights docker: there is no group docker: install a Docker engine first")
		}
	}
	return nil
}

// systemdVersion reads the output of systemctl --version. It returns 0 for an unknown form.
func systemdVersion(out string) int {
	if fields := strings.Fields(out); len(fields) > 1 {
		n, _ := strconv.Atoi(strings.TrimRight(strings.SplitN(fields[1], ".", 2)[0], "~rc"))
		return n
	}
	return 0
}

func (i *installation) installed(context.Context) (record, bool, error) {
	r, found := readRecord(i.paths.Definition)
	return r, found, nil
}

// release does nothing: a program that runs can be replaced.
func (i *installation) release(context.Context) error { return nil }

func (i *installation) createAccount(ctx context.Context, made *record) error {
	made.Rights = i.rights
	if i.User || i.rights == Root {
		return nil
	}
	if i.account == "" {
		i.account = i.Name
	}
	if _, err := user.Lookup(i.account); err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	group := []string{"--user-group"}
	if _, err := user.LookupGroup(i.account); err == nil {
		group = []string{"--gid", i.account}
	}
	out, err := exec.CommandContext(ctx, "useradd", append(group, "--system", "--no-create-home",
		"--home-dir", i.paths.State, "--shell", "/usr/sbin/nologin", "--comment", i.about, i.account)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("creating the user %s: useradd: %w: %s", i.account, err, bytes.TrimSpace(out))
	}
	made.Account = i.account
	return nil
}

func (i *installation) removeAccount(ctx context.Context, name string) error {
	if _, err := user.Lookup(name); err != nil {
		return nil //nolint:nilerr // it is gone
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "userdel", name).CombinedOutput(); err != nil {
		return fmt.Errorf("removing the user %s: userdel: %w: %s", name, err, bytes.TrimSpace(out))
	}
	if _, err := user.LookupGroup(name); err != nil {
		return nil //nolint:nilerr // userdel has removed it, as most systems configure it
	}
	if out, err := exec.CommandContext(ctx, "groupdel", name).CombinedOutput(); err != nil {
		return fmt.Errorf("removing the group %s: groupdel: %w: %s", name, err, bytes.TrimSpace(out))
	}
	return nil
}

// protectSettings does nothing: the file belongs to root or the user, and its mode is enough.
func (i *installation) protectSettings() error { return nil }

// define writes the unit and enables it.
func (i *installation) define(ctx context.Context, binary string, made record) error {
	if i.User {
		if err := os.MkdirAll(i.paths.State, 0o700); err != nil {
			return err
		}
	}
	u := unit{
		Service: i.Service, At: i.paths, About: i.about, Account: i.account, Rights: i.rights, Binary: binary,
		Watchdog: i.watchdog, Record: made, Ports: i.ports,
	}
	if err := writeFile(i.paths.Definition, []byte(u.text()), 0o644); err != nil {
		return fmt.Errorf("writing the unit: %w", err)
	}
	if _, err := i.call(ctx, "daemon-reload"); err != nil {
		return err
	}
	if _, err := i.call(ctx, "enable", "--quiet", i.unitName()); err != nil {
		return err
	}
	if i.User {
		i.linger(ctx)
	}
	return nil
}

// linger lets the services of the user run while the user is not logged in.
func (i *installation) linger(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "loginctl", "enable-linger").CombinedOutput(); err != nil {
		i.printf("warning: the service stops when you log out: run \"sudo loginctl enable-linger $USER\" (%s)", bytes.TrimSpace(out))
	}
}

// undefine disables and removes the unit, and ends the processes that the program left running.
func (i *installation) undefine(ctx context.Context, r removal) error {
	if i.mustExist() != nil {
		return nil // the installation has not come so far
	}
	_, _ = i.call(ctx, "kill", "--kill-who=all", "--signal=KILL", i.unitName()) // fails if nothing runs
	_, err := i.call(ctx, "disable", "--quiet", i.unitName())
	err = errors.Join(err, r.file(i.paths.Definition))
	if !r.keepSettings {
		if _, statErr := os.Stat(i.paths.Definition + ".d"); statErr == nil {
			err = errors.Join(err, r.tree(i.paths.Definition+".d"))
		}
	}
	_, reload := i.call(ctx, "daemon-reload")
	_, _ = i.call(ctx, "reset-failed", i.unitName()) // fails if systemd has forgotten the unit
	return errors.Join(err, reload)
}

func (s Service) unitName() string { return s.Name + ".service" }

// begin starts the service, or restarts it after its drain. It does not wait until the program is ready.
func (s Service) begin(ctx context.Context, again bool) error {
	if err := s.mustExist(); err != nil {
		return err
	}
	_, _ = s.call(ctx, "reset-failed", s.unitName()) // fails if it has not failed
	if !again {
		_, err := s.call(ctx, "start", "--no-block", s.unitName())
		return err
	}
	old, err := s.mainPID(ctx)
	if err != nil {
		return err
	}
	// Without waiting for the job, because that ends when the new process is ready. If this command is interrupted,
	// systemd still carries the restart out.
	if _, err := s.call(ctx, "restart", "--no-block", s.unitName()); err != nil {
		return err
	}
	for old != "0" {
		pid, err := s.mainPID(ctx)
		if err != nil || pid != old {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(tick):
		}
	}
	return nil
}

// mainPID returns the id of the process of the service, or 0 if there is none.
func (s Service) mainPID(ctx context.Context) (string, error) {
	out, err := s.call(ctx, "show", "--property=MainPID", "--value", s.unitName())
	return strings.TrimSpace(out), err
}

// halt stops the service after its drain.
func (s Service) halt(ctx context.Context) error {
	if err := s.mustExist(); err != nil {
		return err
	}
	_, err := s.systemctl(ctx, "stop", s.unitName())
	return err
}

func (s Service) mustExist() error {
	paths, err := s.Paths()
	if err != nil {
		return err
	}
	if _, err := os.Stat(paths.Definition); err != nil {
		return fmt.Errorf("%s is not installed: there is no %s", s.Name, filepath.Base(paths.Definition))
	}
	return nil
}

// state returns the state of the service that systemd knows.
func (s Service) state(ctx context.Context) (State, error) {
	if s.mustExist() != nil {
		return Missing, nil
	}
	out, err := s.call(ctx, "show", "--property=ActiveState", "--value", s.unitName())
	if err != nil {
		return "", err
	}
	switch strings.TrimSpace(out) {
	case "active", "reloading":
		return Running, nil
	case "activating":
		return Starting, nil
	case "deactivating":
		return Draining, nil
	case "failed":
		return Failed, nil
	}
	return Stopped, nil
}

func (s Service) logAdvice() string {
	if s.User {
		return "journalctl --user -u " + s.Name
	}
	return "journalctl -u " + s.Name
}
