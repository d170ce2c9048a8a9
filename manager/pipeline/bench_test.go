package pipeline_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/pipeline"
)

// instant is a manager whose delegate ends each part at once, so that only the service takes time.
type instant struct {
	mu      sync.Mutex
	stages  map[string]*manager.Stage
	steps   map[string]manager.StepState
	events  []manager.Event
	changed chan struct{}
	first   func() // called at the first step
}

func newInstant() *instant {
	return &instant{stages: map[string]*manager.Stage{}, steps: map[string]manager.StepState{}, changed: make(chan struct{})}
}

func (m *instant) Accounts() []string { return []string{account} }

// publish adds an event. The caller holds mu.
func (m *instant) publish(stage, step string) {
	m.events = append(m.events, manager.Event{ID: uint64(len(m.events) + 1), Stage: stage, Step: step, Status: manager.Success})
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *instant) SubmitStage(_ context.Context, _ string, req manager.StageRequest) (manager.Stage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if st := m.stages[req.ID]; st != nil {
		return *st, nil
	}
	st := &manager.Stage{ID: req.ID, Status: manager.Running, Init: manager.StepState{Status: manager.Success}}
	m.stages[req.ID] = st
	m.publish(req.ID, "init")
	return *st, nil
}

func (m *instant) AppendSteps(_ context.Context, _, id string, steps []manager.StepRequest) (manager.Stage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.first != nil {
		m.first()
	}
	for i := range steps {
		m.steps[id+"/"+steps[i].ID] = manager.StepState{ID: steps[i].ID, Status: manager.Success}
		m.publish(id, steps[i].ID)
	}
	return *m.stages[id], nil
}

func (m *instant) FinishStage(_ context.Context, _, id string) (manager.Stage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stages[id].Status = manager.Success
	m.publish(id, "")
	return *m.stages[id], nil
}

func (m *instant) RenewStage(_ context.Context, account, id string) (manager.Stage, error) {
	return m.Stage(account, id)
}

func (m *instant) AbortStage(_ context.Context, account, id string) (manager.Stage, error) {
	return m.Stage(account, id)
}

func (m *instant) AbortStep(_ context.Context, account, id, _ string) (manager.Stage, error) {
	return m.Stage(account, id)
}

func (m *instant) Stage(_, id string) (manager.Stage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if st := m.stages[id]; st != nil {
		return *st, nil
	}
	return manager.Stage{}, manager.ErrNotFound
}

func (m *instant) Step(_, id, step string) (manager.StepState, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if st, ok := m.steps[id+"/"+step]; ok {
		return st, nil
	}
	return manager.StepState{}, manager.ErrNotFound
}

func (m *instant) Events(_ string, after uint64) manager.Feed {
	m.mu.Lock()
	defer m.mu.Unlock()
	return manager.Feed{Events: slices.Clone(m.events[min(after, uint64(len(m.events))):]), Last: uint64(len(m.events)), Changed: m.changed}
}

// onEach runs a benchmark on both databases.
func onEach(b *testing.B, bench func(b *testing.B, database func() string)) {
	b.Helper()
	b.Run("SQLite", func(b *testing.B) {
		bench(b, func() string { return filepath.Join(b.TempDir(), "pipelines.db") })
	})
	b.Run("PostgreSQL", func(b *testing.B) {
		bench(b, func() string { return testbed.Postgres(b).URL })
	})
}

func sequential(steps int) string {
	var text strings.Builder
	for i := range steps {
		fmt.Fprintf(&text, "              - step: {identifier: s%d, name: s%d, type: Run, spec: {command: \"true\"}}\n", i, i)
	}
	return oneStage(text.String())
}

// BenchmarkStep measures the time that the service adds to a step, whose delegate takes none: from
// the end of a step to that of the next one. In a stage that is submitted whole it is zero.
func BenchmarkStep(b *testing.B) {
	const steps = 100
	yaml := sequential(steps)
	onEach(b, func(b *testing.B, database func() string) {
		s := newService(b, newInstant(), func(c *pipeline.Config) { c.Database = database() })
		var took []time.Duration
		for b.Loop() {
			r := run(b, s, yaml)
			require.Equal(b, pipeline.Status("SUCCEEDED"), r.Status)
			var ends []time.Time
			for i := range r.Nodes {
				if r.Nodes[i].Kind == "step" {
					ends = append(ends, r.Nodes[i].EndedAt)
				}
			}
			for i := 1; i < len(ends); i++ {
				took = append(took, ends[i].Sub(ends[i-1]))
			}
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms/step")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms/step")
	})
}

// BenchmarkStartToFirstStep measures from the call of Start until the manager gets the first step.
func BenchmarkStartToFirstStep(b *testing.B) {
	onEach(b, func(b *testing.B, database func() string) {
		first := make(chan struct{}, 1)
		m := newInstant()
		m.first = func() { first <- struct{}{} }
		s := newService(b, m, func(c *pipeline.Config) { c.Database = database() })
		for b.Loop() {
			start(b, s, oneStep("true"))
			<-first
		}
	})
}

// BenchmarkRunsAtOnce starts 1,000 runs of three steps, and waits for all.
func BenchmarkRunsAtOnce(b *testing.B) {
	const runs, steps = 1000, 3
	yaml := sequential(steps)
	for services := range 2 {
		services = 1 + 2*services
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			onEach(b, func(b *testing.B, database func() string) {
				if services > 1 && strings.Contains(b.Name(), "SQLite") {
					b.Skip("a file of SQLite is for one process")
				}
				m, url := newInstant(), database()
				var all []*pipeline.Service
				for range services {
					all = append(all, newService(b, m, func(c *pipeline.Config) { c.Database = url }))
				}
				for b.Loop() {
					runAll(b, all, yaml, runs)
				}
				b.ReportMetric(float64(runs*steps*b.N)/b.Elapsed().Seconds(), "steps/s")
			})
		})
	}
}

func runAll(b *testing.B, services []*pipeline.Service, yaml string, runs int) {
	b.Helper()
	var wg sync.WaitGroup
	for i := range runs {
		s := services[i%len(services)]
		wg.Go(func() {
			r, err := s.Start(b.Context(), account, pipeline.Request{YAML: yaml})
			if err == nil {
				r, err = s.Wait(b.Context(), account, r.ID)
			}
			if err != nil || r.Status != "SUCCEEDED" {
				b.Errorf("%s: %v", r.Status, err)
			}
		})
	}
	wg.Wait()
}
