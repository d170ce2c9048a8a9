package local_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local"
	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/task/stage"
)

// TestMain raises the number of parallel tests unless -parallel is set. Most tests wait for an engine
// or a timer.
func TestMain(m *testing.M) {
	host.Supervise()
	if len(os.Args) > 1 && os.Args[1] == builtinArgument {
		runBuiltin()
	}
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(3*runtime.GOMAXPROCS(0)))
	}
	goleak.VerifyTestMain(m)
}

// builtinArgument is the first argument of the program that the test binary contains.
const builtinArgument = "a-builtin"

// runBuiltin does the work of that program.
func runBuiltin() {
	fmt.Println(os.Args[2:], os.Getenv("PLUGIN_NAME"), os.Getenv("DLITE_MOUNTS"))
	os.Exit(5)
}

// ledger stores records as JSON, as a ledger on disk does.
type ledger struct {
	mu      sync.Mutex
	order   []string
	records map[string][]byte
	refuse  func(r driver.Resource) error // nil accepts everything
	before  func(r driver.Resource)       // runs before each record
}

func (l *ledger) Record(_ context.Context, r driver.Resource) error {
	if l.before != nil {
		l.before(r)
	}
	if l.refuse != nil {
		if err := l.refuse(r); err != nil {
			return err
		}
	}
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.records == nil {
		l.records = map[string][]byte{}
	}
	key := r.Kind + " " + r.ID
	if _, ok := l.records[key]; !ok {
		l.order = append(l.order, key)
	}
	l.records[key] = b
	return nil
}

// resources decodes the records.
func (l *ledger) resources() []driver.Resource {
	l.mu.Lock()
	defer l.mu.Unlock()
	var rs []driver.Resource
	for _, key := range l.order {
		var r driver.Resource
		if err := json.Unmarshal(l.records[key], &r); err != nil {
			panic(err)
		}
		rs = append(rs, r)
	}
	return rs
}

// forget drops the records of a kind. The resources must be gone.
func (l *ledger) forget(kind string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.order = slices.DeleteFunc(l.order, func(key string) bool { return strings.HasPrefix(key, kind+" ") })
}

func (l *ledger) ofKind(kind string) []driver.Resource {
	var list []driver.Resource
	for _, r := range l.resources() {
		if r.Kind == kind {
			list = append(list, r)
		}
	}
	return list
}

// buffer is an output that is safe for concurrent use.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
	// wrote gets a value after a write if its buffer is empty.
	wrote chan struct{}
}

func newBuffer() *buffer { return &buffer{wrote: make(chan struct{}, 1)} }

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.wrote <- struct{}{}:
	default:
	}
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// waitFor returns when the output contains s.
func (b *buffer) waitFor(t *testing.T, s string) {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for !strings.Contains(b.String(), s) {
		select {
		case <-b.wrote:
		case <-timeout:
			t.Fatalf("the output never held %q: %q", s, b.String())
		}
	}
}

// rig is a driver with one transaction.
type rig struct {
	t      *testing.T
	d      *local.Driver
	env    *driver.Environment
	ledger *ledger
	work   string
	memory string
}

// newRig returns a rig whose cleanup must leave nothing.
func newRig(t *testing.T, opts ...option) *rig {
	t.Helper()
	r := &rig{t: t, work: workDir(t), memory: memoryDir(t), ledger: &ledger{}}
	d, err := newDriver(append([]option{withWorkDir(r.work), withMemoryDir(r.memory)}, opts...)...)
	require.NoError(t, err)
	r.d = d
	r.env = &driver.Environment{ID: fmt.Sprintf("%s-%d", t.Name(), time.Now().UnixNano()), Network: stage.Network{ID: "net-of-" + t.Name()}}
	t.Cleanup(func() {
		r.cleanup()
		require.NoError(t, d.Close())
		requireEmpty(t, r.work)
		requireEmpty(t, r.memory)
	})
	return r
}

