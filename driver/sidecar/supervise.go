package sidecar

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/delegate-io/dlite/internal/process"
)

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
	pause := s.cfg.Pause
	for ctx.Err() == nil {
		healthy, err := s.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if healthy >= s.cfg.MaxPause {
			pause = s.cfg.Pause
		}
		s.cfg.Log.Warn().Err(err).Stringer("again_in", pause).Msg("the sidecar has ended")
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		pause = min(2*pause, s.cfg.MaxPause)
	}
}

// once starts one process and waits for its end. It returns the time during which the
// process was healthy, and the reason for its end.
func (s *Sidecar) once(ctx context.Context) (time.Duration, error) {
	if err := s.checkAddress(ctx); err != nil {
		return 0, err
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	env := process.Environment()
	for _, v := range s.cfg.Env {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	g, err := process.Start(ctx, &exec.Cmd{
		Path: s.program, Args: s.cfg.Command, Dir: s.cfg.Dir, Env: process.List(env), Stdout: writer, Stderr: writer,
	}, process.Options{})
	_ = writer.Close()
	if err != nil {
		_ = reader.Close()
		return 0, fmt.Errorf("start: %w", err)
	}
	var printing sync.WaitGroup
	printing.Go(func() { s.print(reader) })
	s.cfg.Log.Info().Msg("the sidecar is started")
	healthy, why := s.watch(ctx, g)
	s.state.set(false)
	var state *os.ProcessState
	select {
	case <-g.Exited():
		state = g.End()
		why = fmt.Errorf("it ended by itself: %s", state)
	default:
		g.Stop(process.Patience{Grace: s.cfg.Grace})
	}
	// A process that left the process group may hold the pipe open.
	_ = reader.SetReadDeadline(time.Now().Add(time.Second))
	printing.Wait()
	_ = reader.Close()
	return healthy, why
}

// checkAddress fails if another process listens at the address: it would get the tasks.
// It removes the socket of a process that was killed.
func (s *Sidecar) checkAddress(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, s.network, s.address)
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("start: another process listens at %s", s.address)
	}
	if s.network != "unix" || !errors.Is(err, syscall.ECONNREFUSED) {
		return nil
	}
	if info, err := os.Lstat(s.address); err == nil && info.Mode().Type() == fs.ModeSocket {
		return os.Remove(s.address)
	}
	return nil
}

// errEnded means that the process has ended. The caller reads its state.
var errEnded = errors.New("ended")

// watch returns when the process has ended or is unhealthy, or when ctx has ended.
func (s *Sidecar) watch(ctx context.Context, g *process.Group) (healthy time.Duration, why error) {
	if why = s.awaitHealth(ctx, g); why != nil {
		return 0, why
	}
	s.cfg.Log.Info().Msg("the sidecar is healthy")
	s.state.set(true)
	since := time.Now()
	ticker := time.NewTicker(s.cfg.HealthInterval)
	defer ticker.Stop()
	for failures := 0; ; {
		select {
		case <-g.Exited():
			return time.Since(since), errEnded
		case <-ctx.Done():
			return time.Since(since), ctx.Err()
		case <-ticker.C:
		}
		err := s.check(ctx)
		if err == nil {
			failures = 0
			continue
		}
		if failures++; failures >= s.cfg.HealthFailures {
			return time.Since(since), fmt.Errorf("it is not healthy: %w", err)
		}
	}
}

// awaitHealth returns when a started process is healthy.
func (s *Sidecar) awaitHealth(ctx context.Context, g *process.Group) error {
	over := time.NewTimer(s.cfg.StartTimeout)
	defer over.Stop()
	ticker := time.NewTicker(min(retryInterval, s.cfg.StartTimeout))
	defer ticker.Stop()
	for {
		err := s.check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-g.Exited():
			return errEnded
		case <-ctx.Done():
			return ctx.Err()
		case <-over.C:
			return fmt.Errorf("it was not healthy within %s: %w", s.cfg.StartTimeout, err)
		case <-ticker.C:
		}
	}
}

// check runs one health check.
func (s *Sidecar) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
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

// print logs the output of the process.
func (s *Sidecar) print(r io.Reader) {
	const longest = 64 << 10
	lines := bufio.NewReaderSize(r, longest)
	for {
		line, err := lines.ReadSlice('\n')
		if text := strings.TrimRight(string(line), "\r\n"); text != "" {
			s.cfg.Log.Info().Str("output", text).Msg("sidecar output")
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
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
