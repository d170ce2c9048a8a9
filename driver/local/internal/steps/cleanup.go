package steps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/recorded"
)

// Cleaner is one part of a cleanup, for the resources of one package. A cleanup makes a new one.
type Cleaner interface {
	// Terminate asks the processes of the resources to end. It returns when they have ended or their
	// time is over. It reports no errors: the removal that follows finds them again.
	Terminate(ctx context.Context, byKind map[string][]driver.Resource)
	// Removers returns how to remove each kind, in the order of the removals.
	Removers() []Remover
}

// Remover removes the resources of one kind.
type Remover struct {
	Kind string
	// Parallel limits how many removals run at once; 0 counts as 1.
	Parallel int
	// Prepare runs before the removals, unless there are no resources. It may be nil.
	Prepare func(context.Context, []driver.Resource)
	Remove  func(context.Context, driver.Resource) error
}

// Cleanup removes the resources of the records and returns those that it could not remove (rules T2
// and T3). First it asks everything that still runs to end, for at most half of the time of ctx. Then
// it removes one kind of resource after the other.
func (d *Driver) Cleanup(ctx context.Context, rs []driver.Resource) ([]driver.Resource, error) {
	// After this, no goroutine of this process creates one of rs.
	if err := d.Gate.Block(ctx, rs); err != nil {
		return rs, fmt.Errorf("cleanup: %w", err)
	}
	c := &cleanup{d: d}
	byKind := map[string][]driver.Resource{}
	for _, r := range rs {
		byKind[r.Kind] = append(byKind[r.Kind], r)
	}
	var removers []Remover
	var wg sync.WaitGroup
	for _, begin := range d.cleaners {
		cleaner := begin()
		removers = append(removers, cleaner.Removers()...)
		wg.Go(func() { cleaner.Terminate(ctx, byKind) })
	}
	wg.Wait()
	for _, r := range append(removers, c.removers()...) {
		list := byKind[r.Kind]
		delete(byKind, r.Kind)
		// Deeper directories first.
		slices.SortStableFunc(list, func(a, b driver.Resource) int { return len(b.ID) - len(a.ID) })
		if len(list) > 0 && r.Prepare != nil {
			r.Prepare(ctx, list)
		}
		c.removeEach(ctx, list, max(r.Parallel, 1), r.Remove)
	}
	for kind, list := range byKind {
		for _, r := range list {
			c.addFailure(r, fmt.Errorf("kind %q is not known to this driver", kind))
		}
	}
	return c.kept, errors.Join(c.errs...)
}

// HalfTime limits a duration to half of the time that ctx leaves.
func HalfTime(ctx context.Context, limit time.Duration) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return min(limit, time.Until(end)/2)
	}
	return limit
}

// cleanup is one call of [Driver.Cleanup].
type cleanup struct {
	d *Driver

	mu   sync.Mutex
	kept []driver.Resource // guarded by mu
	errs []error           // guarded by mu
}

// addFailure notes a resource that could not be removed.
func (c *cleanup) addFailure(r driver.Resource, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = append(c.kept, r)
	c.errs = append(c.errs, fmt.Errorf("remove %s %s: %w", r.Kind, r.ID, err))
}

// removeEach removes the resources of list, limit at a time.
func (c *cleanup) removeEach(ctx context.Context, list []driver.Resource, limit int, remove func(context.Context, driver.Resource) error) {
	var wg sync.WaitGroup
	tokens := make(chan struct{}, limit)
	for _, r := range list {
		if err := ctx.Err(); err != nil {
			c.addFailure(r, err)
			continue
		}
		tokens <- struct{}{}
		wg.Go(func() {
			defer func() { <-tokens }()
			if err := remove(ctx, r); err != nil {
				c.addFailure(r, err)
			}
		})
	}
	wg.Wait()
}

// removers lists the kinds of this package.
func (c *cleanup) removers() []Remover {
	return []Remover{
		{Kind: KindMount, Remove: c.removeMount},
		{Kind: KindDirectory, Remove: c.removeDirectory},
		{Kind: KindHostDir, Remove: c.removeHostDirectory},
		{Kind: KindParent, Remove: c.removeParent},
	}
}

// removeMount unmounts a volume, which must be in the directory of a transaction.
func (c *cleanup) removeMount(_ context.Context, r driver.Resource) error {
	volumes := filepath.Dir(r.ID)
	if filepath.Clean(r.ID) != r.ID || filepath.Base(volumes) != "volumes" {
		return errors.New("it is not the volume of a transaction")
	}
	if err := c.checkTransactionDir(filepath.Dir(volumes)); err != nil {
		return err
	}
	return unmount(r.ID)
}

// checkTransactionDir rejects a directory that does not belong to a transaction.
func (c *cleanup) checkTransactionDir(dir string) error {
	parent := filepath.Dir(dir)
	if filepath.Clean(dir) != dir || !recorded.IsName(filepath.Base(dir)) ||
		parent != c.d.Config.WorkDir && parent != c.d.Config.MemoryDir {
		return fmt.Errorf("it is not the directory of a transaction below %s", c.d.Config.WorkDir)
	}
	return nil
}

func (c *cleanup) removeDirectory(_ context.Context, r driver.Resource) error {
	if err := c.checkTransactionDir(r.ID); err != nil {
		return err
	}
	c.d.Scratch.forget(r.ID)
	return RemoveTree(r.ID)
}

func (c *cleanup) removeHostDirectory(_ context.Context, r driver.Resource) error {
	if !filepath.IsAbs(r.ID) {
		return errors.New("the path is not absolute")
	}
	if err := c.d.checkRemovable(r.ID, nil); err != nil {
		return err
	}
	return RemoveTree(r.ID)
}

// removeParent removes a directory that was created for a host volume, if it is empty.
func (c *cleanup) removeParent(_ context.Context, r driver.Resource) error {
	entries, err := os.ReadDir(r.ID)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) > 0 {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Remove(r.ID)
}

// RemoveTree removes a directory with its content, including read-only directories. It follows no
// links: it removes the link.
func RemoveTree(dir string) error {
	removeEmpty(dir)
	err := os.RemoveAll(dir)
	if err == nil {
		return nil
	}
	info, statErr := os.Lstat(dir)
	if statErr != nil || !info.IsDir() {
		return err
	}
	root, openErr := openForRemoval(dir, info)
	if openErr != nil {
		return errors.Join(err, openErr)
	}
	_ = fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		// WalkDir calls this before it reads the directory.
		if err == nil && entry.IsDir() {
			_ = root.Chmod(path, 0o700)
		}
		return nil
	})
	_ = root.Close()
	return os.RemoveAll(dir)
}

// openForRemoval opens a directory that may lack permissions.
func openForRemoval(dir string, info fs.FileInfo) (*os.Root, error) {
	if info.Mode().Perm()&0o700 != 0o700 {
		if err := os.Chmod(dir, 0o700); err != nil {
			return nil, err
		}
	}
	return os.OpenRoot(dir)
}
