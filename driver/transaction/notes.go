package transaction

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/sealed"
	"github.com/delegate-io/dlite/task/stage"
)

// notes hold the data that a later process needs to resume a transaction. The data may contain
// secrets, so it must not be written to a disk (rules T5, S5). The notes are a file in memory
// with one encrypted note a line. Like the resources, they end with the machine. A nil *notes
// stores nothing. Safe for concurrent use.
type notes struct {
	path   string
	cipher sealed.Cipher
	lost   func(error) // called when a note is lost

	mu   sync.Mutex
	file *os.File // nil after a note is lost: the transaction cannot be resumed
}

// note is one line: the changes since the previous one.
type note struct {
	Envs    map[string]string `json:"envs,omitempty"`
	Exports map[string]string `json:"exports,omitempty"`
	Secrets []string          `json:"secrets,omitempty"`
	Log     *stage.LogConfig  `json:"log,omitempty"` // of the init
	// Task is the task of the step that the rest describes.
	Task string `json:"task,omitempty"`
	// Writer identifies the writer of the step's log stream.
	Writer     string                 `json:"writer,omitempty"`
	Answer     *stage.ExecuteResponse `json:"answer,omitempty"`
	Background *background            `json:"background,omitempty"`
	// LogEnded is set if the step's log has been closed, after its answer was noted.
	LogEnded bool `json:"log_ended,omitempty"`
}

// background is a detached step that a later process must follow.
type background struct {
	Step *driver.Step `json:"step"`
	Log  logTarget    `json:"log"`
}

// earlier is the known state of a step of an earlier process.
type earlier struct {
	begun      []driver.Resource // empty if no resource was recorded
	writer     string
	answer     *stage.ExecuteResponse // nil if there was none or it is lost
	background *background
	logEnded   bool
}

const (
	notesSuffix = ".notes"
	// maxNote limits a stored answer, in bytes. A longer answer is lost with the process.
	maxNote = 4 << 20
)

// notesDir returns the directory of this ledger's notes. Only this user can access it.
func (s *Stages) notesDir() string { return filepath.Join(s.memory, "dlite-"+s.ledger.id) }

// notesPath returns the path of the notes that belong to a record.
func (s *Stages) notesPath(journal string) string {
	return filepath.Join(s.notesDir(), strings.TrimSuffix(filepath.Base(journal), journalSuffix)+notesSuffix)
}

// note begins the notes of a transaction whose init has ended.
func (t *transaction) note() {
	m := t.stages
	if !m.canResume() {
		return
	}
	path := m.notesPath(t.journal.path)
	var f *os.File
	key, err := m.ledger.noteCipher()
	if err == nil {
		err = sealed.MakePrivate(m.notesDir())
	}
	if err == nil {
		f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	}
	if err != nil {
		t.logNotResumable(err)
		return
	}
	t.notes = &notes{path: path, cipher: key, file: f, lost: t.logNotResumable}
	t.notes.add(note{Envs: t.env.Envs, Secrets: t.newSecrets(), Log: t.logConfig})
}

func (t *transaction) logNotResumable(err error) {
	t.log.Warn().Err(err).Msg("the transaction cannot be resumed after a restart of the delegate")
}

// reopenNotes continues the notes of an earlier process.
func (t *transaction) reopenNotes(path string, key sealed.Cipher) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.WriteString("\n"); err != nil { // ends a torn line
		return errors.Join(err, f.Close())
	}
	t.notes = &notes{path: path, cipher: key, file: f, lost: t.logNotResumable}
	return nil
}

// add writes a note. If a note is lost the notes end, because the others are
// useless without it.
func (n *notes) add(e note) {
	if n == nil {
		return
	}
	b, err := json.Marshal(e)
	if err == nil && len(b) > maxNote {
		e.Answer = nil
		b, err = json.Marshal(e)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.file == nil {
		return
	}
	if err == nil {
		_, err = n.file.Write(n.cipher.Seal(b, filepath.Base(n.path)))
	}
	if err != nil {
		n.end()
		n.lost(err)
	}
}

// remove removes the notes.
func (n *notes) remove() {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.end()
}

// end removes the file. The caller holds mu.
func (n *notes) end() {
	if n.file == nil {
		return
	}
	_ = n.file.Close()
	_ = os.Remove(n.path)
	n.file = nil
}

// readNotes combines all notes of the transaction in one, and those of each step by its task. It
// skips a torn line, and a line that was not encrypted with the key for this file. It returns an
// error for a file that cannot be read.
func readNotes(path string, key sealed.Cipher) (all note, steps map[string]earlier, err error) {
	f, err := os.Open(path)
	if err != nil {
		return all, nil, err
	}
	defer f.Close() //nolint:errcheck // only read from
	all.Envs, all.Exports, steps = map[string]string{}, map[string]string{}, map[string]earlier{}
	for lines := bufio.NewReader(f); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return all, steps, nil
		}
		if err != nil {
			return all, nil, err
		}
		var n note
		plain, err := key.Unseal(bytes.TrimSuffix(line, []byte("\n")), filepath.Base(path))
		if err != nil || json.Unmarshal(plain, &n) != nil {
			continue // torn when the earlier process died
		}
		maps.Copy(all.Envs, n.Envs)
		maps.Copy(all.Exports, n.Exports)
		all.Secrets = append(all.Secrets, n.Secrets...)
		all.Log = cmp.Or(n.Log, all.Log)
		if n.Task == "" {
			continue
		}
		s := steps[n.Task]
		if n.Writer != "" {
			s.writer = n.Writer
		}
		if n.Answer != nil {
			s.answer = n.Answer
		}
		if n.Background != nil {
			s.background = n.Background
		}
		s.logEnded = s.logEnded || n.LogEnded
		steps[n.Task] = s
	}
}

// newSecrets returns all secrets if there are more than at the last note, else
// nil.
func (t *transaction) newSecrets() []string {
	n := t.secrets.Len()
	t.mu.Lock()
	defer t.mu.Unlock()
	if n == t.noted {
		return nil
	}
	t.noted = n
	return t.secrets.Values()
}

// dropNotes removes the notes of this ledger that belong to no open transaction,
// and then their directory if it is empty.
func (s *Stages) dropNotes() {
	if !s.resume {
		return
	}
	used := map[string]bool{}
	s.mu.Lock()
	for id := range s.open {
		used[s.notesPath(s.ledger.path(id))] = true
	}
	s.mu.Unlock()
	paths, _ := filepath.Glob(filepath.Join(s.notesDir(), "*"+notesSuffix)) // the pattern is valid
	for _, path := range paths {
		if used[path] {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.log.Warn().Err(err).Msg("cannot remove the notes of an earlier process")
		}
	}
	_ = os.Remove(s.notesDir()) // fails if it is not empty or missing
}

// canResume reports whether a later process can resume transactions.
func (s *Stages) canResume() bool {
	if !s.resume {
		return false
	}
	_, ok := s.driver.(driver.Reattacher)
	return ok && sealed.InMemory(s.memory)
}

// resumeProblem returns why nothing is resumed although WithResume was given.
func (s *Stages) resumeProblem() error {
	if _, ok := s.driver.(driver.Reattacher); !ok {
		return fmt.Errorf("the %s driver cannot continue with steps of another process", s.driver.Infra())
	}
	return fmt.Errorf("%s is not a directory in memory", s.memory)
}
