package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/driver/cgi"
	"github.com/delegate-io/dlite/driver/sidecar"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
)

// StandaloneConfig configures tasks that belong to no stage (rules D8, D9). It is exported so that the config can
// embed it.
type StandaloneConfig struct {
	CGITypes []string `env:"CGI_TYPES" help:"comma-separated task types to announce for programs that tasks name (CGI); programs of other types run too if the manager sends them"`
	CGICache string   `env:"CGI_CACHE_DIR" help:"folder of the programs of standalone tasks; default: dlite/cgi in the user's cache folder"`
	CGISize  int64    `env:"CGI_CACHE_MAX_SIZE_MB" help:"largest size of CGI_CACHE_DIR in MiB; the programs that were unused for longest are removed first; default: 10240"`
	CGIAge   int      `env:"CGI_CACHE_MAX_AGE_DAYS" help:"days after which an unused program is removed from CGI_CACHE_DIR; default: 30"`
	CGIDeps  bool     `env:"CGI_INSTALL_DEPS" help:"install the packages that a task's repository names (apt-get, brew); default: false"`
	CGIEnv   []string `env:"CGI_ENV" help:"comma-separated variables for CGI programs, as NAME=value; the programs inherit none"`

	DaemonSets bool `env:"DAEMON_SETS" envDefault:"true" help:"run the daemon sets that the manager wants on this delegate, as processes and containers"`

	SidecarURL     string   `env:"SIDECAR_URL" help:"address at which a legacy process takes tasks: http://host:port or unix:///path; default: none, or http://localhost:3461 if another SIDECAR setting is set"`
	SidecarTypes   []string `env:"SIDECAR_TYPES" help:"comma-separated task types for the sidecar, besides delegate_task"`
	SidecarCommand string   `env:"SIDECAR_COMMAND" help:"program and arguments, separated by spaces, that start the sidecar; default: another program starts it"`
	SidecarHealth  string   `env:"SIDECAR_HEALTH" help:"path that the sidecar answers with 2xx when it is healthy; default: it must accept connections"`
}

// Limits of the settings for the cache.
const (
	maxCGISize = 1 << 40 // in MiB
	maxCGIAge  = 36500
)

// checkStandalone sets defaults and reports wrong settings.
func (c *StandaloneConfig) checkStandalone(wrong func(setting string, bad bool, must string)) {
	for _, list := range []*[]string{&c.CGITypes, &c.SidecarTypes} {
		for i := range *list {
			(*list)[i] = strings.TrimSpace((*list)[i])
		}
		*list = slices.DeleteFunc(*list, func(s string) bool { return s == "" })
	}
	wrong("CGI_CACHE_MAX_SIZE_MB", c.CGISize < 0 || c.CGISize > maxCGISize, fmt.Sprintf("from 1 to %d, or 0 for the default", maxCGISize))
	wrong("CGI_CACHE_MAX_AGE_DAYS", c.CGIAge < 0 || c.CGIAge > maxCGIAge, fmt.Sprintf("from 1 to %d, or 0 for the default", maxCGIAge))
	for _, v := range c.CGIEnv {
		name, _, ok := strings.Cut(v, "=")
		wrong("CGI_ENV", !ok || name == "", "a list of NAME=value")
	}
}

// hasSidecar reports whether there is a legacy process.
func (c *StandaloneConfig) hasSidecar() bool {
	return c.SidecarURL != "" || len(c.SidecarTypes) > 0 || c.SidecarCommand != ""
}

// standalone runs tasks that belong to no stage.
type standalone struct {
	programs *cgi.Handler
	routes   router.RouteMap
	stop     context.CancelFunc
	running  sync.WaitGroup
}

// openStandalone starts the legacy process, if one is configured. taken has the task types that the delegate handles
// itself.
func openStandalone(
	ctx context.Context, c StandaloneConfig, out *client.HTTP, logs *logger.Deliverer, grace time.Duration, taken router.RouteMap, log zerolog.Logger,
) (*standalone, error) {
	s := &standalone{stop: func() {}, routes: router.RouteMap{}}
	var err error
	s.programs, err = cgi.New(cgi.Config{
		Cache: c.CGICache, CacheSize: c.CGISize << 20, CacheAge: time.Duration(c.CGIAge) * 24 * time.Hour,
		InstallDeps: c.CGIDeps, Env: c.CGIEnv, Grace: grace, OpenLog: openTaskLog(logs), HTTPClient: outgoing(out), GitEnvironment: out.GitEnvironment,
	})
	if err != nil {
		return nil, err
	}
	if err := s.route(ctx, c, grace, taken, log); err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

func (s *standalone) route(ctx context.Context, c StandaloneConfig, grace time.Duration, taken router.RouteMap, log zerolog.Logger) error {
	add := func(setting, typ string, h task.Handler) error {
		if taken[typ] != nil || s.routes[typ] != nil {
			return fmt.Errorf("%s: another handler runs %s already", setting, typ)
		}
		s.routes[typ] = h
		return nil
	}
	for _, typ := range c.CGITypes {
		if err := add("CGI_TYPES", typ, s.programs); err != nil {
			return err
		}
	}
	if !c.hasSidecar() {
		return nil
	}
	legacy, err := sidecar.New(sidecar.Config{
		URL: c.SidecarURL, Types: c.SidecarTypes, Command: strings.Fields(c.SidecarCommand), Health: c.SidecarHealth,
		Grace: grace, Log: log,
	})
	if err != nil {
		return err
	}
	for typ, h := range legacy.Routes() {
		if err := add("SIDECAR_TYPES", typ, h); err != nil {
			return err
		}
	}
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.running.Go(func() { legacy.Run(ctx) })
	return nil
}

// close ends the parts that openStandalone started. Call it after the last task.
func (s *standalone) close(ctx context.Context) error {
	s.stop()
	s.running.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	return s.programs.Close(ctx)
}
