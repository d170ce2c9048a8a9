package transaction_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// T1-T4, T8: any order of init, execute and cleanup of a few transactions, some
// of whose inits fail, some at the same time, does what a simple model does; and
// at the end nothing is left.
func TestAnyOrderOfTasksFollowsTheModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld()
		var mu sync.Mutex
		fails := map[string]bool{}
		w.onInit = func(_ context.Context, env *driver.Environment) error {
			mu.Lock()
			defer mu.Unlock()
			if fails[env.ID] {
				return errors.New("told to fail")
			}
			return nil
		}
		w.onExecute = func(context.Context, *driver.Environment, *driver.Step, io.Writer) (*driver.Result, error) {
			return &driver.Result{}, nil
		}
		s := newStages(t, w)
		open, closed := map[string]bool{}, map[string]bool{}
		id := rapid.SampledFrom([]string{"a", "b", "c"})
		rt.Repeat(map[string]func(*rapid.T){
			"init": func(rt *rapid.T) {
				id, fail := id.Draw(rt, "id"), rapid.Bool().Draw(rt, "fail")
				mu.Lock()
				fails[id] = fail
				mu.Unlock()
				r := s.init(id)
				switch {
				case open[id]:
					require.Equal(rt, stage.Success, statusOf(r))
				case closed[id]:
					require.Equal(rt, task.Failed, r.Code)
				case fail:
					require.Equal(rt, stage.Failure, statusOf(r))
					closed[id] = true
				default:
					require.Equal(rt, stage.Success, statusOf(r))
					open[id] = true
				}
			},
			"execute": func(rt *rapid.T) {
				id := id.Draw(rt, "id")
				r := s.execute(id, "step")
				require.Equal(rt, open[id], r.Code == task.OK)
			},
			"cleanup": func(rt *rapid.T) {
				id := id.Draw(rt, "id")
				require.Equal(rt, stage.Success, statusOf(s.cleanup(id)))
				closed[id], open[id] = true, false
			},
			"everything at once": func(rt *rapid.T) {
				id := id.Draw(rt, "id")
				var wg sync.WaitGroup
				wg.Go(func() { s.init(id) })
				wg.Go(func() { s.execute(id, "one") })
				wg.Go(func() { s.execute(id, "two") })
				wg.Go(func() { s.cleanup(id) })
				wg.Wait()
				require.Equal(rt, stage.Success, statusOf(s.cleanup(id)))
				closed[id], open[id] = true, false
			},
			"": func(rt *rapid.T) {
				n := 0
				for _, is := range open {
					if is {
						n++
					}
				}
				require.Equal(rt, n, s.Open())
				require.Equal(rt, n, s.slots.Used())
				require.Len(rt, s.records(), n)
			},
		})
		require.NoError(rt, s.Close(t.Context()))
		require.Empty(rt, w.left())
		require.Zero(rt, s.slots.Used())
	})
}
