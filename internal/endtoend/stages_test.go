package endtoend_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/internal/clientfaults"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task/capacity"
	"github.com/delegate-io/dlite/task/stage"
)

const (
	account = "acct"
	secret  = "00000000000000000000000000000000" // clearly not a real secret
)

// counting is a driver with a table of existing resources. It counts each operation.
type counting struct {
	mu     sync.Mutex
	exists map[string]bool
	done   map[string]int
}

func newCounting() *counting {
	return &counting{exists: map[string]bool{}, done: map[string]int{}}
}

func (c *counting) do(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done[what]++
}

func (c *counting) create(ctx context.Context, l driver.Ledger, id string) error {
	if err := l.Record(ctx, driver.Resource{Kind: "thing", ID: id}); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exists[id] = true
	return nil
}

func (c *counting) Infra() string { return "counting" }

func (c *counting) Init(ctx context.Context, env *driver.Environment, l driver.Ledger) error {
	c.do(env.ID + " init")
	if err := c.create(ctx, l, env.ID); err != nil {
		return err
	}
	if env.Envs["FAIL"] == "init" {
		return errors.New("told to fail")
	}
	return nil
}

func (c *counting) Execute(ctx context.Context, env *driver.Environment, s *driver.Step, out io.Writer, l driver.Ledger) (*driver.Result, error) {
	c.do(env.ID + " " + s.ID)
	if err := c.create(ctx, l, env.ID+"/"+s.ID); err != nil {
		return nil, err
	}
	if env.Envs["FAIL"] == s.ID {
		return &driver.Result{ExitCode: 3}, nil
	}
	return &driver.Result{}, nil
}

func (c *counting) Cleanup(_ context.Context, rs []driver.Resource) ([]driver.Resource, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range rs {
		delete(c.exists, r.ID)
	}
	return nil, nil
}

// delegate is a delegate that polls until the test stops it.
type delegate struct {
	poller *poller.Poller
	slots  *capacity.Slots
	stages *transaction.Stages
	client *client.HTTP
	over   chan error
}

func startDelegate(t *testing.T, url, name string, d driver.Driver, maxStages int, opts ...client.Option) *delegate {
	t.Helper()
	c, err := client.New(url, account, secret, append(opts, client.WithRetries(
		client.Retries{Attempts: 8, MinWait: 5 * time.Millisecond, MaxWait: 50 * time.Millisecond}))...)
	require.NoError(t, err)
	r := &delegate{slots: capacity.NewSlots(maxStages), client: c, over: make(chan error, 1)}
	r.stages = transaction.New(d, transaction.WithSlots(r.slots), transaction.WithLedger(t.TempDir()),
		transaction.WithDelegate(name))
	r.poller = poller.New(c, router.New(r.stages.Routes()), poller.WithName(name),
		poller.WithStages(r.stages), poller.WithHeartbeat(time.Second))
	info, err := r.poller.Register(t.Context())
	require.NoError(t, err)
	go func() { r.over <- r.poller.Poll(context.Background(), 16, info.ID, 50*time.Millisecond) }()
	return r
}

// stop drains the delegate and returns its errors.
func (d *delegate) stop(ctx context.Context) error {
	err := errors.Join(d.poller.Shutdown(ctx), <-d.over)
	d.client.CloseIdleConnections()
	return err
}

// request returns the n-th stage of many, and its expected status. Some stages fail in their
// init or a step.
func request(t *testing.T, n int) (api.StageRequest, api.Status) {
	t.Helper()
	fail, want := "", api.Success
	switch n % 10 {
	case 3:
		fail, want = "init", api.Failure
	case 7:
		fail, want = "step2", api.Failure
	}
	init, err := json.Marshal(stage.InitRequest{Envs: map[string]string{"FAIL": fail}})
	require.NoError(t, err)
	step := api.StepRequest{Data: json.RawMessage(`{"run":{"entrypoint":["true"]}}`)}
	return api.StageRequest{
		ID: fmt.Sprintf("stage-%04d", n), Init: init, Steps: []api.StepRequest{step, step, step},
	}, want
}

// Rules C1, P2, C3, Q1, Q2, Q4, T1: there is one delegate on each protocol. Answers are lost,
// the manager is sometimes busy, and acquires are slow. Each of 1,000 stages ends once with
// the expected status, and every step runs once. No slot, record or resource is left.
func TestAThousandStagesThroughAManagerThatMisbehaves(t *testing.T) {
	const stages, slots = 1000, 8
	m, err := manager.New(manager.Config{Accounts: map[string]string{account: secret}, AcquireTimeout: 10 * time.Second})
	require.NoError(t, err)
	faults := clientfaults.New(1)
	lost := faults.Inject(clientfaults.Fault{Kind: clientfaults.DropResponse, Probability: 0.05})
	busy := faults.Inject(clientfaults.Fault{Kind: clientfaults.AnswerStatus, Status: 503, Probability: 0.05})
	slow := faults.Inject(clientfaults.Fault{Call: "acquire", Kind: clientfaults.Slow, Delay: 20 * time.Millisecond, Probability: 0.2})
	srv := httptest.NewServer(faults.Wrap(m))

	infra := newCounting()
	delegates := []*delegate{
		startDelegate(t, srv.URL, "one", infra, slots),
		startDelegate(t, srv.URL, "two", infra, slots, client.WithProtocol(client.V2)),
	}
	want := map[string]api.Status{}
	for n := range stages {
		req, status := request(t, n)
		want[req.ID] = status
		_, err := m.SubmitStage(t.Context(), account, req)
		require.NoError(t, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	ran := map[string]int{}
	for id, status := range want {
		st, err := m.WaitStage(ctx, account, id)
		require.NoError(t, err, id)
		require.Equal(t, status, st.Status, "%s: %s", id, st.Error)
		ran[st.DelegateID]++
	}
	faults.Release() // no faults during the end
	for _, d := range delegates {
		require.NoError(t, d.stop(ctx))
		assert.Zero(t, d.slots.Used())
		assert.Zero(t, d.stages.Open())
	}
	assert.Len(t, ran, 2, "both delegates had work")
	for _, d := range m.Delegates(account) {
		assert.Zero(t, d.Stages, "slots that the manager thinks are taken on %s", d.Name)
	}
	assert.Empty(t, infra.exists)
	for id, status := range want {
		assertRanOnce(t, infra, id, status)
	}
	for name, f := range map[string]*clientfaults.Injection{"lost": lost, "busy": busy, "slow": slow} {
		assert.Greater(t, f.Count(), stages/10, "faults of the kind %s", name)
	}
	t.Logf("%d stages, by delegate %v; answers lost %d, 503 %d, slow acquires %d", stages, ran, lost.Count(), busy.Count(), slow.Count())
	srv.Close()
	require.NoError(t, m.Close())
}

func assertRanOnce(t *testing.T, c *counting, id string, status api.Status) {
	t.Helper()
	for what, n := range map[string]int{"init": 1, "step1": 1, "step2": 1, "step3": 1} {
		if status == api.Failure && (what == "step3" || strings.HasSuffix(id, "3") && what != "init") {
			n = 0
		}
		if got := c.done[id+" "+what]; got != n {
			assert.Equal(t, n, got, "%s of %s", what, id)
		}
	}
}
