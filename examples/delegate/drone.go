package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/client/drone"
	"github.com/delegate-io/dlite/client/drone/yaml"
	"github.com/delegate-io/dlite/examples/internal/program"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
)

// DroneConfig connects the delegate to a Drone server, alone or beside the manager. The names are the same as in Drone's
// runners. It is exported so that the config can embed it.
type DroneConfig struct {
	DroneHost   string            `env:"DRONE_RPC_HOST" help:"address of a Drone server, without the scheme; without ACCOUNT_ID, TOKEN and URL the delegate serves it alone (docs/drone.md)"`
	DroneProto  string            `env:"DRONE_RPC_PROTO" envDefault:"https" help:"https or http"`
	DroneSecret string            `env:"DRONE_RPC_SECRET" help:"the secret that the Drone server shares with its runners"`
	DroneTypes  []string          `env:"DRONE_RUNNER_TYPES" envDefault:"docker,exec" help:"types of the Drone pipelines to take: docker, exec"`
	DroneLabels map[string]string `env:"DRONE_RUNNER_LABELS" help:"labels of the Drone pipelines to take, name:value,...; a pipeline must have exactly these"`

	DroneOS      string `env:"DRONE_PLATFORM_OS" help:"operating system of the Drone pipelines to take; default: this machine's"`
	DroneArch    string `env:"DRONE_PLATFORM_ARCH" help:"architecture of the Drone pipelines to take; default: this machine's"`
	DroneVariant string `env:"DRONE_PLATFORM_VARIANT" help:"variant of the architecture"`
	DroneKernel  string `env:"DRONE_PLATFORM_KERNEL" help:"version of the kernel"`

	DroneEnviron    map[string]string `env:"DRONE_RUNNER_ENVIRON" help:"variables of all steps of Drone pipelines, name:value,..."`
	DroneEnvFile    string            `env:"DRONE_RUNNER_ENV_FILE" help:"file with further variables of all steps, NAME=value a line"`
	DroneVolumes    []string          `env:"DRONE_RUNNER_VOLUMES" help:"volumes of all containers, /host:/container,..."`
	DroneNetworks   []string          `env:"DRONE_RUNNER_NETWORKS" help:"networks of the engine that all containers join"`
	DronePrivileged []string          `env:"DRONE_RUNNER_PRIVILEGED_IMAGES" help:"images of plugins that run privileged in every repository, beside the Docker plugins"`
	DroneSecrets    droneSecrets      `env:"DRONE_RUNNER_SECRETS" help:"secrets of all Drone pipelines, also of pull requests, name:value,..."`
	DroneDocker     string            `env:"DRONE_DOCKER_CONFIG" help:"configuration file of Docker with credentials of registries"`
	DroneCloneOnly  bool              `env:"DRONE_NETRC_CLONE_ONLY" envDefault:"false" help:"withhold the credentials of the repository from the steps"`

	DroneMemory     int64    `env:"DRONE_MEMORY_LIMIT" help:"memory of each container, in bytes"`
	DroneMemorySwap int64    `env:"DRONE_MEMORY_SWAP_LIMIT" help:"memory and swap of each container, in bytes"`
	DroneCPUPeriod  int64    `env:"DRONE_CPU_PERIOD" help:"CPU period of each container"`
	DroneCPUQuota   int64    `env:"DRONE_CPU_QUOTA" help:"CPU quota of each container"`
	DroneCPUShares  int64    `env:"DRONE_CPU_SHARES" help:"CPU shares of each container"`
	DroneCPUSet     []string `env:"DRONE_CPU_SET" help:"CPUs of each container"`
	DroneShm        int64    `env:"DRONE_SHM_SIZE" help:"shared memory of each container, in bytes"`

	DroneRepos   []string `env:"DRONE_LIMIT_REPOS" help:"patterns of the repositories whose builds run, such as octo/*; default: all"`
	DroneEvents  []string `env:"DRONE_LIMIT_EVENTS" help:"events of the builds to run; default: all"`
	DroneTrusted bool     `env:"DRONE_LIMIT_TRUSTED" envDefault:"false" help:"run only builds of trusted repositories"`

	DroneSecretPlugin   string `env:"DRONE_SECRET_PLUGIN_ENDPOINT" help:"address of a plugin with the values of external secrets"`
	DroneSecretToken    string `env:"DRONE_SECRET_PLUGIN_TOKEN" help:"the secret that the plugin shares with its runners"`
	DroneRegistryPlugin string `env:"DRONE_REGISTRY_PLUGIN_ENDPOINT" help:"address of a plugin with credentials of registries"`
	DroneRegistryToken  string `env:"DRONE_REGISTRY_PLUGIN_TOKEN" help:"the secret that the plugin shares with its runners"`
	DroneEnvPlugin      string `env:"DRONE_ENV_PLUGIN_ENDPOINT" help:"address of a plugin with variables of all steps"`
	DroneEnvToken       string `env:"DRONE_ENV_PLUGIN_TOKEN" help:"the secret that the plugin shares with its runners"`

	DroneDebug bool `env:"DRONE_DEBUG" envDefault:"false" help:"the same as LOG_LEVEL=debug"`
	DroneTrace bool `env:"DRONE_TRACE" envDefault:"false" help:"the same as LOG_LEVEL=trace"`
}

