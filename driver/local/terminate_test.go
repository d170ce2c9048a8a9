//go:build unix

package local_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
)

// detach starts a background step and returns when it has printed "up".
func (r *rig) detach(step stage.Step) *buffer {
	r.t.Helper()
	step.Detach = true
	out := newBuffer()
	_, err := r.d.Execute(r.t.Context(), r.env, &driver.Step{Step: step}, out, r.ledger)
	require.NoError(r.t, err, out.String())
	out.waitFor(r.t, "up\n")
	return out
}

const (
	polite  = `trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done`
	defiant = `trap '' TERM; echo up; while :; do sleep 0.05; done`
)

// Rule T7: with a grace, Cleanup asks background steps to end, and waits only until they have ended.
func TestCleanupAsksBackgroundStepsToEnd(t *testing.T) {
	t.Parallel()
	t.Run("on the host", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, withGrace(30*time.Second)).init()
		out := r.detach(sh("service", polite))
		begin := time.Now()
		r.cleanup()
		require.Contains(t, out.String(), "bye\n")
		require.Less(t, time.Since(begin), 20*time.Second, "the whole grace was waited for")
	})
	t.Run("on the host, in another process", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, withGrace(0)).init()
		r.detach(sh("service", `trap 'echo bye > said; exit 0' TERM; echo up; while :; do sleep 0.05; done`))
		other, err := newDriver(withWorkDir(r.work), withMemoryDir(r.memory), withGrace(30*time.Second))
		require.NoError(t, err)
		left, err := other.Cleanup(t.Context(), r.ledger.ofKind("process"))
		require.NoError(t, err)
		require.Empty(t, left)
		require.FileExists(t, workspace(r)+"/said")
		require.NoError(t, other.Close())
	})
	t.Run("in a container", func(t *testing.T) {
		t.Parallel()
		r, engine := dockerRig(t, withGrace(30*time.Second))
		r.init()
		out := r.detach(in(engine.Image, sh("service", polite)))
		begin := time.Now()
		r.cleanup()
		require.Contains(t, out.String(), "bye\n")
		require.Less(t, time.Since(begin), 25*time.Second, "the whole grace was waited for")
	})
	t.Run("not without a grace", func(t *testing.T) {
		t.Parallel()
		r := newRig(t).init()
		out := r.detach(sh("service", polite))
		r.cleanup()
		require.Equal(t, "up\n", out.String())
	})
}

// Rule T7: Cleanup kills a step that ignores SIGTERM when the grace is over. The grace counts once for
// all steps and ends before the time of the cleanup.
func TestCleanupKillsStepsThatIgnoreSIGTERM(t *testing.T) {
	t.Parallel()
	t.Run("all at once", func(t *testing.T) {
		t.Parallel()
		const services, grace = 8, 2 * time.Second
		r := newRig(t, withGrace(grace)).init()
		for i := range services {
			r.detach(sh(fmt.Sprint("service-", i), defiant))
		}
		begin := time.Now()
		r.cleanup()
		require.GreaterOrEqual(t, time.Since(begin), grace)
		require.Less(t, time.Since(begin), services/2*grace)
	})
	t.Run("within the time that there is", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, withGrace(time.Hour)).init()
		r.detach(sh("service", defiant))
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		left, err := r.d.Cleanup(ctx, r.ledger.ofKind("process"))
		require.NoError(t, err)
		require.Empty(t, left)
		require.NoError(t, ctx.Err())
	})
}

// Rule D4: SIGTERM as often as configured.
func TestCleanupRepeatsSIGTERM(t *testing.T) {
	t.Parallel()
	r := newRig(t, withTermination(3, 500*time.Millisecond)).init()
	out := r.detach(sh("service", `n=0; trap 'n=$((n+1)); echo asked; [ $n -lt 2 ] || exit 0' TERM; echo up; while :; do sleep 0.05; done`))
	r.cleanup()
	require.Equal(t, 2, strings.Count(out.String(), "asked\n")) // the shell may report its child
}
