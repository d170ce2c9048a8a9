package daemonset

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// Config configures a [Runner]. State is required, and one of Programs, Containers and Handlers, to run anything.
type Config struct {
	// State is the directory of the records of running daemons. New does not create it. Each process that runs at the
	// same time needs its own.
	State string

	// Programs returns the command of the program of a config, without its environment, and a function to call after
	// its end. Command of a cgi.Handler does that. Nil means that this delegate starts no processes.
	Programs func(ctx context.Context, config json.RawMessage) (cmd *exec.Cmd, release func(), err error)
	// Containers runs the daemon sets with an image. It must run containers on this machine, as driver/local does. The
	// caller closes it after [Runner.Run] has returned. Nil means that this delegate starts no containers.
	Containers driver.Driver
	// Handlers are daemon sets inside this process, by their types. Their config needs no program.
	Handlers map[string]Handler

	// Labels are set on containers, such as [driver.LabelDelegate].
	Labels map[string]string
	// Masks are the rules for the secrets of configs and tasks, in the output of daemons and in errors.
	Masks secrets.Config

	// HealthInterval is the time between two checks; 0 means 10 s. A check fails after 5 s. HealthFailures is the number
	// of failed checks in a row after which a daemon is restarted; 0 means 3. StartTimeout limits the time until a
	// daemon is healthy; 0 means 3 min.
	HealthInterval time.Duration
	HealthFailures int
	StartTimeout   time.Duration
	// Pause is the time between the end of a daemon and its restart. It doubles each time, up to MaxPause, until a daemon
	// has been healthy for MaxPause. 0 means 1 s for Pause and 1 min for MaxPause.
	Pause, MaxPause time.Duration
	// Grace is the time between SIGTERM and SIGKILL; 0 means 10 s.
	Grace time.Duration

	// Log receives events and the output of daemons, line by line at info level, masked. Long lines are split at 8 KiB,
	// and of more than 1000 lines in 10 s of one daemon the rest is counted. The zero value logs nothing.
	Log zerolog.Logger
}

func (c *Config) setDefaults() {
	c.HealthInterval = cmp.Or(c.HealthInterval, 10*time.Second)
	c.HealthFailures = cmp.Or(c.HealthFailures, 3)
	c.StartTimeout = cmp.Or(c.StartTimeout, 3*time.Minute)
	c.Pause, c.MaxPause = cmp.Or(c.Pause, time.Second), cmp.Or(c.MaxPause, time.Minute)
	c.Grace = cmp.Or(c.Grace, 10*time.Second)
}

func (c *Config) check() error {
	switch {
	case c.State == "":
		return errors.New("daemonset: Config.State is required")
	case min(c.HealthInterval, c.StartTimeout, c.Pause, c.MaxPause, c.Grace) < 0 || c.HealthFailures < 0:
		return errors.New("daemonset: HealthFailures and all times must not be negative")
	}
	for typ, h := range c.Handlers {
		if typ == "" || h == nil {
			return fmt.Errorf("daemonset: the handler of type %q is not valid", typ)
		}
	}
	return nil
}

// Bounds of the answers of a manager.
const (
	maxSets     = 100
	maxTasks    = 10_000 // of a daemon set
	maxID       = 256    // bytes
	maxConfig   = 1 << 20
	maxEnvs     = 1000
	maxPayloads = 100 // tasks in one call
)

// setConfig is the config of a daemon set (docs/daemons.md). The second group of members are extensions.
type setConfig struct {
	CPU         float64         `json:"cpu,omitempty"`
	Envs        []string        `json:"envs,omitempty"`
	Executable  json.RawMessage `json:"executable_config,omitempty"`
	MemoryBytes int64           `json:"memory_bytes,omitempty"`
	Image       string          `json:"image,omitempty"`
	Repository  json.RawMessage `json:"repository,omitempty"`
	Version     string          `json:"version,omitempty"`

	Args     []string        `json:"args,omitempty"`
	Pull     string          `json:"pull,omitempty"`
	Auth     *stage.Auth     `json:"auth,omitempty"`
	Settings json.RawMessage `json:"settings,omitempty"`
}