// droneCapacity is the number of stages at once where Drone is the only server: the default of Drone's runners.
const droneCapacity = 2

// dronePrivileged are the plugins that run privileged beside those of the settings, as in Drone's runners.
var dronePrivileged = []string{"plugins/docker", "plugins/acr", "plugins/ecr", "plugins/gcr", "plugins/heroku"}

// droneSecrets are values by name. Its errors have no value.
type droneSecrets map[string]string

// UnmarshalText reads name:value,...
func (d *droneSecrets) UnmarshalText(b []byte) error {
	*d = droneSecrets{}
	for i, pair := range strings.Split(string(b), ",") {
		name, value, ok := strings.Cut(pair, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return fmt.Errorf("the entry %d must be of the form name:value", i+1)
		}
		(*d)[strings.TrimSpace(name)] = value
	}
	return nil
}

// droneIgnored are settings of Drone's runners that have no effect here, with advice.
var droneIgnored = map[string]string{
	"DRONE_RPC_SKIP_VERIFY":             "certificates are always verified: put the server's authority into CERTS_DIR",
	"DRONE_SECRET_PLUGIN_SKIP_VERIFY":   "certificates are always verified: put the plugin's authority into CERTS_DIR",
	"DRONE_REGISTRY_PLUGIN_SKIP_VERIFY": "certificates are always verified: put the plugin's authority into CERTS_DIR",
	"DRONE_ENV_PLUGIN_SKIP_VERIFY":      "certificates are always verified: put the plugin's authority into CERTS_DIR",
	"DRONE_RPC_DUMP_HTTP":               "LOG_LEVEL=debug logs failed calls",
	"DRONE_RPC_DUMP_HTTP_BODY":          "bodies hold secrets and are never logged",
	"DRONE_RUNNER_CLONE_IMAGE":          "the clone is built in",
	"DRONE_RUNNER_DEVICES":              "a trusted repository mounts devices with a volume of the host",
	"DRONE_RUNNER_NETWORK_OPTS":         "set the options of networks at the engine",
	"DRONE_RUNNER_ROOT":                 "use WORK_DIR",
	"DRONE_RUNNER_SYMLINKS":             "use WORK_DIR",
	"DRONE_RUNNER_PATH":                 "steps have the PATH of the delegate or of their image",
	"DRONE_RUNNER_MAX_PROCS":            "use DRONE_RUNNER_CAPACITY",
	"DRONE_DOCKER_STREAM_PULL":          "the log of a step has the progress of its image",
	"DRONE_TMATE_ENABLED":               "there are no debug sessions",
	"DRONE_TMATE_IMAGE":                 "there are no debug sessions",
	"DRONE_TMATE_HOST":                  "there are no debug sessions",
	"DRONE_TMATE_PORT":                  "there are no debug sessions",
	"DRONE_TMATE_FINGERPRINT_RSA":       "there are no debug sessions",
	"DRONE_TMATE_FINGERPRINT_ED25519":   "there are no debug sessions",
	"DRONE_UI_DISABLE":                  "there is no page: see HTTP_BIND",
	"DRONE_UI_PASSWORD":                 "there is no page: see HTTP_BIND",
	"DRONE_UI_REALM":                    "there is no page: see HTTP_BIND",
	"DRONE_UI_USERNAME":                 "there is no page: see HTTP_BIND",
	"DRONE_HTTP_ACME":                   "there is no page: see HTTP_BIND",
	"DRONE_HTTP_HOST":                   "there is no page: see HTTP_BIND",
	"DRONE_HTTP_PROTO":                  "there is no page: see HTTP_BIND",
	"DRONE_LOG_FILE":                    "use LOG_ENABLE_FILE_LOGGING and LOG_FILE",
}

