package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/caarlos0/env/v11"
	docker "github.com/docker/docker/client"
	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/examples/internal/program"
	"github.com/delegate-io/dlite/examples/internal/service"
	"github.com/delegate-io/dlite/examples/internal/upgrade"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task/capacity"
)

// config holds the settings of config.env and the environment (rule X2). "delegate
// settings" prints the help tags.
type config struct {
	file string // with settings; empty without one

	droneOnly bool // the settings name a Drone server and no manager

	part *upgrade.Process // nil in tests

	AccountID string   `env:"ACCOUNT_ID" help:"the account's id; required for a manager"`
	Token     string   `env:"TOKEN" help:"the account's secret (32 hexadecimal characters, or the base64 of those), or a ready-made token"`
	URL       string   `env:"URL" help:"the manager's address"`
	Name      string   `env:"NAME" help:"the delegate's name, a tag too; default: the host's name"`
	Tags      []string `env:"TAGS" help:"comma-separated tags that selectors match; the operating system and the architecture of this machine are tags too, such as linux and amd64"`
	Protocol  protocol `env:"PROTOCOL" envDefault:"v1" help:"delegate protocol: v1 or v2"`

	MaxStages    maxStages `env:"MAX_STAGES" help:"stages at once, a positive integer; default: no limit, or the sum of the pools where vm is the only driver"`
	Workers      int       `env:"PARALLEL_WORKERS" envDefault:"100" help:"tasks at once of each kind"`
	PollInterval int       `env:"POLL_INTERVAL_MILLISECS" envDefault:"3000" help:"time between polls of a manager that does not hold them"`

	WatchHost bool    `env:"DYNAMIC_REQUEST_HANDLING" envDefault:"false" help:"refuse new stages while CPU or memory is above the threshold"`
	Threshold float64 `env:"DELEGATE_RESOURCE_THRESHOLD" envDefault:"80" help:"threshold of DYNAMIC_REQUEST_HANDLING, in percent"`

	CleanupGrace int `env:"CLEANUP_GRACE_PERIOD_SECONDS" envDefault:"0" help:"time between SIGTERM and SIGKILL for a step that is stopped"`
	TermAttempts int `env:"SUBPROCESS_KILL_PROCESS_GROUP_MAX_SIGTERM_ATTEMPTS" envDefault:"0" help:"number of SIGTERMs for a host step before SIGKILL; 0 means one SIGTERM and CLEANUP_GRACE_PERIOD_SECONDS"`
	TermInterval int `env:"SUBPROCESS_KILL_PROCESS_GROUP_RETRY_INTERVAL_SECS" envDefault:"1" help:"time from one SIGTERM to the next"`
	FileLimit    int `env:"OUTPUT_FILE_LIMIT_BYTES" envDefault:"1048576" help:"size of each file that a step may hand on: outputs, secret outputs, environment, artifact; a larger one fails the step"`
	MaskLength   int `env:"MASK_MIN_LENGTH" envDefault:"3" help:"shortest secret that is masked, in characters, from 1 to 64; shorter secrets stay visible in logs, but never appear on command lines; below 3, logs become unreadable"`
	DrainTimeout int `env:"DRAIN_TIMEOUT_SECS" envDefault:"0" help:"how long a drain after the first signal may take before the running tasks are cancelled; 0 is no limit"`
	IdleWait     int `env:"IDLE_WAIT_SECS_BEFORE_STOP" envDefault:"0" help:"how long a drain waits after the last task"`

	ProxyHost     string `env:"PROXY_HOST" help:"proxy for all connections of the delegate: calls to the manager, logs, archives, plugins, programs, clones; default: HTTP_PROXY, HTTPS_PROXY and NO_PROXY"`
	ProxyPort     int    `env:"PROXY_PORT" help:"the proxy's port"`
	ProxyScheme   string `env:"PROXY_SCHEME" envDefault:"http" help:"http or https"`
	ProxyUser     string `env:"PROXY_USER" help:"the proxy's user"`
	ProxyPassword string `env:"PROXY_PASSWORD" help:"the proxy's password"`
	NoProxy       string `env:"NO_PROXY" help:"comma-separated hosts to reach without the proxy"`

	CertsDir   string `env:"CERTS_DIR" help:"folder of additional CA certificates for the manager, logs, downloads and clones"`
	ClientCert string `env:"CLIENT_CERT_FILE" help:"client certificate for mutual TLS"`
	ClientKey  string `env:"CLIENT_KEY_FILE" help:"key of CLIENT_CERT_FILE"`

	DroneConfig
	DriverConfig
	InitConfig
	SecretConfig
	StandaloneConfig
	UpgradeConfig

	WorkDir    string `env:"WORK_DIR" help:"folder for workspaces; default: dlite in the temporary folder"`
	LedgerDir  string `env:"LEDGER_DIR" help:"folder for the records of resources to clean up; default: dlite in the user's cache folder, by delegate name"`
	StepLogs   int64  `env:"STEP_LOGS_MAX_MB" envDefault:"1024" help:"size in MiB of the logs of steps that LEDGER_DIR keeps while their log service is away"`
	Trusted    bool   `env:"TRUSTED_STEPS" envDefault:"false" help:"run host steps beside the delegate, as its user, without separating those of different stages; needed for steps that use sudo or the rights of root"`
	Resume     bool   `env:"RESUME" envDefault:"true" help:"continue the stages of a delegate that was killed, if their steps can be followed; false cleans them up"`
	DockerHost string `env:"DOCKER_HOST" help:"the Docker engine's address"`

	HTTPBind string `env:"HTTP_BIND" help:"address of /metrics, /healthz and /readyz, or off; default: 127.0.0.1:3000, unless that is taken"`

	StatusSocket string `env:"STATUS_SOCKET" help:"path of the socket of \"delegate status\"; default: status.sock in the folder that the service manager provides, or none"`

	LogLevel   string `env:"LOG_LEVEL" envDefault:"info" help:"trace, debug, info, warn or error"`
	LogFormat  string `env:"LOG_FORMAT" envDefault:"console" help:"console or json"`
	LogToFile  bool   `env:"LOG_ENABLE_FILE_LOGGING" envDefault:"false" help:"write the log to a file too"`
	LogFile    string `env:"LOG_FILE" envDefault:"delegate.log" help:"log file of LOG_ENABLE_FILE_LOGGING"`
	LogMaxSize int    `env:"LOG_MAX_SIZE_MB" help:"size at which the file is rotated; default: 100"`
	LogBackups int    `env:"LOG_MAX_BACKUPS" help:"rotated files to keep; default: 10"`
	LogMaxAge  int    `env:"LOG_MAX_AGE_DAYS" help:"days to keep rotated files; default: 30"`
	LogCompact bool   `env:"LOG_COMPRESS" envDefault:"false" help:"compress rotated files"`
	LogRemote  bool   `env:"ENABLE_REMOTE_LOGGING" envDefault:"false" help:"send the log over OTLP to OTEL_EXPORTER_OTLP_ENDPOINT"`
}

