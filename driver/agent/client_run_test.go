//go:build unix

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/driver/drivertest"
	"github.com/delegate-io/dlite/task/stage"
)

// rig is an agent with a stage, behind a proxy.
type rig struct {
	t         *testing.T
	machine   *machine
	proxy     *proxy
	transport *http.Transport
	client    *agent.Client
}

func newRig(t *testing.T) *rig {
	t.Helper()
	s := newSite(t)
	m, err := s.newMachine(t.Name())
	require.NoError(t, err)
	p, err := newProxy(m.address)
	require.NoError(t, err)
	cfg, err := m.boot.ClientTLS("")
	require.NoError(t, err)
	r := &rig{t: t, machine: m, proxy: p, transport: agent.Transport(cfg)}
	r.client = r.another()
	t.Cleanup(func() {
		r.transport.CloseIdleConnections()
		p.close()
		assert.NoError(t, m.end())
	})
	_, err = r.client.Setup(t.Context(), &agent.SetupRequest{ID: t.Name()})
	require.NoError(t, err)
	return r
}

// another returns a client as a later process creates it.
func (r *rig) another() *agent.Client {
	return agent.NewClient("https://"+r.proxy.address(), r.transport)
}

func script(id, text string) *agent.StartStepRequest {
	return &agent.StartStepRequest{Step: stage.Step{ID: id, Run: stage.Run{Entrypoint: []string{"sh", "-c"}, Command: []string{text}}}}
}

// running is a Run in the background.
type running struct {
	done chan struct{}
	res  *driver.Result // before done
	err  error          // before done
}

func (r *rig) start(ctx context.Context, c *agent.Client, req *agent.StartStepRequest, out io.Writer) *running {
	ctx, cancel := context.WithCancel(ctx)
	run := &running{done: make(chan struct{})}
	go func() {
		defer close(run.done)
		run.res, run.err = c.Run(ctx, req, out)
	}()
	r.t.Cleanup(func() {
		cancel()
		<-run.done
	})
	return run
}

func (r *running) wait(t *testing.T) (*driver.Result, error) {
	t.Helper()
	select {
	case <-r.done:
		return r.res, r.err
	case <-time.After(time.Minute):
		t.Fatal("the step did not end")
		panic("unreachable")
	}
}

// cutting is a writer that calls each after a write, with the number of bytes so far.
type cutting struct {
	*drivertest.Output
	total int
	each  func(total int)
}

func (c *cutting) Write(p []byte) (int, error) {
	n, err := c.Output.Write(p)
	c.total += n
	c.each(c.total)
	return n, err
}

// numbers returns the output of seq.
func numbers(n int) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

// Rules L2 and D6: each byte of output arrives once and in order, wherever connections are cut.
func TestEachByteArrivesOnceOverABadConnection(t *testing.T) {
	t.Parallel()
	const rounds = 4
	r := newRig(t)
	before := r.proxy.connections()
	out, dir, part := &cutting{Output: drivertest.NewOutput()}, t.TempDir(), numbers(100_000)
	cuts := 0
	out.each = func(total int) {
		if cuts < rounds && total > cuts*len(part)+10_000 {
			cuts++
			r.proxy.cut()
			// The next output needs a new connection.
			assert.NoError(t, os.WriteFile(filepath.Join(dir, strconv.Itoa(cuts)), nil, 0o600))
		}
	}
	res, err := r.client.Run(t.Context(), script("step", fmt.Sprintf(
		"for i in $(seq %d); do seq 1 100000; while [ ! -e '%s'/$i ]; do sleep 0.01; done; done", rounds, dir)), out)
	require.NoError(t, err)
	assert.Zero(t, res.ExitCode)
	assert.True(t, strings.Repeat(part, rounds) == out.String(), "%d bytes", len(out.String()))
	assert.GreaterOrEqual(t, r.proxy.connections()-before, rounds, "it was cut")
}

// Rules L2 and D6: a step runs once and its output is complete, at any byte at which a connection is
// cut.
func TestAConnectionMayBeCutAtAnyByte(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg, err := r.machine.boot.ClientTLS("")
	require.NoError(t, err)
	const (
		apart = 307
		last  = 9000 // handshake, step and all of its output
	)
	want, steps := numbers(1000), 0
	for at := 1 + rand.IntN(apart); at < last; at += apart {
		for _, room := range [][2]int{{at, 0}, {0, at}} {
			p, err := newProxy(r.machine.address)
			require.NoError(t, err)
			p.cutFirst(room)
			transport, out := agent.Transport(cfg), drivertest.NewOutput()
			steps++
			res, err := agent.NewClient("https://"+p.address(), transport).Run(t.Context(),
				script(fmt.Sprint("step-", steps), "seq 1 1000; echo ran >>count; echo A=1 >>$DRONE_OUTPUT; exit 5"), out)
			require.NoError(t, err, "%v", room)
			assert.Equal(t, 5, res.ExitCode, "%v", room)
			assert.Equal(t, map[string]string{"A": "1"}, res.Outputs, "%v", room)
			assert.True(t, want == out.String(), "%v: %d bytes", room, len(out.String()))
			transport.CloseIdleConnections()
			p.close()
		}
	}
	out := drivertest.NewOutput()
	_, err = r.client.Run(t.Context(), script("count", "grep -c ran count"), out)
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprintln(steps), out.String(), "each ran once")
}