// droneFamilies are the beginnings of the names of settings of Drone's runners.
var droneFamilies = []string{
	"DRONE_RPC_", "DRONE_RUNNER_", "DRONE_LIMIT_", "DRONE_PLATFORM_", "DRONE_DOCKER_", "DRONE_SECRET_", "DRONE_REGISTRY_", "DRONE_ENV_",
	"DRONE_UI_", "DRONE_TMATE_", "DRONE_HTTP_", "DRONE_MEMORY_", "DRONE_CPU_", "DRONE_LOG", "DRONE_RESOURCE_", "DRONE_NAMESPACE_", "DRONE_SERVICE_ACCOUNT_",
}

// droneNames lists the settings of Drone's runners that have no effect here.
func droneNames() []string { return slices.Collect(maps.Keys(droneIgnored)) }

// unsupportedDrone returns a warning for each setting of Drone's runners that has no effect.
func unsupportedDrone(values map[string]string) (warnings []string) {
	known := settingNames()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		advice, ok := droneIgnored[name]
		family := slices.ContainsFunc(droneFamilies, func(f string) bool { return strings.HasPrefix(name, f) })
		switch {
		case ok:
			warnings = append(warnings, fmt.Sprintf("%s has no effect: %s", name, advice))
		case values["DRONE_RPC_HOST"] != "" && family && !slices.Contains(known, name):
			warnings = append(warnings, fmt.Sprintf(`%s has no effect: "delegate settings" lists the valid settings`, name))
		}
	}
	return warnings
}

// managed reports whether the delegate serves a manager. It does unless only a Drone server is configured.
func (c *config) managed() bool { return !c.droneOnly }

// checkServers checks which servers the settings name, and sets defaults.
func (c *config) checkServers(wrong func(setting string, bad bool, must string)) {
	c.droneOnly = c.DroneHost != "" && c.URL == "" && c.Token == "" && c.AccountID == ""
	if !c.droneOnly {
		wrong("ACCOUNT_ID", c.AccountID == "", "set")
		wrong("TOKEN", c.Token == "", "set")
		wrong("URL", c.URL == "", "set")
		wrong("URL", c.URL != "" && !strings.Contains(c.URL, "://"),
			fmt.Sprintf("an address that begins with https:// or http://: did you mean https://%s?", strings.TrimPrefix(c.URL, "//")))
	}
	if c.DroneHost == "" {
		wrong("DRONE_RPC_HOST", c.DroneSecret != "", "set, as DRONE_RPC_SECRET is")
		return
	}
	wrong("DRONE_RPC_SECRET", c.DroneSecret == "", "set, as DRONE_RPC_HOST is")
	wrong("DRONE_RPC_PROTO", c.DroneProto != "https" && c.DroneProto != "http", "https or http")
	wrong("DRONE_RPC_HOST", strings.Contains(c.DroneHost, "://"), "an address without a scheme: that is DRONE_RPC_PROTO")
	for name, p := range map[string][2]string{
		"DRONE_SECRET_PLUGIN": {c.DroneSecretPlugin, c.DroneSecretToken}, "DRONE_REGISTRY_PLUGIN": {c.DroneRegistryPlugin, c.DroneRegistryToken},
		"DRONE_ENV_PLUGIN": {c.DroneEnvPlugin, c.DroneEnvToken},
	} {
		wrong(name+"_ENDPOINT", p[0] != "" && !strings.HasPrefix(p[0], "https://") && !strings.HasPrefix(p[0], "http://"), "an address that begins with https:// or http://")
		wrong(name+"_ENDPOINT", p[0] == "" && p[1] != "", "set, as "+name+"_TOKEN is")
		wrong(name+"_TOKEN", p[0] != "" && p[1] == "", "set, as "+name+"_ENDPOINT is")
	}
	for _, pattern := range c.DroneRepos {
		_, err := path.Match(pattern, "")
		wrong("DRONE_LIMIT_REPOS", err != nil, "a list of patterns such as octo/*")
	}
	for _, kind := range c.DroneTypes {
		wrong("DRONE_RUNNER_TYPES", kind != "docker" && kind != "exec", "a list of docker, exec")
	}
	if c.droneOnly {
		c.URL, c.AccountID = c.droneURL(), "drone"
		c.MaxStages = cmp.Or(c.MaxStages, droneCapacity)
	}
	switch {
	case c.DroneTrace:
		c.LogLevel = "trace"
	case c.DroneDebug:
		c.LogLevel = "debug"
	}
}

