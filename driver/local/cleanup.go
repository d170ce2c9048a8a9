package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/recorded"
)

// parallelRemovals bounds how many containers are removed at once.
const parallelRemovals = 8

// Cleanup removes what the records name. With a grace ([WithGrace],
// [WithTermination]) all that still runs is asked to end first, all of it at once,
// and may take that long, but no more than half of the time that ctx leaves: then
// it is killed. Removed are processes first, then containers,
// their volumes, networks and folders (SPEC T2, T3). It needs nothing else, so that it works in
// another process too, as long as the work folder is the same. It contacts the
// engine only for containers, volumes and networks, waits for one that is away
// ([WithEngineWait]), removes only what carries a name of this driver, and
// follows no link.
func (d *Driver) Cleanup(ctx context.Context, rs []driver.Resource) ([]driver.Resource, error) {
	// From here on nobody makes any of it any more.
	if err := d.gate.Condemn(ctx, rs); err != nil {
		return rs, fmt.Errorf("cleanup: %w", err)
	}
	c := &cleanup{d: d, outage: outage{limit: d.cfg.engineWait}}
	byKind := map[string][]driver.Resource{}
	for _, r := range rs {
		byKind[r.Kind] = append(byKind[r.Kind], r)
	}
	order := []struct {
		kind   string
		remove func(context.Context, driver.Resource) error
	}{
		{kindProcess, c.process},
		{kindGroup, c.group},
		{kindContainer, c.container},
		{kindVolume, c.volume},
		{kindNetwork, c.network},
		{kindMount, c.mount},
		{kindDirectory, c.directory},
		{kindHostDir, c.hostDir},
		{kindParent, c.parent},
	}
	c.terminate(ctx, byKind)
	c.processes(ctx, byKind[kindProcess])
	for _, o := range order {
		list := byKind[o.kind]
		delete(byKind, o.kind)
		// Deeper folders first.
		slices.SortStableFunc(list, func(a, b driver.Resource) int { return len(b.ID) - len(a.ID) })
		limit := 1
		if o.kind == kindContainer || o.kind == kindVolume {
			limit = parallelRemovals
		}
		c.each(ctx, list, limit, o.remove)
	}
	for kind, list := range byKind {
		for _, r := range list {
			c.leave(r, fmt.Errorf("kind %q is not known to this driver", kind))
		}
	}
	return c.left, errors.Join(c.errs...)
}

type cleanup struct {
	d          *Driver
	outage     outage
	processErr error // why marked processes are left

	mu   sync.Mutex
	left []driver.Resource // guarded by mu
	errs []error           // guarded by mu
}

func (c *cleanup) leave(r driver.Resource, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = append(c.left, r)
	c.errs = append(c.errs, fmt.Errorf("remove %s %s: %w", r.Kind, r.ID, err))
}

// each removes list, limit at a time.
func (c *cleanup) each(ctx context.Context, list []driver.Resource, limit int, remove func(context.Context, driver.Resource) error) {
	var wg sync.WaitGroup
	tokens := make(chan struct{}, limit)
	for _, r := range list {
		if err := ctx.Err(); err != nil {
			c.leave(r, err)
			continue
		}
		tokens <- struct{}{}
		wg.Go(func() {
			defer func() { <-tokens }()
			if err := remove(ctx, r); err != nil {
				c.leave(r, err)
			}
		})
	}
	wg.Wait()
}

// processes kills all that carry one of the markers, in one go.
func (c *cleanup) processes(ctx context.Context, list []driver.Resource) {
	if len(list) == 0 {
		return
	}
	markers := map[string]bool{}
	for _, r := range list {
		markers[r.ID] = true
		// First those who cannot get away while the others are looked for. What
		// goes wrong is found again by process.
		if data, err := readProcess(r); err == nil {
			if cg, err := recordedCgroup(data.Cgroup); err == nil {
				_ = cg.kill(ctx.Done())
			}
		}
	}
	delete(markers, "")
	c.processErr = killMarked(ctx.Done(), markers)
}

func (c *cleanup) process(ctx context.Context, r driver.Resource) error {
	if c.processErr != nil {
		return c.processErr
	}
	data, err := readProcess(r)
	if err != nil {
		return err
	}
	if data.PID > 1 {
		if err := killRecorded(data); err != nil {
			return err
		}
	}
	cg, err := recordedCgroup(data.Cgroup)
	if err != nil {
		return err
	}
	if err := cg.kill(ctx.Done()); err != nil {
		return err
	}
	if err := c.d.unfollow(ctx, kindProcess+" "+r.ID); err != nil {
		return err
	}
	return cg.remove()
}