// maxStepLogs is the largest STEP_LOGS_MAX_MB.
const maxStepLogs = 1 << 30

type protocol string

// UnmarshalText reads the setting PROTOCOL.
func (p *protocol) UnmarshalText(b []byte) error {
	switch v := protocol(strings.ToLower(string(b))); v {
	case "v1", "v2":
		*p = v
		return nil
	default:
		return errors.New("it must be v1 or v2")
	}
}

type maxStages int

// UnmarshalText reads MAX_STAGES (rule Q1).
func (n *maxStages) UnmarshalText(b []byte) error {
	v, err := capacity.ParseMaxStages(string(b))
	*n = maxStages(v)
	return err
}

// prefix may precede every name. If both names are set, the name without the prefix wins.
const prefix = "HARNESS_"

// otherNames maps the names that other delegates use to ours.
var otherNames = map[string]string{
	"DELEGATE_TOKEN": "TOKEN", "DELEGATE_TAGS": "TAGS", "DELEGATE_NAME": "NAME", "MANAGER_HOST_AND_PORT": "URL",
	"DRONE_RUNNER_NAME": "NAME", "DRONE_RUNNER_CAPACITY": "MAX_STAGES", "DRONE_HTTP_BIND": "HTTP_BIND",
	// Old names of Drone's runners.
	"DRONE_MACHINE": "NAME", "DRONE_SERVER_PORT": "HTTP_BIND", "DRONE_LOGS_DEBUG": "DRONE_DEBUG", "DRONE_LOGS_TRACE": "DRONE_TRACE",
	"DRONE_RUNNER_OS": "DRONE_PLATFORM_OS", "DRONE_RUNNER_ARCH": "DRONE_PLATFORM_ARCH", "DRONE_RUNNER_KERNEL": "DRONE_PLATFORM_KERNEL",
	"DRONE_RUNNER_VARIANT": "DRONE_PLATFORM_VARIANT", "DRONE_LIMIT_MEM": "DRONE_MEMORY_LIMIT", "DRONE_LIMIT_MEM_SWAP": "DRONE_MEMORY_SWAP_LIMIT",
	"DRONE_LIMIT_CPU_QUOTA": "DRONE_CPU_QUOTA", "DRONE_LIMIT_CPU_SHARES": "DRONE_CPU_SHARES", "DRONE_LIMIT_CPU_SET": "DRONE_CPU_SET",
	"DRONE_SECRET_ENDPOINT": "DRONE_SECRET_PLUGIN_ENDPOINT", "DRONE_SECRET_SECRET": "DRONE_SECRET_PLUGIN_TOKEN",
	"DRONE_SECRET_SKIP_VERIFY": "DRONE_SECRET_PLUGIN_SKIP_VERIFY", "DRONE_REGISTRY_ENDPOINT": "DRONE_REGISTRY_PLUGIN_ENDPOINT",
	"DRONE_REGISTRY_SECRET": "DRONE_REGISTRY_PLUGIN_TOKEN", "DRONE_REGISTRY_PLUGIN_SECRET": "DRONE_REGISTRY_PLUGIN_TOKEN",
	"DRONE_REGISTRY_SKIP_VERIFY": "DRONE_REGISTRY_PLUGIN_SKIP_VERIFY",
}

