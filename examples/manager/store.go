package main

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/logservice"
	logredis "github.com/delegate-io/dlite/manager/logservice/redis"
	"github.com/delegate-io/dlite/manager/redis"
	"github.com/delegate-io/dlite/manager/sqlite"
)

// storeOptions say where the manager keeps what it knows.
type storeOptions struct {
	Store    string `default:"sqlite" help:"Where stages, tasks and delegates are kept: sqlite (in the data folder), memory, or the URL of a Redis that several managers share, redis://host:6379/0." env:"STORE"`
	StoreKey string `help:"Secret of 16 characters or more by which the store is encrypted; default: a file in the data folder. Required with Redis, the same for all managers. To change it put the new one first: NEW,OLD." env:"STORE_KEY" name:"store-key"`
	DataDir  string `help:"Folder for the database, its key and the logs; default: dlite-manager in the user's state folder." env:"DATA_DIR" name:"data-dir"`
}

// dir is the data folder, made if need be.
func (o *storeOptions) dir() (string, error) {
	dir := o.DataDir
	if dir == "" {
		state := os.Getenv("XDG_STATE_HOME")
		if state == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return "", fmt.Errorf("there is no place for the database: set DATA_DIR, or STORE=memory: %w", err)
			}
			state = filepath.Join(home, ".local", "state")
		}
		dir = filepath.Join(state, "dlite-manager")
	}
	return dir, os.MkdirAll(dir, 0o700)
}

// database is the file of the database.
func (o *storeOptions) database() (string, error) {
	dir, err := o.dir()
	return filepath.Join(dir, "manager.db"), err
}

func (o *storeOptions) inMemory() bool { return o.Store == "" || o.Store == "memory" }

func (o *storeOptions) onRedis() bool {
	return strings.HasPrefix(o.Store, "redis://") || strings.HasPrefix(o.Store, "rediss://") || strings.HasPrefix(o.Store, "unix://")
}

// keys are those that open the store: none in memory.
func (o *storeOptions) keys() ([][]byte, error) {
	var keys [][]byte
	for _, text := range strings.Split(o.StoreKey, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		if len(text) < 16 {
			return nil, errors.New("STORE_KEY is too short: it needs 16 characters or more, like those that `openssl rand -hex 16` prints")
		}
		keys = append(keys, []byte(text))
	}
	switch {
	case len(keys) > 0 || o.inMemory():
		return keys, nil
	case o.onRedis():
		return nil, errors.New("STORE_KEY is missing: all managers on one Redis need the same secret, by which they encrypt what they keep there")
	}
	dir, err := o.dir()
	if err != nil {
		return nil, err
	}
	key, err := logservice.LoadKey(filepath.Join(dir, "key"))
	return [][]byte{key}, err
}

// redisLog has the Redis client say in our log, on level debug, what it would print.
type redisLog struct{ zerolog.Logger }

func (l redisLog) Printf(_ context.Context, format string, v ...any) { l.Debug().Msgf(format, v...) }

// open opens the store; nil is the memory.
func (o *storeOptions) open(ctx context.Context, log zerolog.Logger) (manager.Store, error) {
	switch {
	case o.inMemory():
		return nil, nil
	case o.onRedis():
		goredis.SetLogger(redisLog{log})
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		return redis.Open(ctx, redis.Config{URL: o.Store, Logger: log})
	case o.Store == "sqlite":
		file, err := o.database()
		if err != nil {
			return nil, err
		}
		return sqlite.Open(ctx, file, sqlite.Config{Logger: log})
	}
	return nil, fmt.Errorf("STORE is %q; it may be sqlite, memory, or a URL that begins with redis://", o.Store)
}

// streams are where live logs are kept; nil is the folder, or memory.
func (o *storeOptions) streams(ctx context.Context, log zerolog.Logger) (logservice.Streams, error) {
	if !o.onRedis() {
		return nil, nil
	}
	return logredis.Open(ctx, logredis.Config{URL: o.Store, Logger: log})
}

// logKey signs what the log service hands out, the same on all managers.
func (o *storeOptions) logKey(keys [][]byte) ([]byte, error) {
	return hkdf.Key(sha256.New, keys[0], nil, "dlite log service", 32)
}

type backupCommand struct {
	storeOptions
	File string `arg:"" help:"File to write; it must not exist." type:"path"`
}

// Run writes a backup, also while the manager serves.
func (c *backupCommand) Run() error {
	file, err := c.database()
	if err != nil {
		return err
	}
	if err := sqlite.Backup(context.Background(), file, c.File); err != nil {
		return err
	}
	fmt.Printf("%s has a copy of %s; keep the key apart from it\n", c.File, file)
	return nil
}

type restoreCommand struct {
	storeOptions
	File string `arg:"" help:"The backup." type:"existingfile"`
}

// Run puts a backup in the place of the database, which must not be there.
func (c *restoreCommand) Run() error {
	file, err := c.database()
	if err != nil {
		return err
	}
	if err := sqlite.Restore(context.Background(), c.File, file); err != nil {
		return err
	}
	fmt.Printf("%s is what the backup was; it opens with the key of that time\n", file)
	return nil
}

type checkCommand struct{ storeOptions }

// Run reads through the database.
func (c *checkCommand) Run() error {
	file, err := c.database()
	if err != nil {
		return err
	}
	if err := sqlite.Check(context.Background(), file); err != nil {
		return err
	}
	fmt.Printf("%s is whole\n", file)
	return nil
}
