package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/docker/docker/client"
	"github.com/rs/zerolog"
)

// Option sets up a [Driver].
type Option func(*config) error

type config struct {
	workDir, memoryDir string
	workspace          string // empty is a folder of the transaction's own
	dockerHost         string
	docker             client.APIClient
	grace              time.Duration
	attempts           int
	interval           time.Duration
	pluginCache        string
	engineWait         time.Duration
	pull               pullTimes
	fileLimit          int64
	log                zerolog.Logger
}

// WithWorkDir sets the folder below which each transaction has its own. It is
// made when it is missing. The default is [os.TempDir].
//
// Cleanup removes no folder of a transaction that is not directly below it, so
// it must stay the same for as long as records of transactions are kept.
func WithWorkDir(dir string) Option {
	return func(c *config) error {
		if dir == "" {
			return errors.New("work folder: the path is empty")
		}
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return fmt.Errorf("work folder: %w", err)
		}
		c.workDir = dir
		return nil
	}
}

// WithMemoryDir sets the folder in memory for what must not touch a disk: the
// secrets that steps hand on, and volumes with medium "memory". It must exist.
// The default is /dev/shm on Linux where it can be written, and none elsewhere.
// With none, given as "", the work folder serves.
func WithMemoryDir(dir string) Option {
	return func(c *config) error {
		c.memoryDir = dir
		return nil
	}
}

// WithWorkspace makes dir, which must exist, the workspace of every transaction, in
// the place of a folder of its own: what has been mounted there for the steps of a
// pod, each of which has a driver in its own container. It is made ready by nobody
// and never removed, so that it is for a driver with one transaction. The default is
// a folder for each transaction.
func WithWorkspace(dir string) Option {
	return func(c *config) error {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return fmt.Errorf("workspace: %q is no folder", dir)
		}
		c.workspace = dir
		return nil
	}
}

// WithDockerHost sets the engine's address, such as
// "unix:///var/run/docker.sock" or "tcp://127.0.0.1:2375". The default is what
// DOCKER_HOST and its companions say, or else the platform's usual socket.
// Nothing is contacted before a step wants a container.
func WithDockerHost(host string) Option {
	return func(c *config) error {
		c.dockerHost = host
		return nil
	}
}

// WithDockerClient makes the driver use cli, which stays the caller's to close.
// It takes precedence over [WithDockerHost].
func WithDockerClient(cli client.APIClient) Option {
	return func(c *config) error {
		c.docker = cli
		return nil
	}
}

// WithGrace sets how long a step that is stopped may take between SIGTERM and
// SIGKILL (CLEANUP_GRACE_PERIOD_SECONDS, SPEC T7). The default is 0: a step is
// killed at once, unless it asks for a soft stop, which gives it 10 seconds.
// Containers know whole seconds only; a fraction counts as one.
func WithGrace(grace time.Duration) Option {
	return func(c *config) error {
		if grace < 0 {
			return fmt.Errorf("grace period: %v is negative", grace)
		}
		c.grace = grace
		return nil
	}
}

// WithEngineWait sets how long to wait for an engine that has gone away: when it
// does not answer while something is made or removed, that is tried again until
// the engine is back. The time counts once for each Cleanup and each step. The
// default is 30 seconds; 0 waits for nothing. A step that wants an engine where
// none has ever answered fails at once.
func WithEngineWait(limit time.Duration) Option {
	return func(c *config) error {
		if limit < 0 {
			return fmt.Errorf("wait for the engine: %v is negative", limit)
		}
		c.engineWait = limit
		return nil
	}
}

// WithTermination makes the driver send SIGTERM to a host step that is stopped
// as often as attempts, one every interval, before it sends SIGKILL
// (HARNESS_SUBPROCESS_KILL_PROCESS_GROUP_MAX_SIGTERM_ATTEMPTS and
// ..._RETRY_INTERVAL_SECS, SPEC D4). SIGKILL comes an interval after the last
// attempt, and not before the grace of [WithGrace] is over; a step that ends
// earlier is not waited for. The default is 0 attempts: the grace alone counts,
// with one SIGTERM at its beginning.
func WithTermination(attempts int, interval time.Duration) Option {
	return func(c *config) error {
		if attempts < 0 {
			return fmt.Errorf("termination: %d attempts", attempts)
		}
		if attempts > 0 && interval <= 0 {
			return fmt.Errorf("termination: the interval %v is not positive", interval)
		}
		c.attempts, c.interval = attempts, interval
		return nil
	}
}

// WithPluginCache sets the folder that keeps the programs of plugin steps, each
// under its checksum, for all transactions. Several drivers and processes may
// share it. It is made when it is first needed, and nothing is ever removed from
// it. The default is dlite/plugins in [os.UserCacheDir].
//
// What is in it is run: nobody else may be able to write to it.
func WithPluginCache(dir string) Option {
	return func(c *config) error {
		if dir == "" {
			return errors.New("plugin cache: the path is empty")
		}
		abs, err := filepath.Abs(dir)
		if err != nil {
			return fmt.Errorf("plugin cache: %w", err)
		}
		c.pluginCache = abs
		return nil
	}
}

// WithFileLimit sets how many bytes are read of each file that a step hands on:
// outputs, secret outputs, environment, artifact. A larger file is not read at
// all, which fails the step ([driver.Result], Lost). The default is 1 MiB.
func WithFileLimit(bytes int64) Option {
	return func(c *config) error {
		if bytes <= 0 {
			return fmt.Errorf("file limit: %d is not positive", bytes)
		}
		c.fileLimit = bytes
		return nil
	}
}

// WithLogger sets where the driver logs what no caller is told. The default is
// nowhere.
func WithLogger(log zerolog.Logger) Option {
	return func(c *config) error {
		c.log = log
		return nil
	}
}

func newConfig(opts []Option) (*config, error) {
	c := &config{
		workDir:    os.TempDir(),
		memoryDir:  defaultMemoryDir(),
		engineWait: 30 * time.Second,
		pull:       defaultPullTimes,
		fileLimit:  1 << 20,
		log:        zerolog.Nop(),
	}
	for _, opt := range opts {
		if err := opt(c); err != nil {
			return nil, err
		}
	}
	// Records hold resolved paths, so that they compare equal however the folder
	// was named.
	for _, dir := range []*string{&c.workDir, &c.memoryDir, &c.workspace} {
		if *dir == "" {
			continue
		}
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return nil, fmt.Errorf("work folder: %w", err)
		}
		if *dir, err = filepath.EvalSymlinks(abs); err != nil {
			return nil, fmt.Errorf("work folder: %w", err)
		}
	}
	return c, nil
}
