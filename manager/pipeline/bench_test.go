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
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline"
	"github.com/delegate-io/dlite/manager/pipeline/streams"
	"github.com/delegate-io/dlite/manager/redis"
)

// instant is a manager whose delegate ends each part at once, so that only the service takes time.
type instant struct {
	mu      sync.Mutex
	stages  map[string]*api.Stage
	steps   map[string]api.StepState
	events  []api.Event
	changed chan struct{}
	first   func() // called at the first step
}

func newInstant() *instant {
	return &instant{stages: map[string]*api.Stage{}, steps: map[string]api.StepState{}, changed: make(chan struct{})}
}

func (m *instant) Accounts() []string { return []string{account} }

// publish adds an event. The caller holds mu.
func (m *instant) publish(stage, step string) {
	m.events = append(m.events, api.Event{ID: uint64(len(m.events) + 1), Stage: stage, Step: step, Status: api.Success})
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *instant) SubmitStage(_ context.Context, _ string, req api.StageRequest) (api.Stage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if st := m.stages[req.ID]; st != nil {
		return *st, nil
	}
	st := &api.Stage{ID: req.ID, Status: api.Running, Init: api.StepState{Status: api.Success}}
	m.stages[req.ID] = st
	m.publish(req.ID, "init")
	return *st, nil
}

func (m *instant) AppendSteps(_ context.Context, _, id string, steps []api.StepRequest) (api.Stage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.first != nil {
		m.first()
	}
	for i := range steps {
		m.steps[id+"/"+steps[i].ID] = api.StepState{ID: steps[i].ID, Status: api.Success}
		m.publish(id, steps[i].ID)
	}
	return *m.stages[id], nil
}

func (m *instant) FinishStage(_ context.Context, _, id string) (api.Stage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stages[id].Status = api.Success
	m.publish(id, "")
	return *m.stages[id], nil
}

func (m *instant) RenewStage(_ context.Context, account, id string) (api.Stage, error) {
	return m.Stage(account, id)
}

func (m *instant) AbortStage(_ context.Context, account, id string) (api.Stage, error) {
	return m.Stage(account, id)
}

func (m *instant) AbortStep(_ context.Context, account, id, _ string) (api.Stage, error) {
	return m.Stage(account, id)
}

func (m *instant) Stage(_, id string) (api.Stage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if st := m.stages[id]; st != nil {
		return *st, nil
	}
	return api.Stage{}, manager.ErrNotFound
}

func (m *instant) Step(_, id, step string) (api.StepState, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if st, ok := m.steps[id+"/"+step]; ok {
		return st, nil
	}
	return api.StepState{}, manager.ErrNotFound
}

func (m *instant) EndedStages(context.Context, string, uint64, int) (api.NumberedStages, error) {
	return api.NumberedStages{}, nil
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
	return oneStage("one", text.String())
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
			require.Equal(b, "SUCCEEDED", r.Status)
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
func BenchmarkRunsAtOnce(b *testing.B) { atOnce(b, 1000, 3) }

// BenchmarkStepsAtOnce starts 50 runs of 60 steps, and waits for all: the same steps with less work for runs.
func BenchmarkStepsAtOnce(b *testing.B) { atOnce(b, 50, 60) }

func atOnce(b *testing.B, runs, steps int) {
	b.Helper()
	yaml := sequential(steps)
	for _, services := range []int{1, 3} {
		for _, kind := range []string{"SQLite", "PostgreSQL", "PostgreSQL and Redis"} {
			if services > 1 && kind == "SQLite" { // a file of SQLite is for one process
				continue
			}
			b.Run(fmt.Sprintf("services=%d/%s", services, kind), func(b *testing.B) {
				cfg := pipeline.Config{Database: filepath.Join(b.TempDir(), "pipelines.db")}
				if kind != "SQLite" {
					cfg.Database = testbed.Postgres(b).URL
				}
				if strings.HasSuffix(kind, "Redis") {
					cfg.Streams = streams.Redis(redis.Config{URL: testbed.Redis(b, "--appendfsync", "everysec").URL()})
				}
				m := newInstant()
				var all []*pipeline.Service
				for range services {
					all = append(all, newService(b, m, func(c *pipeline.Config) { c.Database, c.Streams = cfg.Database, cfg.Streams }))
				}
				for b.Loop() {
					runAll(b, all, yaml, runs)
				}
				b.ReportMetric(float64(runs*steps*b.N)/b.Elapsed().Seconds(), "steps/s")
			})
		}
	}
}

func runAll(b *testing.B, services []*pipeline.Service, yaml string, runs int) {
	b.Helper()
	var wg sync.WaitGroup
	for i := range runs {
		s := services[i%len(services)]
		wg.Go(func() {
			r, err := s.Start(b.Context(), account, api.RunRequest{YAML: yaml})
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
