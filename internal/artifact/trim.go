package artifact

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// Limits bound what a cache keeps. The zero value bounds nothing.
type Limits struct {
	// Size is of all programs and folders together, in bytes. 0 means unbounded.
	Size int64
	// Age is since something was used last, as exactly as a minute. 0 means
	// unbounded.
	Age time.Duration
}

// leftover is how long the lock of something that could not be made is kept.
const leftover = time.Hour

// Made counts what this Cache has put into its folder, and so tells when it is time
// to trim it.
func (c *Cache) Made() uint64 { return c.made.Load() }

// item is something that a cache has.
type item struct {
	name string
	size int64
	used time.Time
}

// Trim removes what was not used for too long, and then what was used longest ago
// until the rest fits. What is held stays, by whatever process, and counts. It
// touches only what a Cache has put there. Several may trim at once.
func (c *Cache) Trim(now time.Time, limits Limits) error {
	items, err := c.items(now)
	if err != nil {
		return fmt.Errorf("clear the cache up: %w", err)
	}
	var total int64
	for _, i := range items {
		total += i.size
	}
	slices.SortFunc(items, func(a, b item) int {
		return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.name, b.name))
	})
	var errs []error
	for _, i := range items {
		old := limits.Age > 0 && now.Sub(i.used) > limits.Age
		if !old && (limits.Size <= 0 || total <= limits.Size) {
			continue
		}
		gone, err := c.remove(i)
		if gone {
			total -= i.size
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("clear the cache up: %w", err))
		}
	}
	return errors.Join(errs...)
}

// items gives all that the cache has. On the way it removes what is left of what
// could not be made.
func (c *Cache) items(now time.Time) ([]item, error) {
	entries, err := os.ReadDir(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var items []item
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), lockSuffix)
		info, err := e.Info()
		if !ok || err != nil { // gone meanwhile
			continue
		}
		i := item{name: name, used: info.ModTime()}
		if _, err := os.Lstat(filepath.Join(c.dir, name)); err == nil {
			i.size = sizeOf(filepath.Join(c.dir, name))
			items = append(items, i)
		} else if now.Sub(i.used) > leftover {
			_, _ = c.remove(i) // the next time, then
		}
	}
	return items, nil
}

// sizeOf is of all files below a path, as far as it can be seen.
func sizeOf(path string) (size int64) {
	_ = filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // what cannot be seen counts nothing
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			size += info.Size()
		}
		return nil
	})
	return size
}

// remove removes something, unless it is in use or was used since it was looked at.
// It loses its name at once: half of it must never be found.
func (c *Cache) remove(i item) (gone bool, err error) {
	lock := flock.New(filepath.Join(c.dir, i.name+lockSuffix))
	if ok, err := lock.TryLock(); !ok || err != nil {
		return false, err
	}
	defer func() { _ = lock.Unlock() }()
	if info, ok := stands(lock); !ok || !info.ModTime().Equal(i.used) {
		return false, nil
	}
	file := filepath.Join(c.dir, i.name)
	c.removeParts(i.name) // of somebody who died
	if err := os.Rename(file, file+partSuffix+"old"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	c.removeParts(i.name)
	_ = os.Remove(lock.Path()) // where open files cannot be removed it stays
	return true, nil
}
