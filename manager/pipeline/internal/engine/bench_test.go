package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
	"github.com/stretchr/testify/require"
)

// wide returns a pipeline of stages with steps that each use an expression.
func wide(stages, steps int) *definition.Pipeline {
	p := &definition.Pipeline{Identifier: "p", Variables: []*definition.Variable{{Name: "v", Type: "String", Value: &definition.Node{Value: "1"}}}}
	for i := range stages {
		s := &definition.Stage{Identifier: fmt.Sprintf("s%d", i), Type: "CI"}
		for j := range steps {
			s.Steps = append(s.Steps, definition.StepItem{Step: &definition.Step{
				Identifier: fmt.Sprintf("t%d", j), Type: "Run", Spec: &definition.Node{Kind: definition.Map, Fields: []definition.Field{
					{Key: "command", Value: &definition.Node{Value: "make <+pipeline.variables.v> <+stage.identifier>"}},
				}},
			}})
		}
		p.Stages = append(p.Stages, definition.StageItem{Stage: s})
	}
	return p
}

func BenchmarkNew(b *testing.B) {
	p := wide(100, 100)
	b.ReportAllocs()
	for b.Loop() {
		_, err := New(p)
		require.NoError(b, err)
	}
}

func BenchmarkStart(b *testing.B) {
	for _, size := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("%d steps", size), func(b *testing.B) {
			m, err := New(wide(size/10, 10))
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				_, _, err := m.Start(Run{ID: "r", StartedAt: start})
				require.NoError(b, err)
			}
		})
	}
}

// BenchmarkApply measures a step-ended event with the start of the next step. Its cost must not
// depend on the number of steps.
func BenchmarkApply(b *testing.B) {
	for _, size := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("%d steps", size), func(b *testing.B) {
			m, err := New(wide(1, size))
			require.NoError(b, err)
			b.ReportAllocs()
			var s *State
			n := size
			for b.Loop() {
				if n == size {
					b.StopTimer()
					s, _, err = m.Start(Run{ID: "r", StartedAt: start})
					require.NoError(b, err)
					_, _, err = m.Apply(s, Event{Kind: StageOpened, Node: "pipeline.stages.s0", Attempt: 1, Time: start})
					require.NoError(b, err)
					n = 0
					b.StartTimer()
				}
				changed, _, err := m.Apply(s, Event{
					Kind: StepEnded, Node: fmt.Sprintf("pipeline.stages.s0.spec.execution.steps.t%d", n), Attempt: 1, Time: start.Add(time.Second), Result: &Result{},
				})
				require.NoError(b, err)
				require.NotEmpty(b, changed)
				n++
			}
		})
	}
}

func TestAnEventTouchesOnlyTheNodesThatItConcerns(t *testing.T) {
	t.Parallel()
	m, err := New(wide(1, 2000))
	require.NoError(t, err)
	s, _, err := m.Start(Run{ID: "r", StartedAt: start})
	require.NoError(t, err)
	require.Len(t, s.Nodes, 2, "a node exists when its turn comes")
	_, _, err = m.Apply(s, Event{Kind: StageOpened, Node: "pipeline.stages.s0", Attempt: 1, Time: start})
	require.NoError(t, err)
	for i := range 1000 {
		changed, commands, err := m.Apply(s, Event{
			Kind: StepEnded, Node: fmt.Sprintf("pipeline.stages.s0.spec.execution.steps.t%d", i), Attempt: 1, Time: start, Result: &Result{},
		})
		require.NoError(t, err)
		require.Len(t, changed, 3, "the step, the next step and the stage")
		require.Len(t, commands, 1)
	}
	// A failure skips the rest in one event.
	changed, _, err := m.Apply(s, Event{
		Kind: StepEnded, Node: "pipeline.stages.s0.spec.execution.steps.t1000", Attempt: 1, Time: start, Result: &Result{Failure: FailureExitCode},
	})
	require.NoError(t, err)
	require.Len(t, changed, 1+999+1)
}
