package redis

import (
	"errors"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/rs/zerolog"
)

// Config configures [OpenStore] and [OpenStreams]. URL or Client is required.
type Config struct {
	// URL is the address of a single Redis: redis://user:password@host:port/db,
	// rediss:// for TLS, or unix:///path.
	URL string
	// Client creates a client instead of URL, for a cluster, for sentinels, or for
	// settings that a URL does not support. OpenStreams calls it twice. Close closes the
	// clients.
	Client func() goredis.UniversalClient
	// Prefix is the prefix of all keys; that of a store is within a hash tag. Stores with
	// different prefixes are independent. Defaults to "dlite:journal" for a store and
	// "dlite:logs:" for streams.
	Prefix string

	// MaxStream bounds one live stream, in bytes, in addition to the limit of the log
	// service. 0 means 64 MiB. OpenStore accepts only 0.
	MaxStream int64
	// MaxTotal approximately bounds all streams together, in bytes. Several managers
	// may exceed it by the lines that they append at the same time. The streams of one
	// account may use as much as those of the others leave free, at most half. 0 means 1
	// GiB. OpenStore accepts only 0.
	MaxTotal int64
	// Lease is the time after which another manager may replace a dead one that was
	// creating an archive. 0 means 30 s. OpenStore accepts only 0.
	Lease time.Duration

	// Logger logs failures of background work, and settings of Redis that endanger the
	// data. The zero value logs nothing.
	Logger zerolog.Logger
}

// NewClient creates a client for another use of the same Redis. The caller closes it.
func (c *Config) NewClient() (goredis.UniversalClient, error) {
	create, err := c.clients(2)
	if err != nil {
		return nil, err
	}
	return create(), nil
}

// clients returns a function that creates a client. A client of a URL repeats a failed
// command maxRetries times; -1 means never.
func (c *Config) clients(maxRetries int) (func() goredis.UniversalClient, error) {
	if c.Client != nil {
		return c.Client, nil
	}
	if c.URL == "" {
		return nil, errors.New("neither URL nor Client is set")
	}
	o, err := goredis.ParseURL(c.URL)
	if err != nil {
		// The error may quote the URL, and with it the password.
		return nil, errors.New("the URL is not valid: write it like redis://user:password@host:port/0")
	}
	o.ContextTimeoutEnabled = true
	o.DialerRetries, o.MaxRetries = 1, maxRetries
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return func() goredis.UniversalClient { return goredis.NewClient(o) }, nil
}
