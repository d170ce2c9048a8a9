package drone

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/delegate-io/dlite/internal/atomicfile"
)

// progress is the part of a stage that outlives the process. The rest comes from the server
// again. It holds no secrets.
type progress struct {
	Stage    int64          `json:"stage"`
	Accepted bool           `json:"accepted,omitempty"`
	Created  bool           `json:"created,omitempty"` // the server has the steps
	InitDone bool           `json:"init_done,omitempty"`
	Cleanup  bool           `json:"cleanup,omitempty"`
	Killed   bool           `json:"killed,omitempty"`
	Problem  string         `json:"problem,omitempty"`
	FailCode int64          `json:"fail_code,omitempty"`
	Started  int64          `json:"started,omitempty"`
	Steps    []stepProgress `json:"steps,omitempty"`
}

type stepProgress struct {
	Number   int        `json:"number"`
	State    stepStatus `json:"state"`
	Reported string     `json:"reported,omitempty"`
	Record   record     `json:"record"`
}

// store keeps the progress of each open stage in a file of a directory. The names of the files
// begin with the prefix of the server: a stage of another server may have the same id.
type store struct {
	dir, prefix string
	mu          sync.Mutex
}

const (
	storeSuffix = ".stage"
	logSuffix   = ".log"
)

func (s *store) path(id int64) string {
	return filepath.Join(s.dir, s.prefix+strconv.FormatInt(id, 10)+storeSuffix)
}

// logPath returns the path of the log of a step, "" without a directory.
func (s *store) logPath(step int64) string {
	if s.dir == "" {
		return ""
	}
	return filepath.Join(s.dir, s.prefix+strconv.FormatInt(step, 10)+logSuffix)
}

// dropLogs removes the logs of steps that belong to no stage of the list.
func (s *store) dropLogs(list []progress) {
	used := map[string]bool{}
	for _, p := range list {
		for _, step := range p.Steps {
			used[s.logPath(step.Record.number("id"))] = true
		}
	}
	entries, _ := os.ReadDir(s.dir) // all has read it
	for _, e := range entries {
		path := filepath.Join(s.dir, e.Name())
		if strings.HasPrefix(e.Name(), s.prefix) && strings.HasSuffix(e.Name(), logSuffix) && !used[path] {
			_ = os.Remove(path)
		}
	}
}

// put stores the progress of a stage.
func (s *store) put(p progress) error {
	if s.dir == "" {
		return nil
	}
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	err = atomicfile.ReplaceFile(s.path(p.Stage), b)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(s.dir, 0o700); err == nil {
			err = atomicfile.ReplaceFile(s.path(p.Stage), b)
		}
	}
	return err
}

// remove forgets a stage, and the logs that an earlier process has kept for its steps.
func (s *store) remove(id int64, steps []int64) {
	if s.dir != "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		_ = os.Remove(s.path(id)) // a file that stays names a stage that the server has ended
		for _, step := range steps {
			_ = os.Remove(s.logPath(step))
		}
	}
}

// all returns the stored stages. It skips files that cannot be decoded.
func (s *store) all() (list []progress, err error) {
	if s.dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), s.prefix) || !strings.HasSuffix(e.Name(), storeSuffix) {
			continue
		}
		b, readErr := os.ReadFile(filepath.Join(s.dir, e.Name()))
		var p progress
		if readErr == nil && json.Unmarshal(b, &p) == nil && p.Stage > 0 {
			list = append(list, p)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", s.dir, err)
	}
	return list, nil
}

// save stores the progress of the stage.
func (r *run) save() {
	if r.c.cfg.Dir == "" {
		return
	}
	r.c.store.mu.Lock() // the files of a stage must follow each other in the order of its states
	defer r.c.store.mu.Unlock()
	r.mu.Lock()
	if r.phase == phaseOver {
		r.mu.Unlock()
		return
	}
	p := r.progress
	p.InitDone, p.Cleanup = r.phase > phaseInit, r.phase == phaseCleanup
	p.Killed, p.Problem, p.FailCode = r.killed, r.problem, r.failCode
	p.Steps = nil
	for _, s := range r.steps {
		p.Steps = append(p.Steps, stepProgress{Number: s.plan.Number, State: s.status, Reported: s.reported, Record: s.record})
	}
	r.mu.Unlock()
	if err := r.c.store.put(p); err != nil {
		r.c.cfg.Log.Warn().Err(err).Int64("stage", r.id).Msg("cannot store the progress of a stage: a restarted delegate could not end it")
	}
}
