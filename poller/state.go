package poller

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/delegate-io/dlite/internal/atomicfile"
	"github.com/delegate-io/dlite/task"
)

// state stores data for the next process of the delegate: its id, and its
// unanswered tasks, one file each. It survives the death of the process. It need
// not survive a crash of the machine, which ends the tasks too, so nothing is
// synced.
type state struct{ dir string }

// taken is an unanswered task. The payload may hold secrets, so it is not stored:
// the next process asks the manager for it.
type taken struct {
	Event task.Event `json:"event"`
	// Delegate is the delegate id under which the task was taken.
	Delegate string `json:"delegate"`
	// Acquired reports whether the manager gave the task to the delegate, as far as
	// is known.
	Acquired bool `json:"acquired,omitempty"`
	// RunnerResponse is the task's: the format of its answer.
	RunnerResponse bool `json:"runner_response,omitempty"`
}

const (
	idFile      = "delegate"
	takenSuffix = ".task"
)

// id returns the stored delegate id, "" if there is none.
func (s *state) id() (string, error) {
	b, err := os.ReadFile(filepath.Join(s.dir, idFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the stored delegate id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// setID stores an id. "" removes it.
func (s *state) setID(id string) error {
	if id == "" {
		err := os.Remove(filepath.Join(s.dir, idFile))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the stored delegate id: %w", err)
		}
		_ = os.Remove(s.dir) // fails if it still holds tasks
		return nil
	}
	if err := s.write(idFile, []byte(id+"\n")); err != nil {
		return fmt.Errorf("storing the delegate id: %w", err)
	}
	return nil
}

// put stores a task.
func (s *state) put(t taken) error {
	b, err := json.Marshal(t)
	if err == nil {
		err = s.write(takenName(t.Event.TaskID), b)
	}
	if err != nil {
		return fmt.Errorf("storing task %s: %w", t.Event.TaskID, err)
	}
	return nil
}

// drop removes a task.
func (s *state) drop(id string) error {
	err := os.Remove(filepath.Join(s.dir, takenName(id)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the stored task %s: %w", id, err)
	}
	return nil
}

// all returns the stored tasks, and an error that names each file that cannot be
// read.
func (s *state) all() ([]taken, error) {
	paths, err := filepath.Glob(filepath.Join(escapeGlob(s.dir), "*"+takenSuffix))
	if err != nil {
		return nil, err
	}
	var out []taken
	var problems []error
	for _, path := range paths {
		var t taken
		b, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(b, &t)
		}
		if err == nil && t.Event.TaskID == "" {
			err = errors.New("it names no task")
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("reading %s: %w", path, err))
			continue
		}
		out = append(out, t)
	}
	return out, errors.Join(problems...)
}

// write replaces a file atomically.
func (s *state) write(name string, b []byte) error {
	path := filepath.Join(s.dir, name)
	err := atomicfile.ReplaceFile(path, b)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(s.dir, 0o700); err == nil {
			err = atomicfile.ReplaceFile(path, b)
		}
	}
	return err
}

// takenName returns the file name for a task id, which may be any text.
func takenName(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16]) + takenSuffix
}

// escapeGlob returns a pattern that matches only path.
func escapeGlob(path string) string {
	if os.PathSeparator == '\\' {
		return path // a backslash escapes nothing there
	}
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}
