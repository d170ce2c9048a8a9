package artifact

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// Held is a program or directory of a cache. No [Cache.Trim] of any process removes it before Release.
type Held struct {
	// Path is its path.
	Path string
	lock *flock.Flock
}

// Release allows the cache to remove the entry. It may be called again.
func (h *Held) Release() { _ = h.lock.Unlock() }

const (
	// lockPoll is the time between two attempts to lock an entry that another process locks.
	lockPoll = 20 * time.Millisecond
	// useStep is the precision of the time of the last use.
	useStep = time.Minute

	lockSuffix = ".lock"
	// partSuffix follows the name of an entry that is being created or removed.
	partSuffix = ".part-"
)

// hold returns the entry with that name. If it does not exist, fill creates it, alone. A user of the
// entry holds a shared lock. A process that creates or removes it holds an exclusive lock. The time of
// the lock file is the time of the last use.
func (c *Cache) hold(ctx context.Context, name string, exists func(string) bool, fill func(file string) error) (*Held, error) {
	file := filepath.Join(c.dir, name)
	for {
		lock, info, err := c.acquire(ctx, name, (*flock.Flock).TryRLockContext)
		if errors.Is(err, fs.ErrNotExist) {
			if err := os.MkdirAll(c.dir, 0o700); err != nil {
				return nil, fmt.Errorf("cache: %w", err)
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		if exists(file) {
			if now := time.Now(); now.Sub(info.ModTime()).Abs() > useStep {
				_ = os.Chtimes(lock.Path(), now, now) // at worst the entry is removed too early
			}
			return &Held{Path: file, lock: lock}, nil
		}
		_ = lock.Unlock()
		if err := c.create(ctx, name, exists, fill); err != nil {
			return nil, err
		}
	}
}

// create calls fill unless another process has created the entry.
func (c *Cache) create(ctx context.Context, name string, exists func(string) bool, fill func(file string) error) error {
	lock, _, err := c.acquire(ctx, name, (*flock.Flock).TryLockContext)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Unlock() }()
	file := filepath.Join(c.dir, name)
	if exists(file) {
		return nil
	}
	// The process that wrote these is dead: it would hold the lock.
	c.removeParts(name)
	if err := fill(file); err != nil {
		return err
	}
	now := time.Now()
	_ = os.Chtimes(lock.Path(), now, now) // as above
	c.made.Add(1)
	return nil
}

// acquire locks a name. A lock whose file was removed protects nothing, because another process may
// have created a new file.
func (c *Cache) acquire(ctx context.Context, name string, take func(*flock.Flock, context.Context, time.Duration) (bool, error)) (*flock.Flock, fs.FileInfo, error) {
	for {
		lock := flock.New(filepath.Join(c.dir, name+lockSuffix))
		if _, err := take(lock, ctx, lockPoll); err != nil {
			if ctx.Err() != nil {
				return nil, nil, fmt.Errorf("wait for another download: %w", err)
			}
			return nil, nil, fmt.Errorf("cache: %w", err)
		}
		if info, ok := stands(lock); ok {
			return lock, info, nil
		}
		_ = lock.Unlock()
	}
}

// stands reports whether the file of a held lock is still the one that other processes find.
func stands(lock *flock.Flock) (fs.FileInfo, bool) {
	mine, err := lock.Stat()
	if err != nil {
		return nil, false
	}
	found, err := os.Stat(lock.Path())
	return mine, err == nil && os.SameFile(mine, found)
}

func (c *Cache) removeParts(name string) {
	entries, _ := os.ReadDir(c.dir) // on an error the entries that were read
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), name+partSuffix) {
			_ = os.RemoveAll(filepath.Join(c.dir, e.Name()))
		}
	}
}
