//go:build unix

package poller_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
)

// safeBuffer is a buffer that a logger and a test may use at the same time.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// P1, P5, T2: Run recovers the stages before it registers, tries again while the
// manager is away, maintains the stages meanwhile, and closes them after the drain.
func TestRunLeadsStagesThroughTheLifeOfTheDelegate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stages, log := &fakeStages{}, &safeBuffer{}
		attempts := 0
		m := &script{onRegister: func() error {
			if attempts++; attempts == 1 {
				assert.Contains(t, stages.list(), "recover", "before the first registration")
			}
			if attempts < 4 {
				return client.ErrRetryable
			}
			return nil
		}}
		p := poller.New(m, router.New(nil), poller.WithStages(stages), poller.WithLogger(zerolog.New(log)))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		over := make(chan error, 1)
		go func() { over <- p.Run(ctx, 1) }()
		<-time.After(time.Hour) // of the bubble's clock
		synctest.Wait()
		assert.Equal(t, []string{"recover", "maintain every 1m0s"}, stages.list())
		assert.True(t, p.Health().Polling)
		cancel()
		require.NoError(t, <-over)
		assert.Equal(t, []string{"recover", "maintain every 1m0s", "end of maintain", "close"}, stages.list())
		assert.Equal(t, 4, attempts)
		assert.Contains(t, log.String(), "cannot reach the manager: trying again")
		assert.Contains(t, log.String(), "the delegate has stopped: all work is done")
	})
}

// T2: a delegate whose stages cannot run does not register.
func TestRunGivesUpWhenStagesCannotRun(t *testing.T) {
	t.Parallel()
	stages, m := &fakeStages{recoverErr: errors.New("no ledger"), closeErr: errors.New("nothing to close")}, &script{}
	err := poller.New(m, router.New(nil), poller.WithStages(stages)).Run(t.Context(), 1)
	require.ErrorContains(t, err, "recovering stages: no ledger")
	require.ErrorContains(t, err, "closing stages: nothing to close")
	assert.Empty(t, m.registrations)
	assert.Equal(t, []string{"recover", "close"}, stages.list())
}

// P1: an error that a retry does not mend ends Run, and so do wrong arguments.
func TestRunReturnsPermanentErrors(t *testing.T) {
	t.Parallel()
	stages := &fakeStages{}
	m := &script{onRegister: func() error { return client.ErrUnauthorized }}
	p := poller.New(m, router.New(nil), poller.WithStages(stages))
	require.ErrorIs(t, p.Run(t.Context(), 1), client.ErrUnauthorized)
	assert.Len(t, m.registrations, 1)
	assert.Equal(t, "close", stages.list()[len(stages.list())-1])
	require.ErrorContains(t, p.Run(t.Context(), 0), "0 parallel executors")
}

// P5: Shutdown and the end of the context reach a registration that is under way.
func TestRunEndsWhileItRegisters(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"shutdown", "context"} {
		synctest.Test(t, func(t *testing.T) {
			m := &script{onRegister: func() error { return client.ErrRetryable }}
			stages := &fakeStages{}
			p := poller.New(m, router.New(nil), poller.WithStages(stages))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			over := make(chan error, 1)
			go func() { over <- p.Run(ctx, 1) }()
			<-time.After(10 * time.Minute) // of the bubble's clock
			if how == "shutdown" {
				require.EqualError(t, p.Run(ctx, 1), "the poller is polling already")
				require.NoError(t, p.Shutdown(t.Context()))
				require.NoError(t, <-over)
				require.ErrorIs(t, p.Run(ctx, 1), poller.ErrShutdown)
			} else {
				cancel()
				require.ErrorIs(t, <-over, context.Canceled)
			}
			assert.Equal(t, "close", stages.list()[len(stages.list())-1])
		})
	}
}