// loadConfig reads the file, if one is named, and the environment, which wins over the file. An unknown name in the
// file is an error. The warnings name settings that have no effect. No error and no warning shows the value of a
// secret setting.
func loadConfig(file string, environ []string) (config, []string, error) {
	var c config
	fromFile, err := program.ReadSettings(file)
	if err != nil {
		return c, nil, err
	}
	var warnings []string
	for _, name := range slices.Sorted(maps.Keys(fromFile)) {
		if strings.HasPrefix(name, telemetryPrefix) {
			warnings = append(warnings, fmt.Sprintf("%s: the delegate reads %s from the environment alone", file, name))
			delete(fromFile, name)
		}
	}
	valid := append(slices.AppendSeq(settingNames(), maps.Keys(otherNames)), droneNames()...)
	if err := program.CheckNames(file, fromFile, valid, canonical, `"delegate settings"`); err != nil {
		return c, warnings, err
	}
	values := canonicalValues(fromFile)
	maps.Copy(values, canonicalValues(env.ToMap(environ)))
	for name, v := range values {
		if strings.TrimSpace(v) == "" {
			delete(values, name) // an empty value means the default
		}
	}
	warnings = append(warnings, unsupportedDrone(values)...)
	if err := env.ParseWithOptions(&c, env.Options{Environment: values}); err != nil {
		return c, warnings, errors.Join(settingErrors(err), collect(c.checkServers))
	}
	c.file = file
	err = c.complete()
	return c, append(warnings, c.unused()...), err
}

// telemetryPrefix is the prefix of OpenTelemetry's settings.
const telemetryPrefix = "OTEL_"

