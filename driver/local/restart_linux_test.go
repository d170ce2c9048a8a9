package local_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/testbed"
)

// privateRig is a rig with its own engine, which the test may kill.
func privateRig(t *testing.T, opts ...option) (*rig, *testbed.Private) {
	t.Helper()
	engine := testbed.PrivateEngine(t)
	opts = append([]option{withDockerHost(engine.Host), withEngineWait(time.Minute)}, opts...)
	return newRigChecked(t, engine.Engine, opts...), engine
}

// goes executes a step in a goroutine.
func (r *rig) goes(step driver.Step, out *buffer) <-chan error {
	done := make(chan error, 1)
	go func() {
		res, err := r.d.Execute(r.t.Context(), r.env, &step, out, r.ledger)
		if err == nil && res.ExitCode != 0 {
			err = fmt.Errorf("exit code %d", res.ExitCode)
		}
		done <- err
	}()
	return done
}

// Rules D3 and T2: if the engine goes away during a step, the step ends with an error that says so. A
// new engine needs up to ten seconds to end the containers of the old one. The container is gone when
// the step has ended.
func TestStepWhoseEngineGoesAwayEndsWithAClearError(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(*testbed.Private){"killed": (*testbed.Private).Kill, "stopped": (*testbed.Private).Stop} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, engine := privateRig(t)
			r.init()
			out := newBuffer()
			done := r.goes(driver.Step{Step: in(engine.Image, sh("step", "echo started; exec sleep 600"))}, out)
			out.waitFor(t, "started")
			away(engine)
			engine.Start()
			err := receive(t, done)
			require.ErrorContains(t, err, "the Docker engine went away while the step ran")
			require.Empty(t, containers(t, engine.Engine, r.env.ID))

			// The transaction continues.
			_, got := r.run(in(engine.Image, sh("next", "echo next")))
			require.Equal(t, "next\n", got)
		})
	}
}

// Rule T3: a cleanup waits for the engine.
func TestCleanupWaitsForTheEngine(t *testing.T) {
	t.Parallel()
	r, engine := privateRig(t)
	r.init()
	step := in(engine.Image, sh("service", "exec sleep 600"))
	step.Detach = true
	r.run(step)
	engine.Kill()
	done := make(chan error, 1)
	go func() {
		left, err := r.d.Cleanup(t.Context(), r.ledger.resources())
		assert.Empty(t, left)
		done <- err
	}()
	engine.Start()
	require.NoError(t, receive(t, done))
	require.Empty(t, engine.Leftovers(t, r.env.ID))

	// The wait is limited, and Cleanup returns the remaining resources.
	engine.Kill()
	short, err := newDriver(withWorkDir(r.work), withMemoryDir(r.memory), withDockerHost(engine.Host), withEngineWait(300*time.Millisecond))
	require.NoError(t, err)
	start := time.Now()
	left, err := short.Cleanup(t.Context(), append(r.ledger.ofKind("container"), r.ledger.ofKind("network")...))
	require.Len(t, left, 2)
	require.ErrorContains(t, err, "no Docker engine answers")
	require.GreaterOrEqual(t, time.Since(start), 300*time.Millisecond)
	require.Less(t, time.Since(start), 10*time.Second)
	require.NoError(t, short.Close())
	engine.Start()
}

// Rule T2: wherever the engine is killed (create, start, remove), nothing remains when it is back.
func TestEngineKilledAtRandomLeavesNothing(t *testing.T) {
	t.Parallel()
	r, engine := privateRig(t)
	const rounds = 5
	ended := map[string]int{}
	for round := range rounds {
		one := &rig{t: t, d: r.d, ledger: &ledger{}, env: &driver.Environment{ID: fmt.Sprint(r.env.ID, "-", round)}, work: r.work}
		one.init()
		recorded := make(chan struct{})
		var once sync.Once
		one.ledger.before = func(res driver.Resource) {
			if res.Kind == "network" {
				once.Do(func() { close(recorded) })
			}
		}
		var steps []<-chan error
		for i := range 3 {
			step := in(engine.Image, sh(fmt.Sprint("step-", i), "trap exit TERM; echo ran; sleep 0.2 & wait"))
			step.Detach = i == 2
			steps = append(steps, one.goes(driver.Step{Step: step}, newBuffer()))
		}
		receive(t, recorded)
		pause(t, rand.N(1500*time.Millisecond))
		engine.Kill()
		engine.Start()
		for _, done := range steps {
			if err := receive(t, done); err != nil {
				ended["failed"]++
				t.Logf("round %d: %v", round, err)
			} else {
				ended["went on"]++
			}
		}
		cleaned := make(chan error, 1)
		go func() {
			left, err := one.d.Cleanup(context.WithoutCancel(t.Context()), one.ledger.resources())
			assert.Empty(t, left)
			cleaned <- err
		}()
		if round%2 == 0 {
			pause(t, rand.N(300*time.Millisecond))
			engine.Kill()
			engine.Start()
		}
		require.NoError(t, receive(t, cleaned), "round %d", round)
		require.Empty(t, engine.Leftovers(t, one.env.ID), "round %d", round)
	}
	t.Logf("%d rounds, steps: %v", rounds, ended)
}

// Rule D3: a pull continues after the engine was killed.
func TestPullContinuesAfterTheEngineWasKilled(t *testing.T) {
	t.Parallel()
	r, engine := privateRig(t)
	r.init()
	registry := engine.NewRegistry(t, "", "")
	asked, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	registry.BeforeBlobs(func() {
		once.Do(func() {
			close(asked)
			<-release
		})
	})
	step := sh("step", "echo ran")
	step.Image = registry.Image
	out := newBuffer()
	done := r.goes(driver.Step{Step: step}, out)
	receive(t, asked)
	engine.Kill()
	close(release)
	engine.Start()
	require.NoError(t, receive(t, done), out.String())
	require.Contains(t, out.String(), "attempt 2 of 4")
	require.Contains(t, out.String(), "\nran\n")
}

// pause lets time pass without a signal: the test has to hit the engine at any instant.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}
