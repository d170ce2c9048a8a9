package endtoend_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	docker "github.com/docker/docker/client"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local"
	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task/capacity"
)

// orders tell a victim its task, as JSON in its environment.
type orders struct {
	URL    string
	Name   string // unchanged after a restart: it is the same delegate
	Dir    string // the directory of its ledger and its other directories
	Memory string // its directory in memory
	// Fault is the fault point at which the victim kills itself when it passes the point the
	// Nth time.
	Fault string
	N     int
	// EngineWait is how long the victim waits for an engine that is away. 0 means the driver's
	// default. With another value the victim may give up on resources at the start, and tries
	// again later. With the default it must not give up.
	EngineWait time.Duration
	// Resume lets the victim continue the steps of an earlier process.
	Resume bool
	// Pods, if set, makes the victim run its stages in a cluster and not on this machine.
	Pods *podOrders
	// Count makes the victim print, at its end, all fault points that it has passed.
	Count bool
}

// victim is a delegate like examples/delegate, in its own process. It cleans up the resources
// of an earlier process and prints that it has. Then it waits for a line on its standard input
// before it polls.
func victim() {
	if err := runVictim(); err != nil {
		fmt.Fprintln(os.Stderr, "victim:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runVictim() error {
	var o orders
	if err := json.Unmarshal([]byte(os.Getenv(victimEnv)), &o); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	faults := &faultPoints{o, &testbed.Faults{At: o.Fault, N: o.N}}
	d, err := faults.driver()
	if err != nil {
		return err
	}
	slots := capacity.NewSlots(4)
	options := []transaction.Option{
		transaction.WithSlots(slots), transaction.WithDelegate(o.Name), transaction.WithLedger(filepath.Join(o.Dir, "ledger")),
		transaction.WithInfra(faults.infra()),
	}
	if o.Resume {
		options = append(options, transaction.WithResume(o.Memory))
	}
	stages := transaction.New(&faultyDriver{d, faults}, options...)
	if err := stages.Recover(ctx); err != nil {
		return err
	}
	tending, endTending := context.WithCancel(context.Background())
	var maintenance sync.WaitGroup
	maintenance.Go(func() { stages.Maintain(tending, time.Second) })
	defer maintenance.Wait()
	defer endTending()
	fmt.Println("recovered")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	c, err := client.New(o.URL, account, secret, client.WithRetries(
		client.Retries{Attempts: 10, MinWait: 5 * time.Millisecond, MaxWait: 50 * time.Millisecond}))
	if err != nil {
		return err
	}
	polling := []poller.Option{poller.WithName(o.Name), poller.WithStages(recoveredStages{stages}), poller.WithHeartbeat(100 * time.Millisecond)}
	if o.Resume {
		polling = append(polling, poller.WithState(filepath.Join(o.Dir, "state")))
	}
	p := poller.New(c, router.New(stages.Routes()), polling...)
	info, err := p.Register(ctx)
	if err != nil {
		return err
	}
	fmt.Println("working")
	if err := p.Poll(ctx, 8, info.ID, 50*time.Millisecond); err != nil {
		return err
	}
	endTending()
	maintenance.Wait()
	if err := stages.Close(context.Background()); err != nil {
		return err
	}
	if o.Count {
		return json.NewEncoder(os.Stdout).Encode(faults.Counts())
	}
	return nil
}

// recoveredStages are stages that the victim itself recovers, maintains and closes.
type recoveredStages struct{ *transaction.Stages }

// Recover implements [poller.Stages].
func (recoveredStages) Recover(context.Context) error { return nil }

// Maintain implements [poller.Stages].
func (recoveredStages) Maintain(ctx context.Context, _ time.Duration) { <-ctx.Done() }

// Close implements [poller.Stages].
func (recoveredStages) Close(context.Context) error { return nil }

// faultPoints kills this process at one of its fault points: before and after each record and
// each call to the engine.
type faultPoints struct {
	orders
	*testbed.Faults
}

// driver returns the driver of the victim's stages.
func (f *faultPoints) driver() (victimDriver, error) {
	if f.Pods != nil {
		return f.pods()
	}
	engine, err := f.engine()
	if err != nil {
		return nil, err
	}
	return local.New(local.Config{
		Host:   host.Config{WorkDir: filepath.Join(f.Dir, "work"), MemoryDir: f.Memory},
		Docker: local.DockerConfig{Client: engine, EngineWait: f.EngineWait},
	})
}

func (f *faultPoints) infra() string {
	if f.Pods != nil {
		return transaction.Kubernetes
	}
	return transaction.Local
}

// victimDriver is a driver with all optional interfaces.
type victimDriver interface {
	driver.Driver
	driver.Finder
	driver.Reattacher
}

// faultyDriver adds fault points around the records of a driver.
type faultyDriver struct {
	victimDriver
	faults *faultPoints
}

func (d *faultyDriver) Init(ctx context.Context, env *driver.Environment, l driver.Ledger) error {
	return d.victimDriver.Init(ctx, env, &faultyLedger{l, d.faults})
}

func (d *faultyDriver) Execute(ctx context.Context, env *driver.Environment, s *driver.Step, out io.Writer, l driver.Ledger) (*driver.Result, error) {
	return d.victimDriver.Execute(ctx, env, s, out, &faultyLedger{l, d.faults})
}

func (d *faultyDriver) Cleanup(ctx context.Context, rs []driver.Resource) ([]driver.Resource, error) {
	d.faults.Pass("before cleanup")
	defer d.faults.Pass("after cleanup")
	return d.victimDriver.Cleanup(ctx, rs)
}

type faultyLedger struct {
	driver.Ledger
	faults *faultPoints
}

func (l *faultyLedger) Record(ctx context.Context, r driver.Resource) error {
	l.faults.Pass("before record " + r.Kind)
	defer l.faults.Pass("after record " + r.Kind)
	return l.Ledger.Record(ctx, r)
}

// engine returns a client of the real engine, with fault points around its calls.
func (f *faultPoints) engine() (*docker.Client, error) {
	plain, err := docker.NewClientWithOpts(docker.FromEnv)
	if err != nil {
		return nil, err
	}
	host := plain.DaemonHost()
	path, ok := strings.CutPrefix(host, "unix://")
	if !ok {
		return nil, fmt.Errorf("the engine's address %s is no socket", host)
	}
	base := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	return docker.NewClientWithOpts(docker.WithHost(host), docker.WithHTTPClient(&http.Client{Transport: &faultyTransport{base, f}}),
		docker.WithAPIVersionNegotiation())
}

type faultyTransport struct {
	http.RoundTripper
	faults *faultPoints
}

// variable matches the parts of a path that differ between transactions.
var variable = regexp.MustCompile(`^/v[0-9.]+|dlite-[^/]*|[0-9a-f]{64}`)

func (t *faultyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	call := r.Method + " " + variable.ReplaceAllString(r.URL.Path, "")
	if slices.Contains([]string{"HEAD /_ping", "GET /_ping"}, call) {
		return t.RoundTripper.RoundTrip(r)
	}
	t.faults.Pass("before " + call)
	defer t.faults.Pass("after " + call)
	return t.RoundTripper.RoundTrip(r)
}
