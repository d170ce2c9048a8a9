package kubernetes_test

import (
	"context"
	"flag"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/drivertest"
	"github.com/delegate-io/dlite/driver/kubernetes"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/task/stage"
)

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		// A test waits most of its time for the cluster and needs little CPU.
		_ = flag.Set("test.parallel", "10")
	}
	goleak.VerifyTestMain(m,
		// The client library starts it. It ends at the next beat of an exec that has ended.
		goleak.IgnoreAnyFunction("k8s.io/client-go/tools/remotecommand.(*heartbeat).start"))
}

// patience limits every wait for an event that must happen.
const patience = 2 * time.Minute

// place is a namespace of the cluster for one test.
type place struct {
	*testbed.Cluster
	namespace string
	rest      *rest.Config
}

func newPlace(tb testing.TB) *place {
	tb.Helper()
	c := testbed.Kubernetes(tb)
	rc, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	require.NoError(tb, err)
	require.NoError(tb, rest.LoadTLSFiles(rc)) // otherwise the client keeps its watches for ever
	return &place{Cluster: c, namespace: c.NewNamespace(tb), rest: rc}
}

// driver creates a driver, which is closed when the test ends.
func (p *place) driver(tb testing.TB, changes ...func(*kubernetes.Config)) *kubernetes.Driver {
	tb.Helper()
	cfg := kubernetes.Config{REST: p.rest, Namespace: p.namespace, AgentImage: p.AgentImage(tb)}
	for _, change := range changes {
		change(&cfg)
	}
	d, err := kubernetes.New(cfg)
	require.NoError(tb, err)
	tb.Cleanup(func() { assert.NoError(tb, d.Close()) })
	return d
}

// ledger keeps records in memory.
type ledger struct {
	mu   sync.Mutex
	list []driver.Resource // guarded by mu
}

func (l *ledger) Record(_ context.Context, r driver.Resource) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, r)
	return nil
}

func (l *ledger) all() []driver.Resource {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]driver.Resource(nil), l.list...)
}

// transaction is a transaction that is cleaned up when its test ends.
type transaction struct {
	d      *kubernetes.Driver
	env    *driver.Environment
	ledger *ledger
	log    *drivertest.Output
	p      *place
}

func (p *place) prepare(tb testing.TB, d *kubernetes.Driver, changes ...func(*driver.Environment)) *transaction {
	tb.Helper()
	tx := &transaction{d: d, ledger: &ledger{}, log: drivertest.NewOutput(), p: p, env: &driver.Environment{
		ID: tb.Name(), Labels: map[string]string{driver.LabelDelegate: "test", driver.LabelTransaction: tb.Name()},
	}}
	tx.env.Log = tx.log
	for _, change := range changes {
		change(tx.env)
	}
	tb.Cleanup(func() { tx.cleanup(tb) })
	return tx
}

func (p *place) begin(tb testing.TB, d *kubernetes.Driver, changes ...func(*driver.Environment)) *transaction {
	tb.Helper()
	tx := p.prepare(tb, d, changes...)
	require.NoError(tb, tx.init(tb), tx.log.String())
	return tx
}

func (tx *transaction) init(tb testing.TB) error {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	return tx.d.Init(ctx, tx.env, tx.ledger)
}

func (tx *transaction) cleanup(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), patience)
	defer cancel()
	left, err := tx.d.Cleanup(ctx, tx.ledger.all())
	assert.NoError(tb, err)
	assert.Empty(tb, left)
}

func (tx *transaction) execute(tb testing.TB, step stage.Step, out *drivertest.Output) (*driver.Result, error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	res, err := tx.d.Execute(ctx, tx.env, &driver.Step{Step: step}, out, tx.ledger)
	res.End()
	return res, err
}

// run executes a script, which must succeed, and returns its output.
func (tx *transaction) run(tb testing.TB, step stage.Step) string {
	tb.Helper()
	out := drivertest.NewOutput()
	res, err := tx.execute(tb, step, out)
	require.NoError(tb, err, out.String())
	require.Zero(tb, res.ExitCode, out.String())
	return out.String()
}

func (p *place) sh(id, script string) stage.Step {
	return stage.Step{ID: id, Image: p.Image, Run: stage.Run{Entrypoint: []string{"sh", "-c"}, Command: []string{script}}}
}

// pod returns the name of the transaction's pod.
func (tx *transaction) pod(tb testing.TB) string {
	tb.Helper()
	for _, r := range tx.ledger.all() {
		if r.Kind == "pod" {
			_, name, _ := strings.Cut(r.ID, "/")
			return name
		}
	}
	tb.Fatal("no pod is on record")
	return ""
}

// kubectl runs kubectl, which must succeed.
func (p *place) kubectl(tb testing.TB, args ...string) string {
	tb.Helper()
	out, err := p.Kubectl(tb, append([]string{"--namespace", p.namespace}, args...)...)
	require.NoError(tb, err, out)
	return out
}