// readConfig decodes and checks a config. Its errors quote no value.
func readConfig(b json.RawMessage) (*setConfig, error) {
	c := &setConfig{}
	if len(b) > maxConfig {
		return nil, fmt.Errorf("config: it has %d bytes, the limit is %d", len(b), maxConfig)
	}
	if len(b) > 0 {
		if err := json.Unmarshal(b, c); err != nil {
			var wrong *json.UnmarshalTypeError
			if errors.As(err, &wrong) {
				kind, _, _ := strings.Cut(wrong.Value, " ") // the rest is the number
				return nil, fmt.Errorf("config: %s must not be this %s", cmp.Or(wrong.Field, "it"), kind)
			}
			return nil, errors.New("config: it is not a JSON object")
		}
	}
	for _, raw := range []*json.RawMessage{&c.Executable, &c.Repository, &c.Settings} {
		if string(*raw) == "null" {
			*raw = nil
		}
	}
	switch {
	case len(c.Envs) > maxEnvs:
		return nil, fmt.Errorf("config: envs has %d variables, the limit is %d", len(c.Envs), maxEnvs)
	case c.CPU < 0 || c.CPU > 1024:
		return nil, errors.New("config: cpu must be a number of processors, up to 1024")
	case c.MemoryBytes < 0:
		return nil, errors.New("config: memory_bytes must not be negative")
	}
	for i, v := range c.Envs {
		if name, _, ok := strings.Cut(v, "="); !ok || name == "" || strings.Contains(v, "\x00") {
			return nil, fmt.Errorf("config: envs: variable %d of %d is not of the form NAME=value", i+1, len(c.Envs))
		}
	}
	return c, nil
}

// program returns the members that define the process or container. If they change, the daemon must be started anew.
func (c *setConfig) program() string {
	p := *c
	p.Settings = nil
	for _, raw := range []*json.RawMessage{&p.Executable, &p.Repository} {
		*raw = compact(*raw)
	}
	b, _ := json.Marshal(&p) // it was decoded from JSON
	return string(b)
}

// compact returns JSON in one form, without white space and with sorted members.
func compact(b json.RawMessage) json.RawMessage {
	if len(b) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return b
	}
	out, err := json.Marshal(v)
	if err != nil {
		return b
	}
	return out
}

// desired is a daemon set that the manager wants, in the form that the reconciler compares.
type desired struct {
	task.DaemonSet
	config   *setConfig // nil if err is set
	err      error
	program  string
	settings string
	literal  bool // Config has no references to secrets
}

// newDesired checks a daemon set.
func newDesired(s task.DaemonSet) *desired {
	d := &desired{DaemonSet: s}
	switch {
	case len(s.ID) > maxID || len(s.Type) > maxID:
		d.err = fmt.Errorf("daemon_set_id and type must not have more than %d bytes", maxID)
	case len(s.TaskIDs) > maxTasks:
		d.err = fmt.Errorf("task_ids: it has %d tasks, the limit is %d", len(s.TaskIDs), maxTasks)
	}
	for i, id := range s.TaskIDs {
		if id == "" || len(id) > maxID {
			d.err = fmt.Errorf("task_ids: id %d must have 1 to %d bytes", i+1, maxID)
		}
	}
	if d.err == nil {
		d.config, d.err = readConfig(s.Config)
	}
	if d.err != nil {
		return d
	}
	secretTasks, err := json.Marshal(s.Secrets)
	if err != nil {
		d.err, d.config = errors.New("secrets: they are not valid"), nil
		return d
	}
	d.program, d.settings = d.config.program()+string(secretTasks), string(compact(d.config.Settings))
	return d
}
