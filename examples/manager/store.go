package main

import (
	"cmp"
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"
	goredis "github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/examples/internal/service"
	"github.com/delegate-io/dlite/examples/internal/serving"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/logservice"
	"github.com/delegate-io/dlite/manager/redis"
	"github.com/delegate-io/dlite/manager/sqlite"
)

// storeOptions are the settings of the manager's store.
type storeOptions struct {
	Store string
	// StoreKey encrypts the store. It has no flag, because it is a secret.
	StoreKey string
	DataDir  string
	// OperatorToken authorizes the calls that act on all accounts. It has no flag, because it is a secret. Only the
	// server uses it.
	OperatorToken string
	// PipelinesDatabase is the database of runs. It has no flag, because its URL may contain a password. Only the
	// server uses it.
	PipelinesDatabase string
	// PipelinesRedis carries the messages of runs. It is like PipelinesDatabase.
	PipelinesRedis string
	// OIDCSecret is the secret of the page at the service of OIDC_ISSUER. It has no flag. Only the server uses it.
	OIDCSecret string
}

func (o *storeOptions) register(fs *flag.FlagSet) {
	fs.StringVar(&o.Store, "store", "sqlite", "store of stages, tasks and delegates: sqlite (in the data directory), memory, "+
		"or the URL of a Redis that several managers share, redis://host:6379/0; STORE_KEY encrypts it")
	fs.StringVar(&o.DataDir, "data-dir", "", "directory of the database, its key and the logs (default: dlite-manager in the user's state directory)")
}

// dir returns the data directory. It creates the directory if it is missing.
func (o *storeOptions) dir() (string, error) {
	dir := cmp.Or(o.DataDir, service.StateDir())
	if dir == "" {
		state := os.Getenv("XDG_STATE_HOME")
		if state == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return "", fmt.Errorf("this user has no home directory for the database: set DATA_DIR, or STORE=memory: %w", err)
			}
			state = filepath.Join(home, ".local", "state")
		}
		dir = filepath.Join(state, "dlite-manager")
	}
	return dir, os.MkdirAll(dir, 0o700)
}

// database returns the path of the database file.
func (o *storeOptions) database() (string, error) {
	dir, err := o.dir()
	return filepath.Join(dir, "manager.db"), err
}

func (o *storeOptions) inMemory() bool { return o.Store == "" || o.Store == "memory" }

func (o *storeOptions) onRedis() bool {
	return strings.HasPrefix(o.Store, "redis://") || strings.HasPrefix(o.Store, "rediss://") || strings.HasPrefix(o.Store, "unix://")
}

// keys returns the keys of the store, the newest first. A store in memory has none.
func (o *storeOptions) keys() ([][]byte, error) {
	keys, err := serving.ParseKeys(o.StoreKey)
	switch {
	case err != nil:
		return nil, err
	case len(keys) > 0 || o.inMemory():
		return keys, nil
	case o.onRedis():
		return nil, errors.New("STORE_KEY is missing: all managers on one Redis need the same secret, which encrypts their data there")
	}
	dir, err := o.dir()
	if err != nil {
		return nil, err
	}
	key, err := logservice.LoadKey(filepath.Join(dir, "key"))
	return [][]byte{key}, err
}

// redisLog writes the messages of the Redis client to the log, at level debug.
type redisLog struct{ zerolog.Logger }

func (l redisLog) Printf(_ context.Context, format string, v ...any) { l.Debug().Msgf(format, v...) }

// open opens the store. It returns nil for a store in memory.
func (o *storeOptions) open(ctx context.Context, log zerolog.Logger) (manager.Store, error) {
	switch {
	case o.inMemory():
		return nil, nil
	case o.onRedis():
		goredis.SetLogger(redisLog{log})
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		return redis.OpenStore(ctx, redis.Config{URL: o.Store, Logger: log})
	case o.Store == "sqlite":
		file, err := o.database()
		if err != nil {
			return nil, err
		}
		return sqlite.Open(ctx, file, sqlite.Config{Logger: log})
	}
	return nil, fmt.Errorf("STORE is %q; it must be sqlite, memory, or a URL that begins with redis://", o.Store)
}

// streams opens the store of live logs. It returns nil if the streams are in the directory of the logs or in memory.
func (o *storeOptions) streams(ctx context.Context, log zerolog.Logger) (logservice.Streams, error) {
	if !o.onRedis() {
		return nil, nil
	}
	return redis.OpenStreams(ctx, redis.Config{URL: o.Store, Logger: log})
}

// logKey returns the key that signs the tokens of the log service. It is the same on all
// managers of one store.
func (o *storeOptions) logKey(keys [][]byte) ([]byte, error) {
	return hkdf.Key(sha256.New, keys[0], nil, "dlite log service", 32)
}

func newBackupCommand() *ffcli.Command {
	o := &storeOptions{}
	return newCommand("backup", "copy the database to a new file, also while the manager serves", o, func(*flag.FlagSet) {},
		func(ctx context.Context, _ map[string]string, args []string) error { return o.backup(ctx, args[0]) }, "file")
}

func (o *storeOptions) backup(ctx context.Context, file string) error {
	database, err := o.database()
	if err != nil {
		return err
	}
	if err := sqlite.Backup(ctx, database, file); err != nil {
		return err
	}
	fmt.Printf("%s is a copy of %s; keep the key apart from it\n", file, database)
	return nil
}

func newRestoreCommand() *ffcli.Command {
	o := &storeOptions{}
	return newCommand("restore", "make a backup the database; there must be no database", o, func(*flag.FlagSet) {},
		func(ctx context.Context, _ map[string]string, args []string) error { return o.restore(ctx, args[0]) }, "backup")
}

func (o *storeOptions) restore(ctx context.Context, backup string) error {
	database, err := o.database()
	if err != nil {
		return err
	}
	if err := sqlite.Restore(ctx, backup, database); err != nil {
		return err
	}
	fmt.Printf("%s is restored; it opens with the key that it had at the time of the backup\n", database)
	return nil
}

func newCheckCommand() *ffcli.Command {
	o := &storeOptions{}
	return newCommand("check", "read the whole database and report whether it is sound", o, func(*flag.FlagSet) {},
		func(ctx context.Context, _ map[string]string, _ []string) error { return o.check(ctx) })
}

func (o *storeOptions) check(ctx context.Context) error {
	database, err := o.database()
	if err != nil {
		return err
	}
	if err := sqlite.Check(ctx, database); err != nil {
		return err
	}
	fmt.Printf("%s is sound\n", database)
	return nil
}
