//go:build darwin || windows

package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kardianos/service"
)

// launchd and Windows are called through kardianos/service.

// idle is the program of a service that is only controlled.
type idle struct{}

func (idle) Start(service.Service) error { return nil }
func (idle) Stop(service.Service) error  { return nil }

// native returns the service as the service manager knows it.
func (s Service) native() (service.Service, error) {
	return service.New(idle{}, &service.Config{Name: s.Name, Option: service.KeyValue{"UserService": s.User}})
}

func (s Service) state(context.Context) (State, error) {
	n, err := s.native()
	if err != nil {
		return "", err
	}
	st, err := n.Status()
	switch {
	case errors.Is(err, service.ErrNotInstalled):
		return Missing, nil
	case err != nil:
		return "", fmt.Errorf("asking the service manager: %w", err)
	case st == service.StatusRunning:
		return Running, nil
	}
	return Stopped, nil
}

// begin starts the service, or restarts it after its drain.
func (s Service) begin(ctx context.Context, again bool) error {
	if again {
		if err := s.halt(ctx); err != nil {
			return err
		}
	}
	n, err := s.native()
	if err != nil {
		return err
	}
	if err := n.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", s.Name, err)
	}
	return nil
}

// halt stops the service after its drain.
func (s Service) halt(ctx context.Context) error {
	st, err := s.state(ctx)
	if err != nil {
		return err
	}
	if st == Missing {
		return fmt.Errorf("%s is not installed", s.Name)
	}
	n, err := s.native()
	if err != nil || st == Stopped {
		return err
	}
	if err := n.Stop(); err != nil {
		return fmt.Errorf("stopping %s: %w", s.Name, err)
	}
	return s.awaitStopped(ctx)
}

func (i *installation) installed(ctx context.Context) (record, bool, error) {
	st, err := i.state(ctx)
	if err != nil || st == Missing {
		return record{}, false, err
	}
	r := record{}
	if _, err := os.Stat(i.paths.Binary); err == nil {
		r.Copied = i.paths.Binary // install copies the program always, or a package manager has it elsewhere
	}
	return r, true, nil
}

// makeFolders makes the folders of the state and of the socket.
func (i *installation) makeFolders() error {
	for _, dir := range []string{i.paths.State, i.paths.Runtime} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// undefine removes the service, and its log.
func (i *installation) undefine(ctx context.Context, r removal) error {
	st, err := i.state(ctx)
	if err != nil || st == Missing {
		return err
	}
	n, err := i.native()
	if err != nil {
		return err
	}
	if err := n.Uninstall(); err != nil {
		return fmt.Errorf("removing %s: %w", i.Name, err)
	}
	r.printf("removed the service %s", i.Name)
	return nil
}

// removeAccount does nothing: install creates no user here.
func (i *installation) removeAccount(context.Context, string) error { return nil }

func (s Service) logAdvice() string {
	paths, err := s.Paths()
	if err != nil {
		return "the log of the program"
	}
	return filepath.FromSlash(paths.log())
}
