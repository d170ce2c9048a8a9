package poller

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/delegate-io/dlite/internal/atomicfile"
	"github.com/delegate-io/dlite/task"
)

// state stores data for the next process of the delegate: its id, and its
// unanswered tasks, one file each. A line in such a file replaces the lines above
// it: a line costs less than a new file. The state survives the death of the process. It need
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
	path := filepath.Join(s.dir, idFile)
	if err := s.inDir(func() error { return atomicfile.ReplaceFile(path, []byte(id+"\n")) }); err != nil {
		return fmt.Errorf("storing the delegate id: %w", err)
	}
	return nil
}

// put stores a task.
func (s *state) put(t taken) error {
	b, err := json.Marshal(t)
	if err == nil {
		err = s.inDir(func() error { return appendLine(filepath.Join(s.dir, takenName(t.Event.TaskID)), b) })
	}
	if err != nil {
		return fmt.Errorf("storing task %s: %w", t.Event.TaskID, err)
	}
	return nil
}

// appendLine adds a line to a file. The newline comes first: it ends a line that an
// earlier process could not write to its end.
func appendLine(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append([]byte("\n"), b...))
	return errors.Join(err, f.Close())
}

// readTaken returns the task of a file: its last complete line.
func readTaken(path string) (taken, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return taken{}, err
	}
	for _, line := range slices.Backward(bytes.Split(b, []byte("\n"))) {
		var t taken
		if json.Unmarshal(line, &t) == nil && t.Event.TaskID != "" {
			return t, nil
		}
	}
	return taken{}, errors.New("it names no task")
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
		t, err := readTaken(path)
		if err != nil {
			problems = append(problems, fmt.Errorf("reading %s: %w", path, err))
			continue
		}
		out = append(out, t)
	}
	return out, errors.Join(problems...)
}

// inDir calls write. If the directory is missing, it creates it and calls write again.
func (s *state) inDir(write func() error) error {
	err := write()
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(s.dir, 0o700); err == nil {
			err = write()
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