// Rule D6: a step continues while the agent is unreachable, and its result waits.
func TestAStepEndsWhileTheAgentCannotBeReached(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	out := drivertest.NewOutput()
	done := r.start(t.Context(), r.client, script("step", `echo up; while [ ! -e go ]; do sleep 0.05; done; echo A=1 >> $DRONE_OUTPUT; echo end; exit 7`), out)
	out.WaitFor(t, "up\n")
	r.proxy.setDown(true)
	// A direct client lets the step end.
	direct := agent.NewClient("https://"+r.machine.address, r.transport)
	_, err := direct.Run(t.Context(), script("go", "touch go"), drivertest.NewOutput())
	require.NoError(t, err)
	_, err = direct.Run(t.Context(), &agent.StartStepRequest{Step: stage.Step{ID: "step"}}, drivertest.NewOutput()) // the step started long ago
	require.NoError(t, err)
	select {
	case <-done.done:
		t.Fatalf("it ended without an answer: %v", done.err)
	default:
	}
	r.proxy.setDown(false)
	res, err := done.wait(t)
	require.NoError(t, err)
	assert.Equal(t, 7, res.ExitCode)
	assert.Equal(t, map[string]string{"A": "1"}, res.Outputs)
	assert.Equal(t, "up\nend\n", out.String())
}

// Rule D6: a dead connection is noticed.
func TestADeadConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.transport.CloseIdleConnections()
	cfg, err := r.machine.boot.ClientTLS("")
	require.NoError(t, err)
	r.transport = agent.Transport(cfg)
	require.Positive(t, r.transport.HTTP2.SendPingTimeout)
	r.transport.HTTP2.SendPingTimeout, r.transport.HTTP2.PingTimeout = 200*time.Millisecond, 200*time.Millisecond
	out := drivertest.NewOutput()
	done := r.start(t.Context(), r.another(), script("step", `echo up; while [ ! -e go ]; do sleep 0.05; done; echo end`), out)
	out.WaitFor(t, "up\n")
	before := r.proxy.connections()
	thaw := r.proxy.freeze()
	require.Eventually(t, func() bool { return r.proxy.connections() > before }, 30*time.Second, 5*time.Millisecond)
	thaw()
	_, err = r.another().Run(t.Context(), script("go", "touch go"), drivertest.NewOutput())
	require.NoError(t, err)
	_, err = done.wait(t)
	require.NoError(t, err)
	assert.Equal(t, "up\nend\n", out.String())
}

// Rule D6: the steps of a dead machine fail at once.
func TestADeadMachineFailsItsStepsAtOnce(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	r := newRig(t)
	r.client.Gone = gone
	out := drivertest.NewOutput()
	done := r.start(t.Context(), r.client, script("step", `echo up; sleep 600`), out)
	service, background := script("service", "echo up; sleep 600"), drivertest.NewOutput()
	service.Detach = true
	_, f, err := r.client.Start(t.Context(), service, background)
	require.NoError(t, err)
	out.WaitFor(t, "up\n")
	thaw := r.proxy.freeze()
	defer thaw()
	begin := time.Now()
	close(gone)
	_, err = done.wait(t)
	require.ErrorIs(t, err, agent.ErrGone)
	require.ErrorContains(t, err, `step "step"`)
	<-f.Done()
	f.Stop()
	_, err = r.client.Setup(t.Context(), &agent.SetupRequest{})
	require.ErrorIs(t, err, agent.ErrGone)
	assert.Less(t, time.Since(begin), time.Minute)
}

// Rule T7: a stop does not wait without limit for an agent that does not answer.
func TestAStopThatTheAgentDoesNotAnswerIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.client.StopTimeout = 300 * time.Millisecond
	out := drivertest.NewOutput()
	ctx, cancel := context.WithCancelCause(t.Context())
	done := r.start(ctx, r.client, script("step", `echo up; sleep 600`), out)
	out.WaitFor(t, "up\n")
	thaw := r.proxy.freeze()
	cancel(errors.New("the test aborts it"))
	_, err := done.wait(t)
	thaw()
	require.ErrorIs(t, err, context.Canceled)
	assert.EqualError(t, err, `step "step": stopped: the test aborts it: context canceled`)
}