// group removes the control group of a transaction with all that is in it.
func (c *cleanup) group(ctx context.Context, r driver.Resource) error {
	cg, err := recordedCgroup(r.ID)
	if err != nil {
		return err
	}
	if err := cg.kill(ctx.Done()); err != nil {
		return err
	}
	return cg.remove()
}

func readProcess(r driver.Resource) (processData, error) {
	var data processData
	if len(r.Data) == 0 {
		return data, nil
	}
	if err := json.Unmarshal(r.Data, &data); err != nil {
		return data, fmt.Errorf("read record: %w", err)
	}
	return data, nil
}

func (c *cleanup) container(ctx context.Context, r driver.Resource) error {
	if !isOurs(r.ID) {
		return errors.New("the name is not this driver's")
	}
	if err := c.d.unfollow(ctx, removalOf(r.ID)); err != nil {
		return err
	}
	if c.d.wasRemoved(r.ID) {
		return nil // with its step, which nobody follows
	}
	cli, err := c.d.engine.client()
	if err != nil {
		return err
	}
	err = c.outage.insist(ctx, cli, func(ctx context.Context) error { return removeContainer(ctx, cli, r.ID) })
	if err != nil {
		return explainEngine(cli, err)
	}
	return c.d.unfollow(ctx, kindContainer+" "+r.ID)
}

func (c *cleanup) network(ctx context.Context, r driver.Resource) error {
	if !isOurs(r.ID) {
		return errors.New("the name is not this driver's")
	}
	cli, err := c.d.engine.client()
	if err != nil {
		return err
	}
	err = c.outage.insist(ctx, cli, func(ctx context.Context) error { return removeNetwork(ctx, cli, r.ID) })
	if err != nil {
		return explainEngine(cli, err)
	}
	c.d.forgetNetwork(r.ID[:recorded.NameLength])
	return nil
}

// mount unmounts a volume, which has to be in a transaction's folder.
func (c *cleanup) mount(_ context.Context, r driver.Resource) error {
	volumes := filepath.Dir(r.ID)
	if filepath.Clean(r.ID) != r.ID || filepath.Base(volumes) != "volumes" {
		return errors.New("it is not a transaction's volume")
	}
	if err := c.isTransactions(filepath.Dir(volumes)); err != nil {
		return err
	}
	return unmount(r.ID)
}

// isTransactions refuses whatever is not a transaction's folder.
func (c *cleanup) isTransactions(dir string) error {
	parent := filepath.Dir(dir)
	if filepath.Clean(dir) != dir || !recorded.IsName(filepath.Base(dir)) ||
		parent != c.d.cfg.workDir && parent != c.d.cfg.memoryDir {
		return fmt.Errorf("it is not a transaction's folder below %s", c.d.cfg.workDir)
	}
	return nil
}

func (c *cleanup) directory(_ context.Context, r driver.Resource) error {
	if err := c.isTransactions(r.ID); err != nil {
		return err
	}
	c.d.scratches.forget(r.ID)
	return removeTree(r.ID)
}

func (c *cleanup) hostDir(_ context.Context, r driver.Resource) error {
	if !filepath.IsAbs(r.ID) {
		return errors.New("the path is not absolute")
	}
	if err := c.d.mayRemove(r.ID, nil); err != nil {
		return err
	}
	return removeTree(r.ID)
}

// parent removes a folder that was made for a host volume, unless something
// else has come into it.
func (c *cleanup) parent(_ context.Context, r driver.Resource) error {
	entries, err := os.ReadDir(r.ID)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) > 0 {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Remove(r.ID)
}

// removeTree removes a folder with all that is in it, read-only folders too. It
// follows no link: a path that has become one is unlinked.
func removeTree(dir string) error {
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
		// WalkDir comes here before it reads the folder.
		if err == nil && entry.IsDir() {
			_ = root.Chmod(path, 0o700)
		}
		return nil
	})
	_ = root.Close()
	return os.RemoveAll(dir)
}

// openForRemoval opens a folder that may have lost its permissions.
func openForRemoval(dir string, info fs.FileInfo) (*os.Root, error) {
	if info.Mode().Perm()&0o700 != 0o700 {
		if err := os.Chmod(dir, 0o700); err != nil {
			return nil, err
		}
	}
	return os.OpenRoot(dir)
}
