package transaction

import (
	"bufio"
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
	"github.com/delegate-io/dlite/task/stage"
)

// notes are what a later process of the delegate needs to go on with a
// transaction and no disk may hold, because secrets may be in it (SPEC T5, S5): a
// file in memory, a note a line. They end with the machine, as does what they
// are about. A nil *notes keeps nothing. Safe for concurrent use.
type notes struct {
	path string
	lost func(error) // says that a note was lost

	mu   sync.Mutex
	file *os.File // nil once a note was lost: the transaction cannot be taken up
}

// note is one line: what has been learned since the last one.
type note struct {
	Envs    map[string]string `json:"envs,omitempty"`
	Exports map[string]string `json:"exports,omitempty"`
	Secrets []string          `json:"secrets,omitempty"`
	// Task is what the rest is about.
	Task string `json:"task,omitempty"`
	// Writer is what the step's log stream calls itself.
	Writer     string                 `json:"writer,omitempty"`
	Answer     *stage.ExecuteResponse `json:"answer,omitempty"`
	Background *background            `json:"background,omitempty"`
}

// background is a detached step, to be followed further.
type background struct {
	Step *driver.Step `json:"step"`
	Log  LogTarget    `json:"log"`
}

// earlier is what is known of a step that an earlier process was given.
type earlier struct {
	begun      []driver.Resource // empty when nothing of it has begun
	writer     string
	answer     *stage.ExecuteResponse // nil when there was none, or it is lost
	background *background
}

const (
	notesSuffix = ".notes"
	// maxNote bounds an answer that is kept, in bytes. What is longer is lost
	// with the process.
	maxNote = 4 << 20
)

// notesDir is where the notes of this ledger's transactions are, in a folder that
// nobody else gets into.
func (m *Stages) notesDir() string { return filepath.Join(m.memory, "dlite-"+m.ledger.id) }

// notesPath is where a journal's notes are.
func (m *Stages) notesPath(journal string) string {
	return filepath.Join(m.notesDir(), strings.TrimSuffix(filepath.Base(journal), journalSuffix)+notesSuffix)
}

// note begins the notes of a transaction whose init has ended.
func (t *transaction) note() {
	m := t.stages
	if !m.resumes() {
		return
	}
	path := m.notesPath(t.journal.path)
	var f *os.File
	err := makePrivate(m.notesDir())
	if err == nil {
		f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	}
	if err != nil {
		t.willNotSurvive(err)
		return
	}
	t.notes = &notes{path: path, file: f, lost: t.willNotSurvive}
	t.notes.add(note{Envs: t.env.Envs, Secrets: t.unnoted()})
}

func (t *transaction) willNotSurvive(err error) {
	t.log.Warn().Err(err).Msg("the transaction will not survive a restart of the delegate")
}

// reopenNotes continues the notes of an earlier process.
func (t *transaction) reopenNotes(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.WriteString("\n"); err != nil { // ends a line that is torn
		return errors.Join(err, f.Close())
	}
	t.notes = &notes{path: path, file: f, lost: t.willNotSurvive}
	return nil
}

// add makes a note. A note that is lost makes the rest worthless.
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
		_, err = n.file.Write(append(b, '\n'))
	}
	if err != nil {
		n.end()
		n.lost(err)
	}
}

// remove ends the notes.
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

// readNotes puts together what notes say. A line that is torn is passed over;
// a file that cannot be read is an error.
func readNotes(path string) (envs, exports map[string]string, values []string, steps map[string]earlier, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	defer f.Close() //nolint:errcheck // only read from
	envs, exports, steps = map[string]string{}, map[string]string{}, map[string]earlier{}
	for lines := bufio.NewReader(f); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return envs, exports, values, steps, nil
		}
		if err != nil {
			return nil, nil, nil, nil, err
		}
		var n note
		if json.Unmarshal(line, &n) != nil {
			continue // torn by the end of an earlier process
		}
		maps.Copy(envs, n.Envs)
		maps.Copy(exports, n.Exports)
		values = append(values, n.Secrets...)
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
		steps[n.Task] = s
	}
}

// unnoted are the secrets, when there are more than at the last note.
func (t *transaction) unnoted() []string {
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
// and their folder when it is empty then.
func (m *Stages) dropNotes() {
	if !m.resume {
		return
	}
	used := map[string]bool{}
	m.mu.Lock()
	for id := range m.open {
		used[m.notesPath(m.ledger.path(id))] = true
	}
	m.mu.Unlock()
	paths, _ := filepath.Glob(filepath.Join(m.notesDir(), "*"+notesSuffix)) // the pattern is fine
	for _, path := range paths {
		if used[path] {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			m.log.Warn().Err(err).Msg("notes of an earlier process are left")
		}
	}
	_ = os.Remove(m.notesDir()) // not empty, or not there
}

// resumes says whether transactions are kept for a later process.
func (m *Stages) resumes() bool {
	if !m.resume {
		return false
	}
	_, ok := m.driver.(driver.Reattacher)
	return ok && inMemory(m.memory)
}

// whyNot tells why nothing is taken up, though it was asked for.
func (m *Stages) whyNot() error {
	if _, ok := m.driver.(driver.Reattacher); !ok {
		return fmt.Errorf("the %s driver cannot go on with what another process began", m.driver.Infra())
	}
	return fmt.Errorf("%s is not a folder in memory", m.memory)
}
