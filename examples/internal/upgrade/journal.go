package upgrade

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/delegate-io/dlite/examples/internal/service"
	"github.com/delegate-io/dlite/internal/atomicfile"
)

// The phases of an upgrade, see the package documentation.
const (
	Staged    = "staged"
	Trial     = "trial"
	Swap      = "swap"
	Probation = "probation"
	Rollback  = "rollback"
	Done      = "done"
	Failed    = "failed"
)

// Journal is the state of the latest upgrade of a program. It is a file beside the program.
type Journal struct {
	Phase   string `json:"phase"`
	Version string `json:"version"` // the new one
	From    string `json:"from"`
	SHA256  string `json:"sha256"` // of the new program
	// BoundMS is how long the new program may take to register, in milliseconds.
	BoundMS int64 `json:"bound_ms"`
	// Trials and Starts count the starts of the new program, in the trial and in the probation. They are written
	// before each start.
	Trials int       `json:"trials,omitempty"`
	Starts int       `json:"starts,omitempty"`
	Since  time.Time `json:"since"` // the begin of the phase
	Reason string    `json:"reason,omitempty"`
	// Failures counts failed upgrades to Version in a row. The periodic check does not repeat them without end.
	Failures int `json:"failures,omitempty"`
	// Report is the part of a fleet's update that this upgrade is, until the manager has its outcome.
	Report string `json:"report,omitempty"`
}

// final reports whether nothing is left to do.
func (j *Journal) final() bool { return j.Phase == Done || j.Phase == Failed }

// Bound returns how long the new program may take to register.
func (j *Journal) bound() time.Duration { return time.Duration(j.BoundMS) * time.Millisecond }

// place is the place of a program and the names beside it.
type place struct {
	program string
	// fixed is the program of a service, in a directory that this process must not write to. It starts the program in
	// the place. Without a service it is empty.
	fixed string
}

func (p place) next() string     { return p.program + ".new" }
func (p place) previous() string { return p.program + ".previous" }
func (p place) journal() string  { return p.program + ".upgrade" }
func (p place) lock() string     { return p.program + ".upgrade.lock" }
func (p place) download() string { return p.program + ".download" }
func (p place) dir() string      { return filepath.Dir(p.program) }

// old returns the file of the program that an upgrade replaces.
func (p place) old() string { return cmp.Or(p.fixed, p.program) }

// ownPlace returns the place of the running program. Links are followed, so that an upgrade replaces the file and not
// a link to it. If this process may not write there and has a directory for its state, as a service of the system has,
// the place is in that directory.
func ownPlace() (place, error) {
	path, err := os.Executable()
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return place{}, fmt.Errorf("find the file of the running program: %w", err)
	}
	p := place{program: path}
	if state := service.StateDir(); state != "" && !p.writable() {
		p = inState(state, path)
	}
	return p, nil
}

// inState returns the place of a program that may not replace its own file.
func inState(state, file string) place {
	return place{program: filepath.Join(state, "program", filepath.Base(file)), fixed: file}
}

// maxJournal bounds the journal, in bytes.
const maxJournal = 64 << 10

// read returns the journal, nil if there is none.
func (p place) read() (*Journal, error) {
	f, err := os.Open(p.journal())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxJournal))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	var j Journal
	if err := json.Unmarshal(b, &j); err != nil {
		return nil, fmt.Errorf("the journal of upgrades %s is damaged: remove it (%w)", p.journal(), err)
	}
	return &j, nil
}

// write replaces the journal. It returns when the journal is on the disk.
func (p place) write(j *Journal) error {
	b, err := json.Marshal(j)
	if err != nil {
		return err
	}
	err = p.replace(p.journal(), func(tmp string) error {
		f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = f.Write(b)
		return errors.Join(err, f.Sync(), f.Close())
	})
	if err != nil {
		return fmt.Errorf("write the journal of upgrades: %w", err)
	}
	return nil
}

// enter writes the journal with a new phase.
func (p place) enter(j *Journal, phase, reason string) error {
	j.Phase, j.Reason, j.Since = phase, reason, time.Now().UTC()
	return p.write(j)
}

// replace gives a file that create makes the name path. The name has the old file or the new one at every instant.
func (p place) replace(path string, create func(tmp string) error) error {
	tmp := path + ".tmp"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := create(tmp)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(err, ignoreMissing(os.Remove(tmp)))
	}
	return atomicfile.SyncDir(filepath.Dir(path))
}

// duplicate gives the file from the second name to as well. If the file system has no links, it copies the file.
func (p place) duplicate(from, to string) error {
	return p.replace(to, func(tmp string) error {
		if os.Link(from, tmp) == nil {
			return nil
		}
		in, err := os.Open(from)
		if err != nil {
			return err
		}
		defer in.Close() //nolint:errcheck // nothing was written
		info, err := in.Stat()
		if err != nil {
			return err
		}
		out, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, info.Mode().Perm())
		if err != nil {
			return err
		}
		_, err = io.Copy(out, in)
		return errors.Join(err, out.Sync(), out.Close())
	})
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