func (c *config) droneURL() string { return c.DroneProto + "://" + c.DroneHost }

// openDrone returns the client of the Drone server, nil if none is configured.
func openDrone(cfg config, out *client.HTTP, slots *capacity.Slots, log zerolog.Logger) (*drone.Client, error) {
	if cfg.DroneHost == "" {
		return nil, nil
	}
	environment, err := program.ReadSettings(cfg.DroneEnvFile)
	if err != nil {
		return nil, fmt.Errorf("DRONE_RUNNER_ENV_FILE: %w", err)
	}
	maps.Copy(environment, cfg.DroneEnviron)
	docker := []byte(nil)
	if cfg.DroneDocker != "" {
		if docker, err = os.ReadFile(cfg.DroneDocker); err != nil {
			return nil, fmt.Errorf("DRONE_DOCKER_CONFIG: %w", err)
		}
		if !json.Valid(docker) {
			return nil, fmt.Errorf("DRONE_DOCKER_CONFIG: %s is not a configuration file of Docker", cfg.DroneDocker)
		}
	}
	dir := ""
	if cfg.Resume {
		dir = filepath.Join(cfg.LedgerDir, "drone")
	}
	settings := drone.Config{
		Endpoint: cfg.droneURL(), Secret: cfg.DroneSecret, Name: cfg.Name, Types: cfg.DroneTypes, Labels: cfg.DroneLabels,
		OS: cfg.DroneOS, Arch: cfg.DroneArch, Variant: cfg.DroneVariant, Kernel: cfg.DroneKernel,
		Slots: slots, Dir: dir, HTTPClient: outgoing(out), Log: log,
		Repositories: cfg.DroneRepos, Events: cfg.DroneEvents, TrustedOnly: cfg.DroneTrusted,
		Options: yaml.Options{
			Privileged: slices.Concat(dronePrivileged, cfg.DronePrivileged), Secrets: cfg.DroneSecrets, DockerConfig: string(docker), ShmSize: cfg.DroneShm, Volumes: cfg.DroneVolumes, Networks: cfg.DroneNetworks, Environment: environment,
			NetrcCloneOnly: cfg.DroneCloneOnly, Memory: cfg.DroneMemory, MemorySwap: cfg.DroneMemorySwap,
			CPUPeriod: cfg.DroneCPUPeriod, CPUQuota: cfg.DroneCPUQuota, CPUShares: cfg.DroneCPUShares, CPUSet: cfg.DroneCPUSet,
		},
	}
	settings.SecretPlugin.Endpoint, settings.SecretPlugin.Token = cfg.DroneSecretPlugin, cfg.DroneSecretToken
	settings.RegistryPlugin.Endpoint, settings.RegistryPlugin.Token = cfg.DroneRegistryPlugin, cfg.DroneRegistryToken
	settings.EnvironmentPlugin.Endpoint, settings.EnvironmentPlugin.Token = cfg.DroneEnvPlugin, cfg.DroneEnvToken
	c, err := drone.New(settings)
	if err != nil {
		return nil, fmt.Errorf("DRONE_RPC_HOST, DRONE_RPC_SECRET: %w", err)
	}
	return c, nil
}

// logOpener opens the log of a step, see transaction.WithLog.
type logOpener = func(context.Context, logger.StreamConfig) logger.TaskLog

// servers are the clients of the servers that the delegate serves. They share its slots.
type servers struct {
	manager *client.HTTP // nil without a manager
	drone   *drone.Client
	slots   []*capacity.Slots // of each client
}

