//go:build unix

package agent_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/driver/drivertest"
	"github.com/delegate-io/dlite/driver/local"
	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/internal/testbed"
)

// Rules D1 and D6: the conformance suite passes through an agent over mutual TLS.
func TestConformanceThroughAnAgent(t *testing.T) {
	can := drivertest.Capabilities{HostFolders: true, FolderRemoval: true, Interleaved: true, Users: os.Geteuid() == 0}
	drivertest.Run(t, drivertest.Target{Site: func(tb testing.TB) drivertest.Site { return newSite(tb) }, Can: can})
}

// Rules D1 and D6: the suite also passes if every connection is cut repeatedly.
func TestConformanceThroughAnAgentThatIsCutOffAllTheTime(t *testing.T) {
	drivertest.Run(t, drivertest.Target{
		Site: func(tb testing.TB) drivertest.Site {
			s := newSite(tb)
			s.bad = true
			return s
		},
		Can: drivertest.Capabilities{HostFolders: true, Interleaved: true},
	})
}

// site has one agent for each transaction, like one machine for each.
type site struct {
	work, memory string
	bad          bool // cut the connections

	mu       sync.Mutex
	machines map[string]*machine // by id; guarded by mu
	steps    map[string]bool     // steps that may have started; guarded by mu
	removed  map[string]bool     // ids that a cleanup named; guarded by mu
}

var errCleanedUp = errors.New("the transaction has been cleaned up")

func newSite(tb testing.TB) *site {
	tb.Helper()
	s := &site{machines: map[string]*machine{}, steps: map[string]bool{}, removed: map[string]bool{}}
	s.work, s.memory = testbed.StageFolders(tb)
	return s
}

// machine is a running agent.
type machine struct {
	transaction string
	boot        *agent.Boot
	address     string
	agent       *agent.Agent
	local       *local.Driver
	server      *http.Server
	served      chan struct{}
	proxy       *proxy // nil for a reliable connection
	ended       func() error
	gone        chan struct{} // closed when it ends
}

func (s *site) newMachine(transaction string) (*machine, error) {
	d, err := local.New(local.Config{Host: host.Config{WorkDir: s.work, MemoryDir: s.memory}, Docker: local.DockerConfig{Host: "unix:///no/such/engine.sock"}})
	if err != nil {
		return nil, err
	}
	m := &machine{transaction: transaction, boot: &agent.Boot{}, local: d, served: make(chan struct{}), gone: make(chan struct{})}
	if m.boot.CA, m.boot.Cert, m.boot.Key, err = agent.Issue("", time.Now()); err != nil {
		return nil, err
	}
	cfg, err := m.boot.TLS()
	if err != nil {
		return nil, err
	}
	m.agent = agent.New(d, agent.Config{TempDir: s.work})
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m.address = l.Addr().String()
	if s.bad {
		if m.proxy, err = newProxy(m.address); err != nil {
			return nil, errors.Join(err, l.Close())
		}
		m.address = m.proxy.address()
		m.proxy.cutEvery(20 * time.Millisecond)
	}
	m.server = agent.Server(m.agent.Handler(), cfg)
	go func() {
		defer close(m.served)
		_ = m.server.ServeTLS(l, "", "")
	}()
	m.ended = sync.OnceValue(m.close)
	return m, nil
}

// end stops the machine once: two cleanups may run at the same time.
func (m *machine) end() error { return m.ended() }

func (m *machine) close() error {
	defer close(m.gone)
	err := errors.Join(m.agent.Close(context.Background()), m.server.Close())
	<-m.served
	if m.proxy != nil {
		m.proxy.close()
	}
	return errors.Join(err, m.local.Close())
}

// recordUnlessCleaned calls set unless a cleanup has named id.
func (s *site) recordUnlessCleaned(id string, set func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.removed[id] {
		set()
	}
	return !s.removed[id]
}

func (s *site) machine(id string) *machine {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machines[id]
}

func (s *site) Driver(tb testing.TB) driver.Driver {
	tb.Helper()
	return &remote{site: s, followers: map[string][]*agent.Follower{}, transports: map[string]*http.Transport{}}
}

// remote is a minimal driver that uses agents.
type remote struct {
	site *site

	mu         sync.Mutex
	followers  map[string][]*agent.Follower // by machine; guarded by mu
	transports map[string]*http.Transport   // by machine; guarded by mu
}

func (r *remote) Infra() string { return "agent" }

func (r *remote) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.transports {
		r.forget(id)
	}
	return nil
}

// forget removes the state of a machine. The caller holds mu.
func (r *remote) forget(id string) {
	for _, f := range r.followers[id] {
		f.Stop()
	}
	if t := r.transports[id]; t != nil {
		t.CloseIdleConnections()
	}
	delete(r.followers, id)
	delete(r.transports, id)
}