// canonical returns the short name of a setting.
func canonical(name string) string {
	name = strings.TrimPrefix(name, prefix)
	if short, ok := otherNames[name]; ok {
		return short
	}
	return name
}

// canonicalValues returns the values under the short names. If a value is set under two names, the short name wins.
func canonicalValues(in map[string]string) map[string]string {
	out := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(in)) {
		if short := canonical(name); short != name && in[short] == "" {
			out[short] = in[name]
		}
	}
	for name, v := range in {
		if canonical(name) == name {
			out[name] = v
		}
	}
	return out
}

// settingErrors returns an error that names the wrong settings, without their values.
func settingErrors(err error) error {
	var all env.AggregateError
	if !errors.As(err, &all) {
		return err
	}
	var out []error
	for _, e := range all.Errors {
		var parse env.ParseError
		var missing env.VarIsNotSetError
		switch {
		case errors.As(e, &parse):
			name := settingOf(parse.Name)
			if e = valueError(parse); !strings.HasPrefix(e.Error(), name) {
				e = fmt.Errorf("%s: %w", name, e)
			}
		case errors.As(e, &missing):
			e = fmt.Errorf("%s: it must be set", missing.Key)
		}
		out = append(out, e)
	}
	return errors.Join(out...)
}

// hasToken reports whether Token is a ready-made token: a compact JWE has five parts.
func (c *config) hasToken() bool { return strings.Count(c.Token, ".") == 4 }

// masks returns how secrets are masked.
func (c *config) masks() secrets.Config { return secrets.Config{MinLength: c.MaskLength} }

// valueError returns an error that names the valid values.
func valueError(e env.ParseError) error {
	var syntax *strconv.NumError
	switch {
	case !errors.As(e.Err, &syntax):
		return e.Err
	case e.Type.Kind() == reflect.Bool:
		return errors.New("it must be true or false")
	case e.Type.Kind() == reflect.Float64:
		return errors.New("it must be a number")
	default:
		return errors.New("it must be a whole number")
	}
}

// complete checks the settings that their types cannot check, and sets defaults.
func (c *config) complete() error {
	return errors.Join(collect(c.checkServers), collect(c.checkRest))
}

// collect returns the errors that a check reports.
func collect(check func(wrong func(setting string, bad bool, must string))) error {
	var errs []error
	check(func(setting string, bad bool, must string) {
		if bad {
			errs = append(errs, fmt.Errorf("%s: it must be %s", setting, must))
		}
	})
	return errors.Join(errs...)
}