func openServers(cfg config, out *client.HTTP, log zerolog.Logger) (*servers, error) {
	s := &servers{slots: []*capacity.Slots{capacity.NewSlots(cfg.slots())}}
	if cfg.managed() {
		s.manager = out
		if cfg.DroneHost != "" {
			s.slots = append(s.slots, s.slots[0].Share())
		}
	}
	var err error
	s.drone, err = openDrone(cfg, out, s.slots[len(s.slots)-1], log)
	return s, err
}

// openLog returns the function that opens the logs of steps.
func (s *servers) openLog(logs *logger.Deliverer) logOpener {
	if s.drone == nil {
		return logs.Open
	}
	return s.drone.Log(logs.Open)
}

// pollers returns a poller for each server, the manager's first. Only the manager's has the daemon sets and the options in
// watched: a Drone server has no perpetual tasks.
func (s *servers) pollers(
	cfg config, routes *router.Router, stages poller.Stages, sets *daemons, log zerolog.Logger, signals []os.Signal, watched []poller.Option, more ...poller.Option,
) (all []*poller.Poller) {
	views := share(stages, s.slots)
	add := func(c client.Client, state string, own ...poller.Option) {
		options := append(pollerOptions(cfg, state, log), poller.WithStages(views[len(all)]), poller.WithSignals(signals...))
		all = append(all, poller.New(c, routes, append(append(options, own...), more...)...))
	}
	if s.manager != nil {
		if sets != nil && !cfg.trial() {
			watched = append(watched, poller.WithDaemons(sets))
		}
		add(s.manager, "poller", watched...)
	}
	if s.drone != nil {
		add(s.drone, "drone-poller")
	}
	return all
}

// sharedStages are the stages of several pollers. The first poller that needs them recovers and maintains them, and
// the last one closes them.
type sharedStages struct {
	poller.Stages

	mu        sync.Mutex
	users     int
	recovered bool
}

// stagesOf are the stages of one of the pollers.
type stagesOf struct {
	*sharedStages
	slots *capacity.Slots
	first bool
}

// share returns the stages for several pollers, one for each of the slots.
func share(s poller.Stages, slots []*capacity.Slots) (all []poller.Stages) {
	if len(slots) == 1 {
		return []poller.Stages{s}
	}
	shared := &sharedStages{Stages: s, users: len(slots)}
	for i, own := range slots {
		all = append(all, &stagesOf{sharedStages: shared, slots: own, first: i == 0})
	}
	return all
}

// Slots returns the slots of the poller.
func (s *stagesOf) Slots() *capacity.Slots { return s.slots }

// Recover recovers the stages once.
func (s *stagesOf) Recover(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.recovered {
		return nil
	}
	err := s.Stages.Recover(ctx)
	s.recovered = err == nil
	return err
}

// Maintain maintains the stages for the first poller. For the others it waits.
func (s *stagesOf) Maintain(ctx context.Context, interval time.Duration) {
	if s.first {
		s.Stages.Maintain(ctx, interval)
		return
	}
	<-ctx.Done()
}

// CleanUpUnclaimed does nothing: unclaimed stages may belong to the other server. Their time ends them.
func (s *stagesOf) CleanUpUnclaimed(context.Context) {}

// CleanUpForgotten ends the stage of a task.
func (s *stagesOf) CleanUpForgotten(ctx context.Context, t *task.Task) {
	s.Stages.CleanUpForgotten(ctx, t)
}

// Close ends the stages when the last poller closes them.
func (s *stagesOf) Close(ctx context.Context) error {
	s.mu.Lock()
	s.users--
	last := s.users == 0
	s.mu.Unlock()
	if !last {
		return nil
	}
	return s.Stages.Close(ctx)
}

// runAll runs pollers until all have ended. When one fails, the others drain.
func runAll(ctx context.Context, executors int, pollers []*poller.Poller) error {
	errs := make([]error, len(pollers))
	var running sync.WaitGroup
	for i, p := range pollers {
		running.Go(func() {
			errs[i] = p.Run(ctx, executors)
			if errs[i] == nil {
				return
			}
			for _, other := range pollers {
				if other != p {
					_ = other.Shutdown(context.WithoutCancel(ctx)) // its own result is among the errors
				}
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}