func (r *remote) client(id string) (*agent.Client, error) {
	m := r.site.machine(id)
	if m == nil {
		return nil, errors.New("there is no machine: the init has not run")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.transports[id] == nil {
		cfg, err := m.boot.ClientTLS("")
		if err != nil {
			return nil, err
		}
		r.transports[id] = agent.Transport(cfg)
	}
	c := agent.NewClient("https://"+m.address, r.transports[id])
	c.Gone = m.gone
	return c, nil
}

func labels(env *driver.Environment) map[string]string {
	l := maps.Clone(env.Labels)
	if l == nil {
		l = map[string]string{}
	}
	l[driver.LabelTransaction] = env.ID
	return l
}

func (r *remote) Init(ctx context.Context, env *driver.Environment, l driver.Ledger) error {
	id := "machine-" + rand.Text()
	if len(env.State) > 0 {
		id = string(bytes.Trim(env.State, `"`))
	}
	if r.site.machine(id) == nil {
		if err := l.Record(ctx, driver.Resource{Kind: "machine", ID: id, Labels: labels(env)}); err != nil {
			return err
		}
		m, err := r.site.newMachine(env.ID)
		if err != nil {
			return err
		}
		if !r.site.recordUnlessCleaned(id, func() { r.site.machines[id] = m }) {
			return errors.Join(errCleanedUp, m.end())
		}
	}
	c, err := r.client(id)
	if err != nil {
		return err
	}
	resp, err := c.Setup(ctx, &agent.SetupRequest{
		ID: env.ID, Labels: env.Labels, Network: env.Network, Volumes: env.Volumes, Envs: env.Envs, Files: env.Files, Clone: env.Clone,
	})
	if err != nil {
		return err
	}
	if env.Log != nil {
		_, _ = io.WriteString(env.Log, resp.Log)
	}
	env.State = []byte(`"` + id + `"`)
	return nil
}

func (r *remote) Execute(ctx context.Context, env *driver.Environment, step *driver.Step, out io.Writer, l driver.Ledger) (*driver.Result, error) {
	id := string(bytes.Trim(env.State, `"`))
	c, err := r.client(id)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	req := &agent.StartStepRequest{Step: step.Step, VolumesActual: step.ExtraVolumes, Conceal: step.SecretCommand, Key: rand.Text()}
	req.Environment = maps.Clone(env.Envs)
	if req.Environment == nil {
		req.Environment = map[string]string{}
	}
	maps.Copy(req.Environment, step.Environment)
	if err := l.Record(ctx, driver.Resource{Kind: "step", ID: req.Key, Labels: labels(env)}); err != nil {
		return nil, err
	}
	if !r.site.recordUnlessCleaned(req.Key, func() { r.site.steps[req.Key] = true }) {
		return nil, errCleanedUp
	}
	if !req.Detach {
		return c.Run(ctx, req, out)
	}
	res, f, err := c.Start(ctx, req, out)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.followers[id] = append(r.followers[id], f)
	r.mu.Unlock()
	return res, nil
}

func (r *remote) Cleanup(ctx context.Context, rs []driver.Resource) ([]driver.Resource, error) {
	var left []driver.Resource
	var errs []error
	for _, one := range rs {
		r.site.mu.Lock()
		r.site.removed[one.ID] = true
		r.site.mu.Unlock()
		err := ctx.Err()
		switch {
		case err != nil:
		case one.Kind == "step":
			r.site.mu.Lock()
			delete(r.site.steps, one.ID)
			r.site.mu.Unlock()
		case one.Kind == "machine":
			err = r.remove(ctx, one.ID)
		default:
			err = fmt.Errorf("kind %q is not known", one.Kind)
		}
		if err != nil {
			left, errs = append(left, one), append(errs, err)
		}
	}
	return left, errors.Join(errs...)
}

func (r *remote) remove(ctx context.Context, id string) error {
	m := r.site.machine(id)
	if m == nil {
		return nil
	}
	c, err := r.client(id)
	if err != nil {
		return err
	}
	if err := c.Destroy(ctx, &agent.DestroyRequest{}); err != nil {
		if errors.Is(err, agent.ErrGone) {
			return nil // another cleanup was faster
		}
		return err
	}
	r.mu.Lock()
	fs := r.followers[id]
	r.mu.Unlock()
	for _, f := range fs {
		<-f.Done() // by itself
	}
	r.mu.Lock()
	r.forget(id)
	r.mu.Unlock()
	r.site.mu.Lock()
	delete(r.site.machines, id)
	r.site.mu.Unlock()
	return m.end()
}

func (s *site) Running(tb testing.TB, transaction string) []string {
	tb.Helper()
	return testbed.ProcessesWith("environ", drivertest.TransactionVariable+"="+transaction+"\x00")
}

func (s *site) Remains(tb testing.TB, transaction string) []string {
	tb.Helper()
	found := testbed.FoldersOf(tb, transaction, s.work, s.memory)
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, m := range s.machines {
		if m.transaction == transaction {
			found = append(found, id)
		}
	}
	return found
}

func (s *site) Has(tb testing.TB, r driver.Resource) bool {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machines[r.ID] != nil || s.steps[r.ID]
}

func (s *site) Traces(tb testing.TB, text string) []string {
	tb.Helper()
	found := testbed.ProcessesWith("cmdline", text)
	return append(found, testbed.FilesWith(tb, s.work, text)...)
}
