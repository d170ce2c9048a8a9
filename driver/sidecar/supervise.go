package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"github.com/delegate-io/dlite/internal/process"
	"github.com/delegate-io/dlite/internal/supervise"
)

// longestLine is the length of a part of a long line in the log, in bytes.
const longestLine = 64 << 10

// Run supervises the sidecar until ctx ends. It starts the command, restarts it when it
// ends or is unhealthy, and stops it when ctx ends. It returns when no process remains.
// Without a command, Run only waits for ctx. The caller must end ctx after the last task.
//
// Run does not start the command while another process listens at the address of the
// sidecar, because that process would get the tasks. It removes a unix socket without a
// listener before the start.
//
// If the command cannot be started, Run logs the error and tries again, because the
// delegate has other work. On Linux the process is killed when the delegate dies.
func (s *Sidecar) Run(ctx context.Context) {
	if s.program == "" {
		<-ctx.Done()
		return
	}
	(&supervise.Supervisor{
		Name: "the sidecar", Start: s.start, Check: s.check, Log: s.cfg.Log,
		Changed:        func(healthy bool, _ error) { s.state.set(healthy) },
		HealthInterval: s.cfg.HealthInterval, HealthFailures: s.cfg.HealthFailures, StartTimeout: s.cfg.StartTimeout,
		Pause: s.cfg.Pause, MaxPause: s.cfg.MaxPause, Grace: s.cfg.Grace,
	}).Run(ctx)
}

// start starts one process.
func (s *Sidecar) start(ctx context.Context) (supervise.Instance, error) {
	if err := s.checkAddress(ctx); err != nil {
		return nil, err
	}
	env := process.Environment()
	for _, v := range s.cfg.Env {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	cmd := &exec.Cmd{Path: s.program, Args: s.cfg.Command, Dir: s.cfg.Dir, Env: process.List(env)}
	out := &supervise.Lines{Longest: longestLine, Line: func(text []byte) {
		s.cfg.Log.Info().Str("output", string(text)).Msg("sidecar output")
	}}
	p, err := process.StartPiped(cmd, out, func() (*process.Group, error) { return process.Start(ctx, cmd, process.Options{}) })
	if err != nil {
		return nil, err
	}
	return supervise.Process{Piped: p, Out: out}, nil
}

// checkAddress fails if another process listens at the address: it would get the tasks.
// It removes the socket of a process that was killed.
func (s *Sidecar) checkAddress(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, s.network, s.address)
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("another process listens at %s", s.address)
	}
	if s.network != "unix" || !errors.Is(err, syscall.ECONNREFUSED) {
		return nil
	}
	if info, err := os.Lstat(s.address); err == nil && info.Mode().Type() == fs.ModeSocket {
		return os.Remove(s.address)
	}
	return nil
}

// check runs one health check.
func (s *Sidecar) check(ctx context.Context) error {
	if s.cfg.Health == "" {
		conn, err := (&net.Dialer{}).DialContext(ctx, s.network, s.address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/"+strings.TrimLeft(s.cfg.Health, "/"), http.NoBody)
	if err != nil {
		return err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("%s answers %d", s.cfg.Health, resp.StatusCode)
	}
	return nil
}

// state stores whether the process is healthy.
type state struct {
	mu sync.Mutex
	up chan struct{} // guarded by mu; closed while it is healthy
}

func (s *state) set(up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.up:
		if !up {
			s.up = make(chan struct{})
		}
	default:
		if up {
			close(s.up)
		}
	}
}

// await waits until the process is healthy.
func (s *state) await(ctx context.Context) error {
	s.mu.Lock()
	up := s.up
	s.mu.Unlock()
	select {
	case <-up:
		return nil
	default:
	}
	select {
	case <-up:
		return nil
	case <-ctx.Done():
		return errors.New("it is not healthy")
	}
}
