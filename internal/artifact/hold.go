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

// Held is a program or a folder of a cache. No [Cache.Trim], of whatever process,
// removes it before it is released.
type Held struct {
	// Path is where it is.
	Path string
	lock *flock.Flock
}

// Release gives it back. It may be called again.
func (h *Held) Release() { _ = h.lock.Unlock() }

const (
	// lockPoll is how often a process that waits for another one's download looks.
	lockPoll = 20 * time.Millisecond
	// useStep is how exactly it is known when something was used last.
	useStep = time.Minute

	lockSuffix = ".lock"
	// partSuffix is what comes after a name while it is being made or removed.
	partSuffix = ".part-"
)

// hold gives what has that name, which fill makes while nobody else does. Who uses
// it shares its lock, and who makes or removes it has the lock alone. The lock's file
// tells when it was used last.
func (c *Cache) hold(ctx context.Context, name string, there func(string) bool, fill func(file string) error) (*Held, error) {
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
		if there(file) {
			if now := time.Now(); now.Sub(info.ModTime()).Abs() > useStep {
				_ = os.Chtimes(lock.Path(), now, now) // it is cleared away too early at worst
			}
			return &Held{Path: file, lock: lock}, nil
		}
		_ = lock.Unlock()
		if err := c.make(ctx, name, there, fill); err != nil {
			return nil, err
		}
	}
}

// make has fill make what has that name, unless somebody was faster.
func (c *Cache) make(ctx context.Context, name string, there func(string) bool, fill func(file string) error) error {
	lock, _, err := c.acquire(ctx, name, (*flock.Flock).TryLockContext)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Unlock() }()
	file := filepath.Join(c.dir, name)
	if there(file) {
		return nil
	}
	// Whoever wrote these is dead, or would hold the lock.
	c.removeParts(name)
	if err := fill(file); err != nil {
		return err
	}
	now := time.Now()
	_ = os.Chtimes(lock.Path(), now, now) // as above
	c.made.Add(1)
	return nil
}

// acquire takes the lock of a name. A lock whose file was removed guards nothing:
// somebody else may have made another one.
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

// stands reports whether a lock that is held has the file that others find.
func stands(lock *flock.Flock) (fs.FileInfo, bool) {
	mine, err := lock.Stat()
	if err != nil {
		return nil, false
	}
	found, err := os.Stat(lock.Path())
	return mine, err == nil && os.SameFile(mine, found)
}

func (c *Cache) removeParts(name string) {
	entries, _ := os.ReadDir(c.dir) // what there is of it, when it fails
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), name+partSuffix) {
			_ = os.RemoveAll(filepath.Join(c.dir, e.Name()))
		}
	}
}
