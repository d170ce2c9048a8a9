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

// phase is where a machine is in its life, as its record says.
type phase string

const (
	creating   phase = "creating"
	warm       phase = "warm"
	claimed    phase = "claimed"
	destroying phase = "destroying"
)

// recordVersion is that of the records that this program writes. One of a newer
// version is left alone.
const recordVersion = 1

// record is a machine's file in the state folder: what another process needs to
// use the machine, or to destroy it. It holds the machine's key, so nobody else
// may read it.
type record struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	Phase   phase  `json:"phase"`
	// Born is when the machine was asked for.
	Born time.Time `json:"born"`
	Machine
	// CA, Cert and Key are PEM, for both ends.
	CA   []byte `json:"ca,omitempty"`
	Cert []byte `json:"cert,omitempty"`
	Key  []byte `json:"key,omitempty"`
	// Uses counts the transactions that have had the machine.
	Uses  int    `json:"uses,omitempty"`
	Claim *claim `json:"claim,omitempty"`
	// Reserved is of a warm machine alone. Who does not know it takes the machine
	// for one that is free.
	Reserved *reserved `json:"reserved,omitempty"`
}

// reserved says whose init a warm machine waits for.
type reserved struct {
	Transaction string    `json:"transaction"`
	Until       time.Time `json:"until"`
}

// claim is a transaction's hold of a machine.
type claim struct {
	// Token is never used again: a machine that has been given back and is
	// claimed by the next transaction is not touched by the cleanup of the one
	// before.
	Token       string            `json:"token"`
	Transaction string            `json:"transaction"`
	Labels      map[string]string `json:"labels,omitempty"`
	Since       time.Time         `json:"since"`
}

// records are what a pool keeps for another process.
type records interface {
	// owner is that of all machines on record, see [Spec].
	owner() string
	// read reads all records.
	read() ([]*record, error)
	// write makes r the machine's record, and waits for the disk when that is wanted.
	write(r *record, durable bool) error
	// remove ends the record of a machine that is destroyed.
	remove(id string) error
	close() error
}

const (
	recordSuffix = ".json"
	lockName     = "lock"
	ownerName    = "owner"
)

// folder is a pool's state folder. One process at a time may have it.
type folder struct {
	dir  string
	lock *flock.Flock
	id   string // the owner
}

// lockWait is how long the lock is waited for: a process that is killed while it
// starts another one leaves the lock to that until it has started.
const lockWait = 2 * time.Second

// openFolder makes the folder and locks it.
func openFolder(ctx context.Context, dir string) (records, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state folder: %w", err)
	}
	lock := flock.New(filepath.Join(dir, lockName), flock.SetPermissions(0o600))
	waiting, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	switch _, err := lock.TryLockContext(waiting, lockWait/100); {
	case ctx.Err() != nil:
		return nil, errors.Join(context.Cause(ctx), lock.Close())
	case waiting.Err() != nil:
		return nil, fmt.Errorf("the state folder %s is in use by another delegate: give each pool its own", dir)
	case err != nil:
		return nil, fmt.Errorf("lock the state folder %s: %w", dir, err)
	}
	f := &folder{dir: dir, lock: lock}
	if err := f.identify(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return f, nil
}

func (f *folder) close() error { return f.lock.Close() }

func (f *folder) owner() string { return f.id }

// identify reads the owner that all machines of this folder have, or makes one.
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
		return fmt.Errorf("give the pool an owner: %w", err)
	}
	return nil
}

// path is where a machine's record is. The id is a valid one.
func (f *folder) path(id string) string { return filepath.Join(f.dir, id+recordSuffix) }

// durable makes a write wait for the disk.
const durable = true

// write makes r the machine's record. Without durable it survives the end of the
// process all the same.
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

// remove ends the record of a machine that is destroyed.
func (f *folder) remove(id string) error {
	if err := os.Remove(f.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the record of machine %s: %w", id, err)
	}
	return nil
}

// read reads all records. Of one that is damaged only the id is left, and it is
// for a machine to destroy. What a newer program has written is an error: it
// might be in use in a way that is not known here.
func (f *folder) read() ([]*record, error) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, fmt.Errorf("read the state folder: %w", err)
	}
	var all []*record
	for _, entry := range entries {
		id, ok := strings.CutSuffix(entry.Name(), recordSuffix)
		if !ok {
			if strings.HasSuffix(entry.Name(), atomicfile.Unfinished) { // a write that a kill has cut short
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

// newID makes an id for a machine, an owner or a claim.
func newID() string { return idPrefix + strings.ToLower(rand.Text()) }

const idPrefix = "dlite-"

var idForm = regexp.MustCompile(`^` + idPrefix + `[a-z0-9-]{1,34}$`)

// isID says whether id is one that newID may have made. Whatever else comes from
// a record is nobody's machine.
func isID(id string) bool { return idForm.MatchString(id) }
