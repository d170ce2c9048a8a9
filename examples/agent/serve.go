package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/driver/local"
	"github.com/delegate-io/dlite/driver/local/docker"
	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/logger"
)

// settings are those of the driver that runs the steps, and of the agent's own log.
type settings struct {
	WorkDir    string        `name:"work-dir" help:"Folder of the stage. The default is the system's temporary folder." placeholder:"DIR"`
	MemoryDir  string        `name:"memory-dir" help:"Folder in memory, for what must not touch a disk. The default is /dev/shm where there is one." placeholder:"DIR"`
	DockerHost string        `name:"docker-host" help:"Engine for steps with an image. The default is the environment's." placeholder:"URL"`
	Grace      time.Duration `name:"grace" help:"Time between SIGTERM and SIGKILL for a step that is stopped." placeholder:"TIME"`
	LogLevel   string        `name:"log-level" help:"Level of the agent's own log." default:"info"`
}

// driver makes the driver.
func (s *settings) driver() (*local.Driver, error) {
	return local.New(local.Config{
		Host:   host.Config{WorkDir: s.WorkDir, MemoryDir: s.MemoryDir, Grace: s.Grace},
		Docker: docker.Config{Host: s.DockerHost},
	})
}

type serveCommand struct {
	Boot string `name:"boot" help:"File with an agent.Boot as JSON." required:"" placeholder:"FILE"`
	settings
}

// Run serves as the file says. Its time and seed have no meaning here.
func (c *serveCommand) Run(ctx context.Context) error {
	text, err := os.ReadFile(c.Boot)
	if err != nil {
		return err
	}
	b, err := readBoot(text)
	if err != nil {
		return err
	}
	return serve(ctx, b, &c.settings, func() error { return nil })
}

// readBoot decodes an agent.Boot. No error shows any of it: it holds a key.
func readBoot(text []byte) (*agent.Boot, error) {
	b := &agent.Boot{}
	if err := json.Unmarshal(text, b); err != nil {
		return nil, errors.New("what the agent was told is not an agent.Boot as JSON")
	}
	return b, nil
}

// endTime bounds the end of a stage that is under way when a signal comes.
const endTime = time.Minute

// serve runs an agent until ctx ends, and ends its stage then. It calls serving once
// connections are taken.
func serve(ctx context.Context, b *agent.Boot, s *settings, serving func() error) (err error) {
	tls, err := b.TLS()
	if err != nil {
		return err
	}
	log, closer, err := logger.New(logger.Config{Level: s.LogLevel})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closer.Close()) }()
	d, err := s.driver()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	listen := b.Listen
	if listen == "" {
		listen = agent.DefaultListen
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	if err := serving(); err != nil {
		return errors.Join(fmt.Errorf("tell the host: %w", err), l.Close())
	}
	a := agent.New(d, agent.Config{Version: version(), Log: log, TempDir: s.WorkDir})
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