// Rule P5: a signal ends a delegate that waits for its manager.
func TestASignalEndsTheRegistration(t *testing.T) {
	t.Parallel()
	called := make(chan struct{}, 100)
	m := &script{onRegister: func() error { called <- struct{}{}; return client.ErrRetryable }}
	stages := &fakeStages{}
	p := poller.New(m, router.New(nil), poller.WithStages(stages), poller.WithSignals(syscall.SIGIO))
	over := make(chan error, 1)
	go func() { over <- p.Run(context.WithoutCancel(t.Context()), 1) }()
	receive(t, called)
	self, err := os.FindProcess(os.Getpid())
	require.NoError(t, err)
	require.NoError(t, self.Signal(syscall.SIGIO))
	require.NoError(t, receive(t, over))
	assert.Equal(t, "close", stages.list()[len(stages.list())-1])
}

// With Register and Poll instead of Run, the poller leads the stages as well.
func TestRegisterAndPollLeadStagesToo(t *testing.T) {
	t.Parallel()
	stages := &fakeStages{closeErr: errors.New("a container is left")}
	p := poller.New(&script{}, router.New(nil), poller.WithStages(stages))
	info, err := p.Register(t.Context())
	require.NoError(t, err)
	_, err = p.Register(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorContains(t, p.Poll(ctx, 1, info.ID, time.Second), "a container is left")
	assert.Equal(t, []string{"recover", "maintain every 1m0s", "end of maintain", "close"}, stages.list())
	assert.Panics(t, func() { poller.WithStages(nil) })
	assert.Panics(t, func() {
		poller.New(&script{}, router.New(nil), poller.WithStages(stages), poller.WithSlots(capacity.NewSlots(1)))
	})
}

// P5: the first signal drains and logs the tasks that it waits for. The second one, or the end of
// the grace, cancels them. Each case has a signal of its own, because all cases
// share the process.
func TestSignalsDrainAndThenCancel(t *testing.T) {
	t.Parallel()
	for sig, cancelledBy := range map[syscall.Signal]string{syscall.SIGUSR1: "", syscall.SIGUSR2: "a signal", syscall.SIGWINCH: "the grace"} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			srv, g, log, stages := server(t), newGate(), &safeBuffer{}, &fakeStages{}
			c := newClient(t, srv)
			p := poller.New(c, router.New(router.RouteMap{executeTask: g}), poller.WithSignals(sig), poller.WithStages(stages),
				poller.WithLogger(zerolog.New(log)), poller.WithGrace(map[string]time.Duration{"": time.Hour, "a signal": poller.Unbounded, "the grace": 10 * time.Millisecond}[cancelledBy]))
			over := make(chan error, 1)
			go func() { over <- p.Run(context.WithoutCancel(t.Context()), 4) }()
			sub := submit(srv, executeTask, `{}`)
			receive(t, g.entered)
			self, err := os.FindProcess(os.Getpid())
			require.NoError(t, err)
			require.NoError(t, self.Signal(sig))
			require.Eventually(t, func() bool { return p.Health().Draining }, 30*time.Second, time.Millisecond)
			if cancelledBy != "" {
				if cancelledBy == "a signal" {
					require.NoError(t, self.Signal(sig))
				}
				require.ErrorIs(t, receive(t, over), poller.ErrGraceExceeded)
			} else {
				close(g.let)
				require.NoError(t, receive(t, over))
				assert.Equal(t, task.OK, wait(t, sub).Code)
			}
			assert.Equal(t, "close", stages.list()[len(stages.list())-1])
			assert.Regexp(t, `"tasks":1,"task_types":\["`+executeTask+`"\].*"draining: taking no new stages, waiting for tasks and transactions"`, log.String())
			assert.Contains(t, log.String(), `"the delegate has stopped`)
		})
	}
}

func TestTheRegistrationSaysWhatTheProgramChanged(t *testing.T) {
	t.Parallel()
	srv := server(t)
	start(t, srv, router.RouteMap{executeTask: echo}, poller.WithRegistration(func(r *client.Registration) {
		r.DelegateType, r.Version, r.HostName, r.IP, r.Draining = "KUBERNETES", "1.2.3", "build-7.example.com", "192.0.2.7", true
	}))
	got := srv.Delegates()[0].Registration
	assert.Equal(t, []string{"KUBERNETES", "1.2.3", "build-7.example.com", "192.0.2.7"}, []string{got.DelegateType, got.Version, got.HostName, got.IP})
	assert.False(t, got.Draining, "the poller says whether it drains")
}
