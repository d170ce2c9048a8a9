package daemonset

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/atomicfile"
	"github.com/delegate-io/dlite/internal/process"
)

// records are the files about running daemons, one for each. A file is on the disk before its daemon starts, and is
// removed when nothing of the daemon is left.
type records struct {
	dir  string
	mu   sync.Mutex
	lock *flock.Flock // guarded by mu; nil until opened
}

// Names in the directory of the records.
const (
	recordSuffix = ".json"
	lockName     = "lock"
)

// lockWait is how long open waits for a process that ends.
const lockWait = 10 * time.Second

// record names the resources that a daemon leaves if its delegate dies.
type record struct {
	Set  string `json:"daemon_set"`
	Type string `json:"type"`
	// Dir is the directory of the daemon's socket.
	Dir string `json:"dir,omitempty"`
	// Marker and Process find the processes.
	Marker  string         `json:"marker,omitempty"`
	Process process.Record `json:"process,omitzero"`
	// Resources are the resources of a container.
	Resources []driver.Resource `json:"resources,omitempty"`

	path string
	mu   sync.Mutex // guards Process and Resources
}

// open creates the directory and locks it.
func (r *records) open(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lock != nil {
		return nil
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return fmt.Errorf("the directory of the daemons: %w", err)
	}
	waiting, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	lock := flock.New(filepath.Join(r.dir, lockName))
	if ok, err := lock.TryLockContext(waiting, 100*time.Millisecond); !ok {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("the directory of the daemons, %s: another process uses it: %w", r.dir, err)
	}
	r.lock = lock
	return nil
}

func (r *records) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lock != nil {
		_ = r.lock.Unlock()
		r.lock = nil
	}
}

// begin stores a new record.
func (r *records) begin(rec *record) error {
	r.mu.Lock()
	opened := r.lock != nil
	r.mu.Unlock()
	if !opened {
		return errors.New("the records of daemons are not open: call Recover before Run")
	}
	rec.path = filepath.Join(r.dir, rand.Text()+recordSuffix)
	return rec.save()
}

func (r *record) save() error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := atomicfile.WriteFile(r.path, b); err != nil {
		return fmt.Errorf("record of a daemon: %w", err)
	}
	return nil
}

// Record implements [driver.Ledger].
func (r *record) Record(_ context.Context, res driver.Resource) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, old := range r.Resources {
		if old.Kind == res.Kind && old.ID == res.ID {
			r.Resources[i] = res
			return r.save()
		}
	}
	r.Resources = append(r.Resources, res)
	return r.save()
}

func (r *record) setProcess(p process.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Process = p
	return r.save()
}

// all returns the records in the directory. A file that cannot be read stays, and is an error.
func (r *records) all() ([]*record, error) {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return nil, err
	}
	var list []*record
	var failed []error
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), recordSuffix) {
			continue
		}
		rec := &record{path: filepath.Join(r.dir, e.Name())}
		b, err := os.ReadFile(rec.path)
		if err == nil {
			err = json.Unmarshal(b, rec)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("record %s: %w", e.Name(), err))
			continue
		}
		list = append(list, rec)
	}
	return list, errors.Join(failed...)
}

// recoverTimeout limits the removal of the resources of an earlier process, in addition to the grace.
const recoverTimeout = time.Minute

func (r *Runner) recoverRecords(ctx context.Context) error {
	if err := r.records.open(ctx); err != nil {
		return err
	}
	left, err := r.records.all()
	if err != nil {
		r.cfg.Log.Error().Err(err).Msg("daemons that an earlier process of this delegate left may still run")
	}
	if len(left) == 0 {
		return nil
	}
	var groups process.Recorded
	for _, rec := range left {
		groups.Add(rec.Marker, rec.Process, isOwnCgroup)
	}
	groups.Terminate(ctx, process.Patience{Grace: r.cfg.Grace}, r.cfg.Grace)
	for _, rec := range left {
		if err := r.erase(ctx, rec); err != nil {
			r.cfg.Log.Error().Err(err).Str("daemon_set", rec.Set).Msg("cannot remove a daemon that an earlier process of this delegate left: the next start tries again")
			continue
		}
		r.cfg.Log.Info().Str("daemon_set", rec.Set).Str("type", rec.Type).Msg("removed a daemon that an earlier process of this delegate left")
	}
	return nil
}

// erase kills the processes and removes the resources of a record, then the record.
func (r *Runner) erase(ctx context.Context, rec *record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recoverTimeout)
	defer cancel()
	var failed []error
	if rec.Process.Cgroup != "" {
		cg, err := process.OpenCgroup(rec.Process.Cgroup, isOwnCgroup)
		if err == nil && cg != nil {
			err = errors.Join(cg.Kill(ctx.Done()), cg.Remove())
		}
		failed = append(failed, err)
	}
	failed = append(failed, rec.Process.Kill())
	if rec.Marker != "" {
		failed = append(failed, process.KillMarked(ctx.Done(), map[string]bool{rec.Marker: true}))
	}
	rec.mu.Lock()
	resources := rec.Resources
	rec.mu.Unlock()
	if len(resources) > 0 {
		if r.cfg.Containers == nil {
			failed = append(failed, errors.New("its container cannot be removed: this delegate runs no containers"))
		} else if _, err := r.cfg.Containers.Cleanup(ctx, resources); err != nil {
			failed = append(failed, err)
		}
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	if isOwnDir(rec.Dir) {
		if err := os.RemoveAll(rec.Dir); err != nil {
			return err
		}
	}
	return os.Remove(rec.path)
}

// Names of the directories and control groups of daemons.
const ownPrefix = "dlite-daemon-"

func isOwnCgroup(name string) bool { return strings.HasPrefix(name, ownPrefix) }

func isOwnDir(dir string) bool {
	return filepath.IsAbs(dir) && strings.HasPrefix(filepath.Base(dir), ownPrefix)
}
