package main

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// stageStore has the open stages.
type stageStore struct {
	mu     sync.Mutex
	stages map[string]*stage
}

func newStageStore() *stageStore { return &stageStore{stages: map[string]*stage{}} }

func (s *stageStore) add(one *stage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stages[one.ID] = one
}

// find returns a copy of a stage.
func (s *stageStore) find(id string) (*stage, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.stages[id]
	if !ok {
		return nil, false
	}
	c := *one
	c.Steps = slices.Clone(one.Steps)
	return &c, true
}

func (s *stageStore) addStep(id, step string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.stages[id]; one != nil {
		one.Steps = append(one.Steps, step)
	}
}

func (s *stageStore) remove(id string) (*stage, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.stages[id]
	delete(s.stages, id)
	return one, ok
}

// olderThan returns the stages that were opened before a time.
func (s *stageStore) olderThan(t time.Time) []*stage {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*stage
	for _, one := range s.stages {
		if one.Created.Before(t) {
			list = append(list, one)
		}
	}
	slices.SortFunc(list, func(a, b *stage) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// logStore has the output of the steps of the open stages.
type logStore struct {
	mu    sync.Mutex
	limit int
	logs  map[string]map[string]*stepLog
}

func newLogStore(limit int) *logStore {
	return &logStore{limit: limit, logs: map[string]map[string]*stepLog{}}
}

// writer returns the log of a step.
func (s *logStore) writer(stageID, stepID string) *stepLog {
	s.mu.Lock()
	defer s.mu.Unlock()
	steps := s.logs[stageID]
	if steps == nil {
		steps = map[string]*stepLog{}
		s.logs[stageID] = steps
	}
	if steps[stepID] == nil {
		steps[stepID] = &stepLog{limit: s.limit}
	}
	return steps[stepID]
}

// lines returns the lines of a step from a number on, and the number of the next line.
func (s *logStore) lines(stageID, stepID string, from int) ([]string, int, bool) {
	s.mu.Lock()
	one := s.logs[stageID][stepID]
	s.mu.Unlock()
	if one == nil {
		return nil, 0, false
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	if from > len(one.done) {
		from = len(one.done)
	}
	return slices.Clone(one.done[from:]), len(one.done), true
}

func (s *logStore) remove(stageID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.logs, stageID)
}

// stepLog collects the lines of a step and hides secrets in them.
type stepLog struct {
	mu      sync.Mutex
	limit   int
	size    int
	part    string
	done    []string
	secrets []string
	cut     bool
}

// hide adds secrets.
func (l *stepLog) hide(secrets []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range secrets {
		if len(s) > 3 {
			l.secrets = append(l.secrets, s)
		}
	}
}

// Write never fails, so that the step goes on.
func (l *stepLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.part += string(b)
	for {
		line, rest, ok := strings.Cut(l.part, "\n")
		if !ok {
			break
		}
		l.part = rest
		l.keep(line)
	}
	return len(b), nil
}

func (l *stepLog) keep(line string) {
	for _, s := range l.secrets {
		line = strings.ReplaceAll(line, s, "****")
	}
	if l.size += len(line); l.size > l.limit {
		if !l.cut {
			l.done = append(l.done, "(the output is too long)")
			l.cut = true
		}
		return
	}
	l.done = append(l.done, line)
}
