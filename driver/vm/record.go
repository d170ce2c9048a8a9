package vm

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/delegate-io/dlite/internal/atomicfile"
)

// phase is the state of a machine in its life cycle.
type phase string

const (
	creating   phase = "creating"
	warm       phase = "warm"
	claimed    phase = "claimed"
	destroying phase = "destroying"
)

// recordVersion is the version of the records that this program writes. It refuses newer ones.
const recordVersion = 1

// record is a machine's file in the state directory. With it, another process can use or destroy
// the machine. It contains the machine's key and is readable by its owner only.
type record struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	Phase   phase  `json:"phase"`
	// Born is the time of the request for the machine.
	Born time.Time `json:"born"`
	Machine
	// CA, Cert and Key are PEM, for agent and client.
	CA   []byte `json:"ca,omitempty"`
	Cert []byte `json:"cert,omitempty"`
	Key  []byte `json:"key,omitempty"`
	// Uses counts the transactions that have used the machine.
	Uses  int    `json:"uses,omitempty"`
	Claim *claim `json:"claim,omitempty"`
	// Reserved is set for warm machines only. A program that does not know the field treats the
	// machine as free.
	Reserved *reserved `json:"reserved,omitempty"`
}

// reserved is the reservation of a warm machine.
type reserved struct {
	Transaction string    `json:"transaction"`
	Until       time.Time `json:"until"`
}

// claim is the claim of a transaction on a machine.
type claim struct {
	// Token is never reused. The cleanup of an earlier transaction therefore cannot change a
	// machine that was reused.
	Token       string            `json:"token"`
	Transaction string            `json:"transaction"`
	Labels      map[string]string `json:"labels,omitempty"`
	Since       time.Time         `json:"since"`
}

// records is the storage of a pool's records.
type records interface {
	// owner returns the owner of all machines, see [Spec].
	owner() string
	// read returns all records.
	read() ([]*record, error)
	// write stores r. With durable it waits for the disk.
	write(r *record, durable bool) error
	// remove removes the record of a destroyed machine.
	remove(id string) error
	close() error
}

const (
	recordSuffix = ".json"
	lockName     = "lock"
	ownerName    = "owner"
)

// folder is a pool's state directory. A lock restricts it to one process.
type folder struct {
	dir  string
	lock *flock.Flock
	id   string // the owner
}

// lockWait limits the wait for the lock. If a process is killed while it starts a child process,
// the child holds the lock until it has started.
const lockWait = 2 * time.Second

// openFolder creates and locks the directory.
func openFolder(ctx context.Context, dir string) (records, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the state directory: %w", err)
	}
	lock := flock.New(filepath.Join(dir, lockName), flock.SetPermissions(0o600))
	waiting, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	switch _, err := lock.TryLockContext(waiting, lockWait/100); {
	case ctx.Err() != nil:
		return nil, errors.Join(context.Cause(ctx), lock.Close())
	case waiting.Err() != nil:
		return nil, fmt.Errorf("another delegate uses the state directory %s: give each pool its own", dir)
	case err != nil:
		return nil, fmt.Errorf("lock the state directory %s: %w", dir, err)
	}
	f := &folder{dir: dir, lock: lock}
	if err := f.identify(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return f, nil
}

func (f *folder) close() error { return f.lock.Close() }

func (f *folder) owner() string { return f.id }

// identify reads the owner of the directory's machines, or creates one.
func (f *folder) identify() error {
	path := filepath.Join(f.dir, ownerName)
	b, err := os.ReadFile(path)
	if err == nil && isID(string(b)) {
		f.id = string(b)
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the pool's owner: %w", err)
	}
	f.id = newID()
	if err := atomicfile.WriteFile(path, []byte(f.id)); err != nil {
		return fmt.Errorf("write the pool's owner: %w", err)
	}
	return nil
}

// path returns the path of a machine's record. The id must be valid.
func (f *folder) path(id string) string { return filepath.Join(f.dir, id+recordSuffix) }

// durable makes a write wait for the disk.
const durable = true

// write stores r. Without durable it survives the process, but maybe not the host.
func (f *folder) write(r *record, durable bool) error {
	r.Version = recordVersion
	b, err := json.Marshal(r)
	if err == nil {
		write := atomicfile.ReplaceFile
		if durable {
			write = atomicfile.WriteFile
		}
		err = write(f.path(r.ID), b)
	}
	if err != nil {
		return fmt.Errorf("record machine %s as %s: %w", r.ID, r.Phase, err)
	}
	return nil
}

// remove removes the record of a destroyed machine.
func (f *folder) remove(id string) error {
	if err := os.Remove(f.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the record of machine %s: %w", id, err)
	}
	return nil
}

// read returns all records. A damaged record becomes the record of a machine to destroy. A record
// of a newer version is an error: this program cannot know whether the machine is in use.
func (f *folder) read() ([]*record, error) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, fmt.Errorf("read the state directory: %w", err)
	}
	var all []*record
	for _, entry := range entries {
		id, ok := strings.CutSuffix(entry.Name(), recordSuffix)
		if !ok {
			if strings.HasSuffix(entry.Name(), atomicfile.Unfinished) { // an interrupted write
				err = errors.Join(err, os.Remove(filepath.Join(f.dir, entry.Name())))
			}
			continue
		}
		if !isID(id) {
			continue
		}
		b, readErr := os.ReadFile(f.path(id))
		if readErr != nil {
			err = errors.Join(err, fmt.Errorf("read the record of machine %s: %w", id, readErr))
			continue
		}
		r := &record{}
		if json.Unmarshal(b, r) != nil || r.ID != id {
			r = &record{Version: recordVersion, ID: id, Phase: destroying}
		}
		if r.Version > recordVersion {
			err = errors.Join(err, fmt.Errorf("the record of machine %s has version %d and this program knows %d: start a delegate "+
				"at least as new as the one that wrote it", id, r.Version, recordVersion))
			continue
		}
		all = append(all, r)
	}
	return all, err
}

// newID returns a new id for a machine, an owner or a claim.
func newID() string { return idPrefix + strings.ToLower(rand.Text()) }

const idPrefix = "dlite-"

var idForm = regexp.MustCompile(`^` + idPrefix + `[a-z0-9-]{1,34}$`)

// isID reports whether id has the form of newID. Other ids in records and lists are ignored.
func isID(id string) bool { return idForm.MatchString(id) }