// workDir returns a temporary directory that other users can pass through.
func workDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dlite-test-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o711))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "dlite-test-")
	if err != nil {
		return workDir(t)
	}
	require.NoError(t, os.Chmod(dir, 0o711))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func requireEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries, "left behind in %s", dir)
}

func (r *rig) init() *rig {
	r.t.Helper()
	require.NoError(r.t, r.d.Init(r.t.Context(), r.env, r.ledger))
	return r
}

func (r *rig) cleanup() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	left, err := r.d.Cleanup(ctx, r.ledger.resources())
	require.NoError(r.t, err)
	require.Empty(r.t, left)
}

// run executes a step without an error.
func (r *rig) run(step stage.Step) (*driver.Result, string) {
	r.t.Helper()
	out := newBuffer()
	res, err := r.d.Execute(r.t.Context(), r.env, &driver.Step{Step: step}, out, r.ledger)
	require.NoError(r.t, err, out.String())
	res.End()
	return res, out.String()
}

// fail executes a step that must return an error.
func (r *rig) fail(step stage.Step) (string, error) {
	r.t.Helper()
	out := newBuffer()
	res, err := r.d.Execute(r.t.Context(), r.env, &driver.Step{Step: step}, out, r.ledger)
	require.Error(r.t, err, out.String())
	require.Nil(r.t, res)
	return out.String(), err
}

// sh returns a step that runs a script.
func sh(id, script string) stage.Step {
	return stage.Step{ID: id, Run: stage.Run{Entrypoint: []string{"sh", "-c"}, Command: []string{script}}}
}

// in makes the step run in a container.
func in(image string, step stage.Step) stage.Step {
	step.Image = image
	step.Pull = "Never"
	return step
}

// dockerRig is newRig with an engine.
func dockerRig(t *testing.T, opts ...option) (*rig, *testbed.Engine) {
	t.Helper()
	engine := testbed.Docker(t)
	r := newRigChecked(t, engine, opts...)
	return r, engine
}

func newRigChecked(t *testing.T, engine *testbed.Engine, opts ...option) *rig {
	t.Helper()
	// Registered first, so that it runs after the rig's cleanup.
	ids := make([]string, 1)
	t.Cleanup(func() {
		if ids[0] != "" {
			for _, what := range engine.Leftovers(t, ids...) {
				t.Errorf("left behind: %s", what)
			}
		}
	})
	r := newRig(t, opts...)
	ids[0] = r.env.ID
	return r
}

var errRefused = errors.New("the ledger is full")

var _ io.Writer = (*buffer)(nil)

// option changes the configuration of a test's driver.
type option func(*local.Config)

// newDriver returns a driver that starts host steps itself, unless an option separates them.
func newDriver(opts ...option) (*local.Driver, error) {
	cfg := local.Config{Host: host.Config{Trusted: true}}
	for _, opt := range opts {
		opt(&cfg)
	}
	return local.New(cfg)
}

func separated() option { return func(c *local.Config) { c.Host.Trusted = false } }

func withWorkDir(dir string) option { return func(c *local.Config) { c.Host.WorkDir = dir } }

func withMemoryDir(dir string) option { return func(c *local.Config) { c.Host.MemoryDir = dir } }

func withWorkspace(dir string) option { return func(c *local.Config) { c.Host.Workspace = dir } }

func withGrace(grace time.Duration) option {
	return func(c *local.Config) { c.Host.Grace = grace }
}

func withTermination(attempts int, interval time.Duration) option {
	return func(c *local.Config) { c.Host.TermAttempts, c.Host.TermInterval = attempts, interval }
}

func withPluginCache(dir string) option {
	return func(c *local.Config) { c.Host.PluginCache = dir }
}

func withFileLimit(bytes int64) option {
	return func(c *local.Config) { c.Host.FileLimit = bytes }
}

func withDockerHost(host string) option { return func(c *local.Config) { c.Docker.Host = host } }

func withDockerClient(cli client.APIClient) option {
	return func(c *local.Config) { c.Docker.Client = cli }
}

func withEngineWait(limit time.Duration) option {
	return func(c *local.Config) { c.Docker.EngineWait = limit }
}
