package transaction_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
	"github.com/delegate-io/dlite/task/stage"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeDriver is an infrastructure in memory. It records its resources and calls. With zero
// hooks every call succeeds at once.
type fakeDriver struct {
	mu      sync.Mutex
	exists  map[string]driver.Resource
	cleaned [][]driver.Resource
	tasks   atomic.Int64 // number of ids given, for all processes

	onInit    func(ctx context.Context, env *driver.Environment) error
	onExecute func(ctx context.Context, env *driver.Environment, s *driver.Step, out io.Writer) (*driver.Result, error)
	stubborn  func(driver.Resource) error // returns why a resource cannot be removed
}

// pooled is a fakeDriver with a pool of one machine.
type pooled struct {
	*fakeDriver
	asked    []*driver.Environment
	limits   []time.Duration
	returned []string
	onAsk    func() error
}

func (p *pooled) Reserve(_ context.Context, env *driver.Environment, limit time.Duration) (*driver.Reservation, error) {
	p.mu.Lock()
	p.asked, p.limits = append(p.asked, env), append(p.limits, limit)
	p.mu.Unlock()
	if p.onAsk != nil {
		if err := p.onAsk(); err != nil {
			return nil, err
		}
	}
	return &driver.Reservation{Pool: "linux", Machine: "machine-1", Until: time.UnixMilli(1_700_000_000_000)}, nil
}

func (p *pooled) Unreserve(_ context.Context, transaction string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.returned = append(p.returned, transaction)
	return nil
}

func newFakeDriver() *fakeDriver { return &fakeDriver{exists: map[string]driver.Resource{}} }

func (w *fakeDriver) Infra() string { return "world" }

func (w *fakeDriver) create(ctx context.Context, l driver.Ledger, kind, id string) error {
	r := driver.Resource{Kind: kind, ID: id}
	if err := l.Record(ctx, r); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.exists[kind+" "+id] = r
	return nil
}

func (w *fakeDriver) Init(ctx context.Context, env *driver.Environment, l driver.Ledger) error {
	if err := w.create(ctx, l, "network", env.ID); err != nil {
		return err
	}
	env.State = json.RawMessage(`{"ready":true}`)
	if w.onInit != nil {
		return w.onInit(ctx, env)
	}
	return nil
}

func (w *fakeDriver) Execute(ctx context.Context, env *driver.Environment, s *driver.Step, out io.Writer, l driver.Ledger) (*driver.Result, error) {
	if err := w.create(ctx, l, "process", env.ID+"/"+s.ID); err != nil {
		return nil, err
	}
	if w.onExecute != nil {
		return w.onExecute(ctx, env, s, out)
	}
	return &driver.Result{}, nil
}

// Reattach finds no running step; see lasting.
func (w *fakeDriver) Reattach(
	context.Context, *driver.Environment, *driver.Step, io.Writer, driver.Ledger, []driver.Resource,
) (*driver.Result, error) {
	return nil, driver.ErrLost
}

func (w *fakeDriver) Cleanup(_ context.Context, rs []driver.Resource) (left []driver.Resource, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cleaned = append(w.cleaned, slices.Clone(rs))
	for _, r := range rs {
		if w.stubborn != nil {
			if e := w.stubborn(r); e != nil {
				left, err = append(left, r), errors.Join(err, e)
				continue
			}
		}
		delete(w.exists, r.Kind+" "+r.ID)
	}
	return left, err
}

func (w *fakeDriver) left() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ids []string
	for id := range w.exists {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// logs collects the logs of steps by their keys.
type logs struct {
	mu   sync.Mutex
	text map[string]*bytes.Buffer
	done map[string]bool
}

func newLogs() *logs { return &logs{text: map[string]*bytes.Buffer{}, done: map[string]bool{}} }

func (l *logs) open(_ context.Context, t logger.StreamConfig) logger.TaskLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text[t.Key] = &bytes.Buffer{}
	return &oneLog{l, t.Key}
}

func (l *logs) get(key string) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text[key] == nil {
		return "", false
	}
	return l.text[key].String(), l.done[key]
}

type oneLog struct {
	*logs
	key string
}

func (o *oneLog) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text[o.key].Write(b)
}

func (o *oneLog) Close(context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done[o.key] = true
	return nil
}

// stages is a Stages under test.
type stages struct {
	*transaction.Stages
	t      *testing.T
	fake   *fakeDriver
	logs   *logs
	ledger string
	slots  *capacity.Slots
}

// Recover also returns the problems that the real method only logs.
func (s *stages) Recover(ctx context.Context) error { return s.RecoverAll(ctx) }

func newStages(t *testing.T, w *fakeDriver, opts ...transaction.Option) *stages {
	t.Helper()
	return reopenStages(t, w, filepath.Join(t.TempDir(), "ledger"), opts...)
}

func reopenStages(t *testing.T, w *fakeDriver, dir string, opts ...transaction.Option) *stages {
	t.Helper()
	s := unmanagedStages(t, w, dir, opts...)
	t.Cleanup(func() { _ = s.Close(context.Background()) }) // a test that needs the error closes the stages itself
	return s
}

// unmanagedStages are closed by the caller.
func unmanagedStages(t *testing.T, w *fakeDriver, dir string, opts ...transaction.Option) *stages {
	return stagesOn(t, w, w, dir, opts...)
}

// stagesOn returns unmanaged stages of a driver that wraps a fakeDriver.
func stagesOn(t *testing.T, d driver.Driver, w *fakeDriver, dir string, opts ...transaction.Option) *stages {
	s := &stages{t: t, fake: w, logs: newLogs(), ledger: dir, slots: capacity.NewSlots(0)}
	s.Stages = transaction.New(d, append([]transaction.Option{
		transaction.WithLedger(dir), transaction.WithSlots(s.slots), transaction.WithLog(s.logs.open),
		transaction.WithDelegate("tester"), transaction.WithInfra(transaction.Local, transaction.VM, transaction.Kubernetes),
	}, opts...)...)
	return s
}

// run sends a task through the handler of its type.
func (s *stages) run(ctx context.Context, typ string, data any) *task.Response {
	b, err := json.Marshal(data)
	if err != nil {
		panic(err)
	}
	r, _ := task.Serve(ctx, s.Routes()[typ], &task.Task{
		ID: fmt.Sprint(typ, s.fake.tasks.Add(1)), Type: typ, Data: b, Account: "acct",
	})
	return r
}

func (s *stages) init(id string) *task.Response {
	return s.run(s.t.Context(), "local_init", stage.InitRequest{Network: stage.Network{ID: id}})
}

func (s *stages) execute(id, step string) *task.Response {
	return s.run(s.t.Context(), "local_execute", stage.ExecuteRequest{GroupID: id, Step: stage.Step{ID: step, LogKey: step}})
}

func (s *stages) cleanup(id string) *task.Response {
	return s.run(s.t.Context(), "local_cleanup", stage.CleanupRequest{Network: id})
}

// records returns the files of open transactions.
func (s *stages) records() []string {
	paths, err := filepath.Glob(filepath.Join(s.ledger, "*.ledger"))
	require.NoError(s.t, err)
	return paths
}

func statusOf(r *task.Response) stage.Status {
	var body struct {
		Status stage.Status `json:"command_execution_status"`
	}
	_ = json.Unmarshal(r.Data, &body) // without a body there is no status
	return body.Status
}
