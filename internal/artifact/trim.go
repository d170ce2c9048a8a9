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

// Limits bound the content of a cache. The zero value bounds nothing.
type Limits struct {
	// Size is the maximum size of all entries together, in bytes. 0 means no limit.
	Size int64
	// Age is the maximum time since the last use, with a precision of a minute. 0 means no limit.
	Age time.Duration
}

// leftoverAge is how long the lock of an entry that could not be created is kept.
const leftoverAge = time.Hour

// Made returns how many entries this Cache has created. A caller uses it to decide when to trim.
func (c *Cache) Made() uint64 { return c.made.Load() }

// item is an entry of the cache.
type item struct {
	name string
	size int64
	used time.Time
}

// Trim removes entries that were not used for too long. Then it removes the entries with the oldest
// use until the rest fits. Entries that any process holds stay, and count. Trim removes only entries
// that a Cache has created. Several trims may run at once.
func (c *Cache) Trim(now time.Time, limits Limits) error {
	items, err := c.items(now)
	if err != nil {
		return fmt.Errorf("trim the cache: %w", err)
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
			errs = append(errs, fmt.Errorf("trim the cache: %w", err))
		}
	}
	return errors.Join(errs...)
}

// items lists all entries. It also removes the remains of entries that could not be created.
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
		if !ok || err != nil { // removed meanwhile
			continue
		}
		i := item{name: name, used: info.ModTime()}
		if _, err := os.Lstat(filepath.Join(c.dir, name)); err == nil {
			i.size = sizeOf(filepath.Join(c.dir, name))
			items = append(items, i)
		} else if now.Sub(i.used) > leftoverAge {
			_, _ = c.remove(i) // the next trim tries again
		}
	}
	return items, nil
}

// sizeOf returns the size of all readable files below a path.
func sizeOf(path string) (size int64) {
	_ = filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // an unreadable file does not count
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			size += info.Size()
		}
		return nil
	})
	return size
}

// remove removes an entry, unless it is in use or was used after the scan. It renames the entry first,
// so that no process finds a part of it.
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
	c.removeParts(i.name) // of a process that died
	if err := os.Rename(file, file+partSuffix+"old"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	c.removeParts(i.name)
	_ = os.Remove(lock.Path()) // it stays on systems that do not remove open files
	return true, nil
}