// Rule T5: a step of an earlier process is followed from its first byte, and starts once.
func TestALaterProcessContinuesAStep(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	req := script("step", `echo ran >> count; cat count; while [ ! -e go ]; do sleep 0.05; done; echo end; exit 3`)
	req.Key = "key-1"
	ctx, die := context.WithCancel(t.Context())
	out := drivertest.NewOutput()
	crashing := agent.NewClient("https://"+r.proxy.address(), &mortal{r.transport, ctx})
	first := r.start(context.WithoutCancel(t.Context()), crashing, req, out)
	out.WaitFor(t, "ran\n")
	die()

	again := drivertest.NewOutput()
	done := r.start(t.Context(), r.another(), req, again)
	attached := drivertest.NewOutput()
	var f *agent.Follower
	following := &running{done: make(chan struct{})}
	go func() {
		defer close(following.done)
		following.res, f, following.err = r.another().Attach(t.Context(), req, attached)
	}()
	again.WaitFor(t, "ran\n")
	attached.WaitFor(t, "ran\n")
	_, err := r.client.Run(t.Context(), script("go", "touch go"), drivertest.NewOutput())
	require.NoError(t, err)
	for _, one := range []*running{done, following} {
		res, err := one.wait(t)
		require.NoError(t, err)
		assert.Equal(t, 3, res.ExitCode)
	}
	assert.Nil(t, f)
	assert.Equal(t, "ran\nend\n", again.String())
	assert.Equal(t, "ran\nend\n", attached.String())
	_, err = first.wait(t)
	require.ErrorIs(t, err, errDead)

	req.Key = "key-2"
	_, _, err = r.client.Attach(t.Context(), req, drivertest.NewOutput())
	require.ErrorIs(t, err, driver.ErrNotBegun)
}

// mortal is the transport of a process that ends with ctx.
type mortal struct {
	*http.Transport
	ctx context.Context
}

var errDead = &agent.Error{Message: "the process has ended"}

func (m *mortal) RoundTrip(req *http.Request) (*http.Response, error) {
	if m.ctx.Err() != nil {
		return nil, errDead
	}
	ctx, cancel := context.WithCancel(req.Context())
	context.AfterFunc(m.ctx, cancel)
	resp, err := m.Transport.RoundTrip(req.WithContext(ctx))
	if m.ctx.Err() != nil && err != nil {
		return nil, errDead
	}
	return resp, err
}

// Rule T5: if the agent does not know the step any more, the step is lost and has not ended.
func TestAStepThatTheAgentDoesNotKnowIsLost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	out := drivertest.NewOutput()
	done := r.start(t.Context(), r.client, script("step", `echo up; sleep 600`), out)
	out.WaitFor(t, "up\n")
	r.proxy.setDown(true)
	direct := agent.NewClient("https://"+r.machine.address, r.transport)
	require.NoError(t, direct.Destroy(t.Context(), &agent.DestroyRequest{}))
	r.proxy.setDown(false)
	_, err := done.wait(t)
	require.ErrorIs(t, err, driver.ErrLost)
}

// Rule D2: the output of a detached step is followed until the stage is destroyed, or the follower
// is stopped.
func TestAFollowerEndsWithTheStageOrWhenItIsStopped(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	start := func(id string) (*agent.Follower, *drivertest.Output) {
		req, out := script(id, `echo up; while [ ! -e go ]; do sleep 0.05; done; echo went; sleep 600`), drivertest.NewOutput()
		req.Detach = true
		res, f, err := r.client.Start(t.Context(), req, out)
		require.NoError(t, err)
		require.True(t, res.Detached)
		out.WaitFor(t, "up\n")
		return f, out
	}
	followed, out := start("followed")
	dropped, unheard := start("dropped")
	dropped.Stop()
	dropped.Stop()
	r.proxy.cut()
	_, err := r.client.Run(t.Context(), script("go", "touch go"), drivertest.NewOutput())
	require.NoError(t, err)
	out.WaitFor(t, "went\n")
	require.NoError(t, r.client.Destroy(t.Context(), &agent.DestroyRequest{}))
	<-followed.Done()
	followed.Stop()
	assert.Equal(t, "up\nwent\n", out.String())
	assert.Equal(t, "up\n", unheard.String())
}

// failing is a writer that always fails.
type failing struct{ calls int }

func (f *failing) Write([]byte) (int, error) {
	f.calls++
	return 0, errors.New("no room")
}

// Rule D1: a failed reader does not stop the step.
func TestAFailedReaderIsNotCalledAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	out := &failing{}
	res, err := r.client.Run(t.Context(), script("step", `seq 1 100000; exit 2`), out)
	require.NoError(t, err)
	assert.Equal(t, 2, res.ExitCode)
	assert.Equal(t, 1, out.calls)
}

// docs/protocol.md, section 5: a refused call is not retried, and the error has the agent's text.
func TestARefusedCallFailsAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, err := r.client.Setup(t.Context(), &agent.SetupRequest{ID: "another"})
	refused := (*agent.Error)(nil)
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, 400, refused.Status)
	assert.Contains(t, err.Error(), "agent's setup: the agent has another stage")
	require.NoError(t, r.client.Destroy(t.Context(), &agent.DestroyRequest{}))
	_, err = r.client.Setup(t.Context(), &agent.SetupRequest{ID: "x", Files: []*stage.File{{Path: "../out"}}})
	require.ErrorContains(t, err, "not in the workspace")
	_, err = r.client.Run(t.Context(), script("step", "true"), drivertest.NewOutput())
	require.ErrorContains(t, err, `step "step": the agent has no stage`)
	require.NoError(t, r.client.Suspend(t.Context()))
}
