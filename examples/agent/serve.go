package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"

	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/driver/local"
	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/examples/internal/program"
	"github.com/delegate-io/dlite/examples/internal/storage"
	"github.com/delegate-io/dlite/internal/imds"
	"github.com/delegate-io/dlite/logger"
)

// settings configure the driver that runs the steps, and the agent's own log.
type settings struct {
	workDir, memoryDir, dockerHost, logLevel string
	grace                                    time.Duration
}

func (s *settings) register(fs *flag.FlagSet) {
	fs.StringVar(&s.workDir, "work-dir", "", "directory of the stage (default: the system's temporary directory)")
	fs.StringVar(&s.memoryDir, "memory-dir", "", "directory in memory, for values that must not be written to disk (default: /dev/shm if it exists)")
	fs.StringVar(&s.dockerHost, "docker-host", "", "engine for steps with an image (default: the environment's)")
	fs.DurationVar(&s.grace, "grace", 0, "time between SIGTERM and SIGKILL for a step that is stopped")
	fs.StringVar(&s.logLevel, "log-level", "info", "level of the agent's own log")
}

// driver returns the driver that runs the steps.
func (s *settings) driver() (*local.Driver, error) {
	return local.New(local.Config{
		Host:   host.Config{WorkDir: s.workDir, MemoryDir: s.memoryDir, Grace: s.grace, WholeMachine: true, Builtins: storage.Builtins()},
		Docker: local.DockerConfig{Host: s.dockerHost},
	})
}

func serveCommand() *ffcli.Command {
	var boot string
	var s settings
	fs := flag.NewFlagSet("agent serve", flag.ContinueOnError)
	fs.StringVar(&boot, "boot", "", "file with an agent.Boot as JSON; required")
	s.register(fs)
	return &ffcli.Command{
		Name: "serve", ShortUsage: "agent serve --boot FILE [flags]", ShortHelp: "serve until a signal comes", FlagSet: fs,
		Exec: func(ctx context.Context, args []string) error {
			if _, err := program.Arguments(fs, args); err != nil {
				return err
			}
			// The time and the seed of the file have no effect here.
			text, err := os.ReadFile(boot)
			if err != nil {
				return fmt.Errorf("--boot: %w", err)
			}
			b, err := readBoot(text)
			if err != nil {
				return err
			}
			return serve(ctx, b, &s, func() error { return nil })
		},
	}
}

// readBoot decodes an agent.Boot. Its error shows no part of it, because it has a key.
func readBoot(text []byte) (*agent.Boot, error) {
	b := &agent.Boot{}
	if err := json.Unmarshal(text, b); err != nil {
		return nil, errors.New("the settings of the agent are not an agent.Boot as JSON")
	}
	return b, nil
}

// endTime bounds the cleanup of the open stage after a signal.
const endTime = time.Minute

// serve runs an agent until ctx ends, and then ends its stage. It calls serving when the
// agent accepts connections.
func serve(ctx context.Context, b *agent.Boot, s *settings, serving func() error) (err error) {
	tls, err := b.TLS()
	if err != nil {
		return err
	}
	log, closer, err := logger.New(logger.Config{Level: s.logLevel})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closer.Close()) }()
	d, err := s.driver()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", b.Address())
	if err != nil {
		return err
	}
	if err := serving(); err != nil {
		return errors.Join(fmt.Errorf("tell the host: %w", err), l.Close())
	}
	var notice atomic.Pointer[agent.Interruption]
	if b.Metadata != "" {
		watching, stop := context.WithCancel(ctx)
		var watch sync.WaitGroup
		watch.Go(func() {
			imds.Watch(watching, b.Metadata, func(n imds.Notice) {
				log.Warn().Str("action", n.Action).Time("at", n.At).Msg("the cloud takes this machine away")
				notice.Store(&agent.Interruption{Action: n.Action, At: n.At})
			})
		})
		defer watch.Wait()
		defer stop()
	}
	a := agent.New(d, agent.Config{Version: program.Version(), Log: log, TempDir: s.workDir, Interruption: notice.Load})
	server := agent.Server(a.Handler(), tls)
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(l, "", "") }()
	log.Info().Str("address", l.Addr().String()).Msg("serving")
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	if endErr := a.Close(end); endErr != nil {
		err = errors.Join(err, fmt.Errorf("end the stage: %w", endErr))
	}
	if server.Shutdown(end) != nil {
		_ = server.Close()
	}
	if ctx.Err() != nil {
		if end := <-served; !errors.Is(end, http.ErrServerClosed) {
			err = errors.Join(err, end)
		}
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
