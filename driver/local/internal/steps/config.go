package steps

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"
)

// Config sets up a [Driver]. It has the fields of host.Config, which documents them.
type Config struct {
	HTTPClient     *http.Client
	GitEnvironment func(dir string) (map[string]string, error)
	WorkDir        string
	MemoryDir      string
	Workspace      string
	Grace          time.Duration
	TermAttempts   int
	TermInterval   time.Duration
	PluginCache    string
	Builtins       map[string][]string
	FileLimit      int64
	WholeMachine   bool
	Trusted        bool
	Hidden         []string
	Log            zerolog.Logger
}

// check validates c and fills in the defaults.
func (c *Config) check() error {
	switch {
	case c.Grace < 0:
		return fmt.Errorf("grace period: %v is negative", c.Grace)
	case c.TermAttempts < 0:
		return fmt.Errorf("termination: %d attempts", c.TermAttempts)
	case c.TermAttempts > 0 && c.TermInterval <= 0:
		return fmt.Errorf("termination: the interval %v is not positive", c.TermInterval)
	case c.FileLimit < 0:
		return fmt.Errorf("file limit: %d is negative", c.FileLimit)
	}
	if c.FileLimit == 0 {
		c.FileLimit = 1 << 20
	}
	if err := c.checkDirectories(); err != nil {
		return err
	}
	return c.resolvePaths()
}

func (c *Config) checkDirectories() error {
	if c.WorkDir == "" {
		c.WorkDir = os.TempDir()
	} else if err := os.MkdirAll(c.WorkDir, 0o711); err != nil {
		return fmt.Errorf("work directory: %w", err)
	}
	if c.MemoryDir == "" {
		c.MemoryDir = defaultMemoryDir()
	}
	if c.Workspace != "" {
		if info, err := os.Stat(c.Workspace); err != nil || !info.IsDir() {
			return fmt.Errorf("workspace: %q is not a directory", c.Workspace)
		}
	}
	return nil
}

// resolvePaths makes the paths absolute and resolves links. Records hold resolved paths, so that
// two configurations that name one directory differently have equal records.
func (c *Config) resolvePaths() error {
	for _, dir := range []*string{&c.WorkDir, &c.MemoryDir, &c.Workspace} {
		if *dir == "" {
			continue
		}
		abs, err := filepath.Abs(*dir)
		if err == nil {
			abs, err = filepath.EvalSymlinks(abs)
		}
		if err != nil {
			return fmt.Errorf("work directory: %w", err)
		}
		*dir = abs
	}
	if c.PluginCache == "" {
		return nil
	}
	abs, err := filepath.Abs(c.PluginCache)
	if err != nil {
		return fmt.Errorf("plugin cache: %w", err)
	}
	c.PluginCache = abs
	return nil
}

// PluginDir returns the directory that keeps plugin programs.
func (d *Driver) PluginDir() (string, error) {
	if d.Config.PluginCache != "" {
		return d.Config.PluginCache, nil
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return "", errors.Join(errors.New("the user has no cache directory for plugins: set PluginCache"), err)
	}
	return filepath.Join(user, "dlite", "plugins"), nil
}
