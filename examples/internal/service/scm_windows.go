package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"time"

	"github.com/kardianos/service"
	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
)

func (i *installation) checkPlatform(context.Context) error {
	if !windows.GetCurrentProcessToken().IsElevated() {
		return errors.New("a service needs the rights of an administrator: open the terminal as administrator")
	}
	if i.rights == Docker {
		return errors.New("--rights docker: Windows has no such rights: choose own, or root for LocalSystem")
	}
	return nil
}

// release stops the service: Windows does not replace a program that runs.
func (i *installation) release(ctx context.Context) error { return i.halt(ctx) }

// createAccount does nothing: Windows makes the account of a service itself.
func (i *installation) createAccount(_ context.Context, made *record) error {
	made.Rights = i.rights
	return nil
}

// protectSettings does nothing: define sets the rights when the account exists.
func (i *installation) protectSettings() error { return nil }

// define registers the service, and gives its account the folders. A service that is registered stays as it is, unless
// its rights change.
func (i *installation) define(ctx context.Context, binary string, _ record) error {
	if err := i.makeFolders(); err != nil {
		return err
	}
	if st, err := i.state(ctx); err != nil {
		return err
	} else if st != Missing {
		n, err := i.native()
		if err == nil {
			err = n.Uninstall()
		}
		if err != nil {
			return err
		}
	}
	w := i.onWindows(i.paths, i.about, binary, i.rights)
	n, err := service.New(idle{}, &service.Config{
		Name: w.Name, DisplayName: w.DisplayName, Description: w.DisplayName, Executable: w.Executable, Arguments: w.Arguments,
		UserName: w.UserName, EnvVars: w.Environment,
		Option: service.KeyValue{
			service.StartType: service.ServiceStartAutomatic, service.OnFailure: service.OnFailureRestart,
			service.OnFailureDelayDuration: w.RestartAfter, service.OnFailureResetPeriod: 60,
		},
	})
	if err != nil {
		return err
	}
	if err := n.Install(); err != nil {
		return fmt.Errorf("registering the service: %w", err)
	}
	account := w.UserName
	if account == "" {
		account = `NT AUTHORITY\SYSTEM`
	}
	// The name of the group of administrators depends on the language of the system; S-1-5-32-544 is its number.
	for path, right := range map[string]string{i.paths.Settings: "R", i.paths.State: "(OI)(CI)F", i.paths.Runtime: "(OI)(CI)F"} {
		own := "F"
		if right != "R" {
			own = right
		}
		if err := grant(ctx, path, "*S-1-5-32-544:"+own, "*S-1-5-18:"+own, account+":"+right); err != nil {
			return err
		}
	}
	return nil
}

// grant replaces the rights on a file or folder.
func grant(ctx context.Context, path string, rights ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	args := append([]string{path, "/inheritance:r", "/grant:r"}, rights...)
	if out, err := exec.CommandContext(ctx, "icacls", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("protecting %s: icacls: %w: %s", path, err, bytes.TrimSpace(out))
	}
	return nil
}

// awaitStopped waits until the process has ended.
func (s Service) awaitStopped(ctx context.Context) error {
	for {
		st, err := s.state(ctx)
		if err != nil || st != Running {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(tick):
		}
	}
}

// Run runs the program. As a service of Windows it obeys the service manager: an order to stop ends the context, and
// the program drains.
func Run(ctx context.Context, run func(context.Context) error) error {
	if is, err := svc.IsWindowsService(); err != nil || !is {
		return run(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h := &hosted{run: run, ctx: ctx, cancel: cancel, exit: exitOnFailure}
	n, err := service.New(h, &service.Config{Name: "dlite"}) // a process with one service may use any name
	if err != nil {
		return err
	}
	if err := n.Run(); err != nil {
		return err
	}
	return h.err
}

// hosted is a program that the service manager of Windows started.
type hosted struct {
	run     func(context.Context) error
	ctx     context.Context //nolint:containedctx // kardianos/service calls back without Run's context
	cancel  context.CancelFunc
	exit    func(error)
	running sync.WaitGroup
	err     error
}

// Start starts the program. If it ends by itself, the process ends at once, so that the service manager restarts it.
func (h *hosted) Start(service.Service) error {
	h.running.Go(func() {
		h.err = h.run(h.ctx)
		if h.ctx.Err() == nil {
			h.exit(h.err)
		}
	})
	return nil
}

// Stop returns when the program has drained.
func (h *hosted) Stop(service.Service) error {
	h.cancel()
	h.running.Wait()
	return nil
}
