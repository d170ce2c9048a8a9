package vmtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/driver/vm"
	"github.com/delegate-io/dlite/task/stage"
)

// timeout limits every wait. Machines may be emulated, and the host busy.
const timeout = 3 * time.Minute

// TestProvider runs the suite as sequential subtests. Each call of newProvider returns a provider
// as a new delegate process would create it: all share the infrastructure only. The machines need
// an agent of this project, which receives agent.Boot. No resource may remain after a test.
func TestProvider(t *testing.T, newProvider func(tb testing.TB) vm.Provider) {
	t.Helper()
	for _, c := range []struct {
		name string
		run  func(s *stand)
	}{
		{"a machine runs steps for a client with its key", runsSteps},
		{"a machine is alive and listed until it is destroyed", isAlive},
		{"a machine that does not exist counts as destroyed", destroysAgain},
		{"machines are isolated", areApart},
		{"a machine is found again by another process", isFoundAgain},
		{"a destroy removes the rest of an interrupted create", cutShort},
		{"a destroy that timed out can be repeated", destroyLater},
		{"owners do not see each other's machines", owners},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &stand{T: t, fresh: newProvider, p: newProvider(t), owner: newID()}
			// Destroys the leftovers of the case, and checks that nothing remains.
			t.Cleanup(s.clean)
			c.run(s)
		})
	}
}

// stand is the state of a test case.
type stand struct {
	*testing.T
	fresh func(tb testing.TB) vm.Provider
	p     vm.Provider
	owner string
}

func newID() string { return "dlite-" + strings.ToLower(rand.Text()) }

func (s *stand) clean() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Context()), timeout)
	defer cancel()
	p := s.fresh(s)
	ids, err := p.List(ctx, s.owner)
	assert.NoError(s, err)
	for _, id := range ids {
		assert.NoError(s, p.Destroy(ctx, id))
	}
	ids, err = p.List(ctx, s.owner)
	assert.NoError(s, err)
	assert.Empty(s, ids, "left behind")
}

// ctx returns a context for a call.
func (s *stand) ctx() context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), timeout)
	s.Cleanup(cancel)
	return ctx
}

// made is a machine of a case.
type made struct {
	vm.Machine
	id     string
	boot   *agent.Boot
	client *agent.Client
}

// spec returns the spec of a new machine, its boot, and the number of calls of Boot.
func (s *stand) spec() (vm.Spec, *agent.Boot, *atomic.Int32) {
	boot := &agent.Boot{}
	var err error
	boot.CA, boot.Cert, boot.Key, err = agent.Issue("", time.Now())
	require.NoError(s, err)
	boots := &atomic.Int32{}
	return vm.Spec{ID: newID(), Owner: s.owner, Labels: map[string]string{"purpose": "test"}, Boot: func() []byte {
		boots.Add(1)
		b := *boot
		b.Seed = []byte(rand.Text())
		b.Time = time.Now().UnixNano()
		text, _ := json.Marshal(b)
		return text
	}}, boot, boots
}

// create creates a machine whose agent answers.
func (s *stand) create() *made {
	s.Helper()
	spec, boot, boots := s.spec()
	machine, err := s.p.Create(s.ctx(), spec)
	require.NoError(s, err)
	require.Positive(s, boots.Load(), "it received no boot")
	require.NotEmpty(s, machine.Address)
	require.WithinDuration(s, time.Now(), machine.Created, timeout)
	m := &made{Machine: machine, id: spec.ID, boot: boot, client: s.client(machine.Address, boot)}
	s.awaitAgent(m.client)
	return m
}

func (s *stand) client(address string, boot *agent.Boot) *agent.Client {
	s.Helper()
	cfg, err := boot.ClientTLS("")
	require.NoError(s, err)
	transport := agent.Transport(cfg)
	s.Cleanup(transport.CloseIdleConnections)
	return agent.NewClient("https://"+address, transport)
}

func (s *stand) awaitAgent(c *agent.Client) {
	s.Helper()
	require.Eventually(s, func() bool {
		ctx, cancel := context.WithTimeout(s.Context(), 5*time.Second)
		defer cancel()
		h, err := c.Health(ctx)
		return err == nil && h.OK
	}, timeout, 50*time.Millisecond, "the agent does not answer")
}

func (s *stand) requireThere(p vm.Provider, id string) {
	s.Helper()
	alive, err := p.Alive(s.ctx(), id)
	require.NoError(s, err)
	require.True(s, alive, "it is not alive")
	ids, err := p.List(s.ctx(), s.owner)
	require.NoError(s, err)
	require.Contains(s, ids, id)
}

