package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// envConfig is the configuration of the runner.
type envConfig struct {
	Manager struct {
		Endpoint        string
		AccountID       string
		AccountSecret   string
		Token           string
		Name            string
		SkipVerify      bool
		CertsDir        string
		PollInterval    time.Duration
		ParallelWorkers int
		TokenExpiry     time.Duration
	}
	Server struct {
		Address string
	}
	Pools struct {
		Names []string
		Size  int
		Limit int
		Root  string
		// Purge is the age at which a busy instance is destroyed.
		Purge time.Duration
	}
	Limits struct {
		Stages  int
		Output  int
		Timeout time.Duration
	}
}

// fromEnviron reads the configuration from variables.
func fromEnviron(getenv func(string) string) (*envConfig, error) {
	c := &envConfig{}
	r := reader{getenv: getenv}
	c.Manager.Endpoint = r.text("RUNNER_MANAGER_ENDPOINT", "")
	c.Manager.AccountID = r.text("RUNNER_ACCOUNT_ID", "")
	c.Manager.AccountSecret = r.text("RUNNER_ACCOUNT_SECRET", "")
	c.Manager.Token = r.text("RUNNER_TOKEN", "")
	c.Manager.Name = r.text("RUNNER_NAME", "runner")
	c.Manager.SkipVerify = r.flag("RUNNER_SKIP_VERIFY", false)
	c.Manager.CertsDir = r.text("RUNNER_CERTS_DIR", "")
	c.Manager.PollInterval = r.duration("RUNNER_POLL_INTERVAL", 3*time.Second)
	c.Manager.ParallelWorkers = r.number("RUNNER_PARALLEL_WORKERS", 100)
	c.Manager.TokenExpiry = r.duration("RUNNER_TOKEN_EXPIRY", 6*time.Hour)
	c.Server.Address = r.text("RUNNER_ADDRESS", "127.0.0.1:3000")
	c.Pools.Names = r.list("RUNNER_POOLS", "default")
	c.Pools.Size = r.number("RUNNER_POOL_SIZE", 1)
	c.Pools.Limit = r.number("RUNNER_POOL_LIMIT", 4)
	c.Pools.Root = r.text("RUNNER_ROOT", "")
	c.Pools.Purge = r.duration("RUNNER_PURGE", 24*time.Hour)
	c.Limits.Stages = r.number("RUNNER_STAGES", 0)
	c.Limits.Output = r.number("RUNNER_OUTPUT", 1<<20)
	c.Limits.Timeout = r.duration("RUNNER_STEP_TIMEOUT", 10*time.Hour)
	if r.err != nil {
		return nil, r.err
	}
	return c, c.validate()
}

func (c *envConfig) validate() error {
	switch {
	case c.Manager.Endpoint == "":
		return errors.New("RUNNER_MANAGER_ENDPOINT is not set")
	case c.Manager.AccountID == "":
		return errors.New("RUNNER_ACCOUNT_ID is not set")
	case c.Manager.AccountSecret == "" && c.Manager.Token == "":
		return errors.New("RUNNER_ACCOUNT_SECRET is not set")
	case c.Pools.Size > c.Pools.Limit:
		return fmt.Errorf("RUNNER_POOL_SIZE %d is above RUNNER_POOL_LIMIT %d", c.Pools.Size, c.Pools.Limit)
	case len(c.Pools.Names) == 0:
		return errors.New("RUNNER_POOLS names no pool")
	}
	return nil
}

// reader reads variables and keeps the first error.
type reader struct {
	getenv func(string) string
	err    error
}

func (r *reader) fail(name string, err error) {
	if r.err == nil {
		r.err = fmt.Errorf("%s: %w", name, err)
	}
}

func (r *reader) text(name, fallback string) string {
	if v := strings.TrimSpace(r.getenv(name)); v != "" {
		return v
	}
	return fallback
}

func (r *reader) flag(name string, fallback bool) bool {
	v := r.text(name, strconv.FormatBool(fallback))
	b, err := strconv.ParseBool(v)
	if err != nil {
		r.fail(name, err)
	}
	return b
}

func (r *reader) number(name string, fallback int) int {
	v := r.text(name, strconv.Itoa(fallback))
	n, err := strconv.Atoi(v)
	if err != nil {
		r.fail(name, err)
	}
	return n
}

func (r *reader) duration(name string, fallback time.Duration) time.Duration {
	v := r.text(name, fallback.String())
	d, err := time.ParseDuration(v)
	if err != nil {
		r.fail(name, err)
	}
	return d
}

func (r *reader) list(name, fallback string) []string {
	var list []string
	for _, part := range strings.Split(r.text(name, fallback), ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}
