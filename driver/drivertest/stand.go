package drivertest

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
)

// patience is the limit of each wait for an event that must happen.
const patience = time.Minute

// stand is the state of a running case.
type stand struct {
	*testing.T
	target Target
	site   Site
	d      driver.Driver
	joint  *transaction // shared by all joint cases; nil in the others
}

func newStand(t *testing.T, target Target) *stand {
	s := &stand{T: t, target: target, site: target.Site(t)}
	s.d = s.driver()
	return s
}

// driver creates another driver, like a restart of the delegate.
func (s *stand) driver() driver.Driver {
	s.Helper()
	d := s.site.Driver(s)
	s.Cleanup(func() {
		if c, ok := d.(io.Closer); ok {
			assert.NoError(s, c.Close())
		}
	})
	return d
}

// transaction is a transaction of a case. Nothing of it may remain when the case ends.
type transaction struct {
	*stand
	d      driver.Driver
	env    *driver.Environment
	ledger *ledger
}

// prepare creates a transaction without an init.
func (s *stand) prepare() *transaction {
	s.Helper()
	id := s.Name() + " " + randomHex()
	tx := &transaction{stand: s, d: s.d, ledger: &ledger{}, env: &driver.Environment{
		ID:      id,
		Labels:  map[string]string{driver.LabelTransaction: id, driver.LabelDelegate: "drivertest", driver.LabelAccount: "acme"},
		Network: stage.Network{ID: "net-" + randomHex()},
		Envs:    map[string]string{TransactionVariable: id},
	}}
	s.Cleanup(func() {
		tx.ledger.before = nil
		tx.cleanup()
		tx.gone()
	})
	return tx
}

// begin creates a transaction, applies the changes and runs its init. A joint case
// gets the shared transaction instead.
func (s *stand) begin(changes ...func(env *driver.Environment)) *transaction {
	s.Helper()
	if s.joint != nil {
		return &transaction{stand: s, d: s.d, env: s.joint.env, ledger: s.joint.ledger}
	}
	tx := s.prepare()
	for _, change := range changes {
		change(tx.env)
	}
	require.NoError(s, tx.init())
	return tx
}

// announcing announces a step to the init: some infrastructures support limits and
// names only for announced steps.
func announcing(step stage.Step) func(*driver.Environment) {
	return func(env *driver.Environment) { env.Steps = append(env.Steps, step.Announcement()) }
}

func (tx *transaction) init() error {
	ctx, cancel := context.WithTimeout(tx.Context(), patience)
	defer cancel()
	return tx.d.Init(ctx, tx.env, tx.ledger)
}

// records returns the resources in the ledger.
func (tx *transaction) records() []driver.Resource {
	tx.Helper()
	rs, err := tx.ledger.resources()
	require.NoError(tx, err)
	return rs
}

func (tx *transaction) cleanup() {
	tx.Helper()
	tx.cleanupOf(tx.records())
}

func (tx *transaction) cleanupOf(rs []driver.Resource) {
	tx.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tx.Context()), patience)
	defer cancel()
	left, err := tx.d.Cleanup(ctx, rs)
	assert.NoError(tx, err)
	assert.Empty(tx, left)
}

// runs waits until the site sees something of the transaction run. During an exec, a
// process is invisible for a moment.
func (tx *transaction) runs() {
	tx.Helper()
	for limit := time.Now().Add(patience); len(tx.site.Running(tx, tx.env.ID)) == 0; {
		require.True(tx, time.Now().Before(limit), "nothing runs")
	}
}

// gone checks that nothing remains. Like cleanup it continues after a failure,
// because it also runs at the end of a case.
func (tx *transaction) gone() {
	tx.Helper()
	assert.Empty(tx, tx.site.Running(tx, tx.env.ID), "still running")
	assert.Empty(tx, tx.site.Remains(tx, tx.env.ID), "left behind")
}

// inOtherProcess returns the transaction as a restarted delegate decodes it from JSON.
func (tx *transaction) inOtherProcess() *transaction {
	tx.Helper()
	b, err := json.Marshal(tx.env)
	require.NoError(tx, err)
	env := &driver.Environment{}
	require.NoError(tx, json.Unmarshal(b, env))
	env.Envs = tx.env.Envs
	return &transaction{stand: tx.stand, d: tx.driver(), env: env, ledger: tx.ledger}
}

// step returns a step for the target that runs the command line.
func (s *stand) step(id string, run stage.Run) stage.Step {
	step := stage.Step{ID: id, Run: run}
	if s.target.Step != nil {
		s.target.Step(&step)
	}
	return step
}

// sh returns a step that runs a script; "$0" is the first of args.
func (s *stand) sh(id, script string, args ...string) stage.Step {
	return s.step(id, stage.Run{Entrypoint: []string{"sh", "-c"}, Command: append([]string{script}, args...)})
}

// run executes a step and fails the test on an error of the driver.
func (tx *transaction) run(step stage.Step, extra ...*stage.Volume) (*driver.Result, string) {
	tx.Helper()
	out := NewOutput()
	res, err := tx.execute(tx.Context(), step, out, extra...)
	require.NoError(tx, err, out.String())
	require.NotNil(tx, res)
	return res, out.String()
}

// out runs a script, which must succeed, and returns its output.
func (tx *transaction) out(script string, args ...string) string {
	tx.Helper()
	res, out := tx.run(tx.sh("step", script, args...))
	require.Zero(tx, res.ExitCode, out)
	return out
}

// fails executes a step for which the driver must return an error.
func (tx *transaction) fails(step stage.Step) (string, error) {
	tx.Helper()
	out := NewOutput()
	res, err := tx.execute(tx.Context(), step, out)
	require.Error(tx, err, out.String())
	require.Nil(tx, res)
	return out.String(), err
}

func (tx *transaction) execute(ctx context.Context, step stage.Step, out io.Writer, extra ...*stage.Volume) (*driver.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	res, err := tx.d.Execute(ctx, tx.env, &driver.Step{Step: step, ExtraVolumes: extra}, out, tx.ledger)
	res.End()
	return res, err
}

// running is a step that was started in the background.
type running struct {
	tx   *transaction
	out  *Output
	stop context.CancelCauseFunc
	done chan ending
}

type ending struct {
	res *driver.Result
	err error
}

// start executes a step in the background. It stops the step when the case ends.
func (tx *transaction) start(step stage.Step) *running {
	tx.Helper()
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(tx.Context()))
	r := &running{tx: tx, out: NewOutput(), stop: cancel, done: make(chan ending, 1)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		res, err := tx.execute(ctx, step, r.out)
		r.done <- ending{res, err}
	}()
	tx.Cleanup(func() {
		cancel(nil)
		<-ended
	})
	return r
}

func (r *running) wait() ending {
	r.tx.Helper()
	return receive(r.tx, r.done)
}

// detach starts a detached step and returns its output.
func (tx *transaction) detach(step stage.Step) *Output {
	tx.Helper()
	step.Detach = true
	out := NewOutput()
	res, err := tx.execute(tx.Context(), step, out)
	require.NoError(tx, err, out.String())
	require.True(tx, res.Detached)
	return out
}

// at returns the directory of a volume that a step mounts at path.
func (s *stand) at(name, path string) string {
	if s.target.Can.Mounts {
		return path
	}
	return "$DLITE_VOLUME_" + strings.ToUpper(name)
}

// receive waits for a value that must arrive.
func receive[T any](t testing.TB, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("nothing arrived within %v", patience)
		panic("unreachable")
	}
}