// checkRest checks all settings except the settings of the servers.
func (c *config) checkRest(wrong func(setting string, bad bool, must string)) {
	wrong("PARALLEL_WORKERS", c.Workers < 1, "at least 1")
	wrong("POLL_INTERVAL_MILLISECS", c.PollInterval < 1, "at least 1")
	wrong("CLEANUP_GRACE_PERIOD_SECONDS", c.CleanupGrace < 0, "0 or more")
	wrong("SUBPROCESS_KILL_PROCESS_GROUP_MAX_SIGTERM_ATTEMPTS", c.TermAttempts < 0, "0 or more")
	wrong("SUBPROCESS_KILL_PROCESS_GROUP_RETRY_INTERVAL_SECS", c.TermInterval < 1, "at least 1")
	wrong("OUTPUT_FILE_LIMIT_BYTES", c.FileLimit < 1, "at least 1")
	wrong("MASK_MIN_LENGTH", c.MaskLength < 1 || c.MaskLength > 64, "from 1 to 64")
	wrong("STEP_LOGS_MAX_MB", c.StepLogs < 1 || c.StepLogs > maxStepLogs, fmt.Sprintf("from 1 to %d", maxStepLogs))
	wrong("DRAIN_TIMEOUT_SECS", c.DrainTimeout < 0, "0 or more")
	wrong("IDLE_WAIT_SECS_BEFORE_STOP", c.IdleWait < 0, "0 or more")
	wrong("DELEGATE_RESOURCE_THRESHOLD", c.Threshold <= 0 || c.Threshold > 100, "above 0 and at most 100")
	wrong("PROXY_PORT", c.ProxyPort < 0 || c.ProxyPort > 65535, "from 1 to 65535")
	_, err := zerolog.ParseLevel(strings.ToLower(c.LogLevel))
	wrong("LOG_LEVEL", err != nil, "trace, debug, info, warn or error")
	wrong("LOG_FORMAT", c.LogFormat != "console" && c.LogFormat != "json", "console or json")
	if c.DockerHost != "" {
		_, err := docker.ParseHostURL(c.DockerHost)
		wrong("DOCKER_HOST", err != nil, "an address such as unix:///var/run/docker.sock or tcp://127.0.0.1:2375")
	}
	c.checkDrivers(wrong)
	c.check(wrong)
	c.checkStandalone(wrong)
	c.checkInit(wrong)
	c.checkUpgrades(wrong)
	if c.Name == "" {
		host, err := os.Hostname()
		wrong("NAME", err != nil, "set: this machine has no host name")
		c.Name = host
	}
	for i, tag := range c.Tags {
		c.Tags[i] = strings.TrimSpace(tag)
	}
	c.Tags = slices.DeleteFunc(c.Tags, func(t string) bool { return t == "" })
	for _, tag := range []string{runtime.GOOS, runtime.GOARCH} {
		if !slices.Contains(c.Tags, tag) {
			c.Tags = append(c.Tags, tag)
		}
	}
	c.setFolders(wrong)
	if c.VMStateDir == "" && slices.Contains(c.Drivers, transaction.VM) {
		c.VMStateDir = filepath.Join(c.LedgerDir, "machines")
	}
}

// setFolders sets the defaults of folders. A service has a folder of the service manager for them.
func (c *config) setFolders(wrong func(setting string, bad bool, must string)) {
	own := service.StateDir()
	if c.StatusSocket == "" {
		c.StatusSocket = service.DefaultSocket()
	}
	if c.WorkDir == "" {
		c.WorkDir = filepath.Join(os.TempDir(), "dlite")
		if own != "" {
			c.WorkDir = filepath.Join(own, "work")
		}
	}
	if c.CGICache == "" && own != "" {
		c.CGICache = filepath.Join(own, "cgi")
	}
	if c.LedgerDir == "" && own != "" {
		c.LedgerDir = filepath.Join(own, "ledger-"+fileName(c.Name))
	}
	if c.LedgerDir == "" {
		cache, err := os.UserCacheDir()
		wrong("LEDGER_DIR", err != nil, "set: this user has no cache folder")
		c.LedgerDir = filepath.Join(cache, "dlite", "ledger-"+fileName(c.Name))
	}
}

// fileName replaces the characters of a delegate's name that are invalid in a path.
func fileName(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\:*?"<>|`, r) || r < ' ' {
			return '_'
		}
		return r
	}, name)
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

func settingNames() []string {
	var names []string
	eachSetting(func(name, _, _, _ string) { names = append(names, name) })
	slices.Sort(names)
	return names
}

// settingOf returns the name of the setting that a field holds.
func settingOf(field string) string {
	setting := field
	eachSetting(func(name, f, _, _ string) {
		if f == field {
			setting = name
		}
	})
	return setting
}

func eachSetting(f func(name, field, fallback, help string)) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[config]()) {
		tag := field.Tag
		name, _, _ := strings.Cut(tag.Get("env"), ",")
		if name == "" {
			continue // not a setting, or embedded: VisibleFields lists its fields too
		}
		f(name, field.Name, tag.Get("envDefault"), tag.Get("help"))
	}
}

func describeSettings(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	eachSetting(func(name, _, fallback, help string) {
		if fallback != "" {
			help += "; default: " + fallback
		}
		fmt.Fprintf(t, "%s\t%s\n", name, help) //nolint:errcheck // Flush tells
	})
	return t.Flush()
}