func (s *stand) requireGone(p vm.Provider, id string) {
	s.Helper()
	alive, err := p.Alive(s.ctx(), id)
	require.NoError(s, err)
	require.False(s, alive, "it is alive")
	ids, err := p.List(s.ctx(), s.owner)
	require.NoError(s, err)
	require.NotContains(s, ids, id)
}

func runsSteps(s *stand) {
	m := s.create()
	_, err := m.client.Setup(s.ctx(), &agent.SetupRequest{ID: "vmtest", Network: stage.Network{ID: "vmtest"}})
	require.NoError(s, err)
	var out bytes.Buffer
	res, err := m.client.Run(s.ctx(), &agent.StartStepRequest{Step: stage.Step{
		ID: "step", Environment: map[string]string{}, Run: stage.Run{Entrypoint: []string{"sh", "-c"}, Command: []string{"echo from the machine; exit 3"}},
	}}, &out)
	require.NoError(s, err)
	require.Equal(s, 3, res.ExitCode)
	require.Equal(s, "from the machine\n", out.String())
	require.NoError(s, m.client.Destroy(s.ctx(), &agent.DestroyRequest{}))
}

func isAlive(s *stand) {
	m := s.create()
	s.requireThere(s.p, m.id)
	require.NoError(s, s.p.Destroy(s.ctx(), m.id))
	s.requireGone(s.p, m.id)
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(s.ctx(), "tcp", m.Address)
	if err == nil {
		_ = conn.Close()
	}
	require.Error(s, err, "its address still takes connections")
}

func destroysAgain(s *stand) {
	m := s.create()
	for range 3 {
		require.NoError(s, s.p.Destroy(s.ctx(), m.id))
	}
	require.NoError(s, s.fresh(s).Destroy(s.ctx(), m.id))
	never := newID()
	alive, err := s.p.Alive(s.ctx(), never)
	require.NoError(s, err)
	require.False(s, alive)
	require.NoError(s, s.p.Destroy(s.ctx(), never), "a machine that was never created")
	done := make(chan error, 2)
	other := s.create()
	for range cap(done) {
		go func() { done <- s.p.Destroy(context.WithoutCancel(s.Context()), other.id) }()
	}
	require.NoError(s, <-done, "two at once")
	require.NoError(s, <-done, "two at once")
	s.requireGone(s.p, other.id)
}

func areApart(s *stand) {
	one, other := s.create(), s.create()
	require.NotEqual(s, one.Address, other.Address)
	ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
	defer cancel()
	_, err := s.client(other.Address, one.boot).Health(ctx)
	require.Error(s, err, "a machine accepts the key of another one")
	require.NoError(s, s.p.Destroy(s.ctx(), one.id))
	s.requireGone(s.p, one.id)
	s.requireThere(s.p, other.id)
	s.awaitAgent(other.client)
}

func isFoundAgain(s *stand) {
	m := s.create()
	again := s.fresh(s)
	s.requireThere(again, m.id)
	s.awaitAgent(m.client)
	require.NoError(s, again.Destroy(s.ctx(), m.id))
	s.requireGone(again, m.id)
	s.requireGone(s.p, m.id)
}

func cutShort(s *stand) {
	for _, after := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond} {
		spec, _, _ := s.spec()
		ctx, cancel := context.WithTimeout(s.Context(), after)
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			_, _ = s.p.Create(ctx, spec) // it may have finished in time
		}()
		select {
		case <-returned:
		case <-time.After(time.Minute):
			s.Fatalf("a create ignores its context, which ended after %v", after)
		}
		cancel()
		p := s.fresh(s)
		require.NoError(s, p.Destroy(s.ctx(), spec.ID), after)
		s.requireGone(p, spec.ID)
	}
}

func destroyLater(s *stand) {
	m := s.create()
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	_ = s.p.Destroy(ctx, m.id) // it may succeed at once
	require.NoError(s, s.p.Destroy(s.ctx(), m.id))
	s.requireGone(s.p, m.id)
}

func owners(s *stand) {
	m := s.create()
	ids, err := s.p.List(s.ctx(), newID())
	require.NoError(s, err)
	require.Empty(s, ids)
	ids, err = s.p.List(s.ctx(), s.owner)
	require.NoError(s, err)
	require.Equal(s, []string{m.id}, ids)
}
