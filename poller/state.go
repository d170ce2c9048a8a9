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

// state is what a delegate remembers from one process to the next: the id that
// the manager gave it, and the tasks that it has taken and not answered, a file
// each. It survives the death of the process; nothing is synced, because what a
// machine ran when it went down does not run any more.
type state struct{ dir string }

// taken is a task that has not been answered. Payloads may hold secrets, so the
// manager is asked for it again.
type taken struct {
	Event task.Event `json:"event"`
	// Delegate is the id under which it was taken.
	Delegate string `json:"delegate"`
	// Acquired says that the manager gave the task away, as far as is known.
	Acquired bool `json:"acquired,omitempty"`
	// RunnerResponse is the task's: the form of its answer.
	RunnerResponse bool `json:"runner_response,omitempty"`
}

const (
	idFile      = "delegate"
	takenSuffix = ".task"
)

// id is the delegate's, "" when there is none.
func (s *state) id() (string, error) {
	b, err := os.ReadFile(filepath.Join(s.dir, idFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the delegate's id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// setID keeps an id; "" forgets it.
func (s *state) setID(id string) error {
	if id == "" {
		err := os.Remove(filepath.Join(s.dir, idFile))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("forgetting the delegate's id: %w", err)
		}
		_ = os.Remove(s.dir) // what is still owed keeps it
		return nil
	}
	if err := s.write(idFile, []byte(id+"\n")); err != nil {
		return fmt.Errorf("keeping the delegate's id: %w", err)
	}
	return nil
}

// put remembers a task.
func (s *state) put(t taken) error {
	b, err := json.Marshal(t)
	if err == nil {
		err = s.write(takenName(t.Event.TaskID), b)
	}
	if err != nil {
		return fmt.Errorf("keeping task %s in mind: %w", t.Event.TaskID, err)
	}
	return nil
}

// drop forgets a task.
func (s *state) drop(id string) error {
	err := os.Remove(filepath.Join(s.dir, takenName(id)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forgetting task %s: %w", id, err)
	}
	return nil
}

// all are the tasks that are remembered. A file that cannot be read is an error
// among others.
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

// write replaces a file as a whole.
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

// takenName is a file's name for an id, which may be any text.
func takenName(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16]) + takenSuffix
}

// escapeGlob makes a path match itself alone.
func escapeGlob(path string) string {
	if os.PathSeparator == '\\' {
		return path // a backslash escapes nothing there
	}
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}
