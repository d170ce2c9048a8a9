package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/task/stage"
)

// Driver runs each transaction on a machine of its own (SPEC D6). It is safe for
// concurrent use. Use [New].
type Driver struct {
	pools  map[string]*Pool
	choose func(*driver.Environment) string
	// unreachable is what the option says.
	unreachable time.Duration

	mu     sync.Mutex
	links  map[string]*link // by claim; guarded by mu
	closed bool             // guarded by mu
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Finder     = (*Driver)(nil)
	_ driver.Reattacher = (*Driver)(nil)
	_ driver.Reserver   = (*Driver)(nil)
)

// Option sets up a [Driver].
type Option func(*Driver)

// WithChoice sets how the pool of a transaction is chosen: by its name, and ""
// means the first one. The default is what the network's option "pool_id" says,
// which is where the pool of a DLITE_CI_VM_INITIALIZE_TASK is.
func WithChoice(choose func(env *driver.Environment) string) Option {
	return func(d *Driver) { d.choose = choose }
}

// WithUnreachable sets how long the agent of a machine that runs, as its provider
// says, may be out of reach until the machine counts as dead. It must be positive. The default is 20
// seconds. A machine that does not run counts as dead at once.
func WithUnreachable(limit time.Duration) Option {
	return func(d *Driver) { d.unreachable = limit }
}

// New makes a driver on pools, which stay the caller's to start and to close.
func New(pools []*Pool, opts ...Option) (*Driver, error) {
	d := &Driver{pools: map[string]*Pool{}, links: map[string]*link{}, unreachable: 20 * time.Second}
	for _, p := range pools {
		if p == nil || d.pools[p.cfg.Name] != nil {
			return nil, errors.New("driver vm: each pool must be there once, with a name of its own")
		}
		d.pools[p.cfg.Name] = p
	}
	if len(pools) == 0 {
		return nil, errors.New("driver vm: there is no pool")
	}
	d.choose = func(env *driver.Environment) string { return env.Network.Options[stage.PoolOption] }
	for _, opt := range opts {
		opt(d)
	}
	if d.unreachable <= 0 {
		return nil, fmt.Errorf("driver vm: a machine may be out of reach for %v, which is not positive", d.unreachable)
	}
	byName, first := d.choose, pools[0].cfg.Name
	d.choose = func(env *driver.Environment) string {
		if name := byName(env); name != "" {
			return name
		}
		return first
	}
	return d, nil
}

// Infra is "vm".
func (d *Driver) Infra() string { return "vm" }

// Close ends the connections to machines and waits for what the driver still
// does for detached steps, whose output nobody reads any more. The machines stay
// claimed. No method may be called after it.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.closed = true
	links := slices.Collect(maps.Values(d.links))
	d.mu.Unlock()
	for _, l := range links {
		l.close()
	}
	return nil
}

// state is what Init leaves in an environment's state.
type state struct {
	Pool    string `json:"pool"`
	Machine string `json:"machine"`
	Claim   string `json:"claim"`
}

// Init claims a machine for the transaction and sets its agent up. It waits while
// the pool is exhausted, which env.Log is told; the end of ctx ends the wait. A
// second Init of an environment finds the machine of the first one.
func (d *Driver) Init(ctx context.Context, env *driver.Environment, l driver.Ledger) error {
	if err := d.init(ctx, env, l); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	return nil
}

func (d *Driver) init(ctx context.Context, env *driver.Environment, l driver.Ledger) error {
	if env.ID == "" {
		return errors.New("the transaction has no id")
	}
	if len(env.State) > 0 {
		h, err := d.open(env)
		if err != nil {
			return err
		}
		h.done()
		return nil
	}
	p, err := d.poolOf(env)
	if err != nil {
		return err
	}
	var way *link
	m, err := p.claim(ctx, env, l, func(ctx context.Context, m *machine, r *record) (err error) {
		if way != nil {
			way.close() // that to a machine that was not healthy
		}
		if way, err = d.newLink(p, m, r, m.gone); err != nil {
			return err
		}
		return way.check(ctx)
	})
	if err == nil && !d.keep(m.claim.Token, way) {
		err = errClosed
	}
	if err != nil {
		if way != nil {
			way.close()
		}
		return err
	}
	s := state{Pool: p.cfg.Name, Machine: m.id, Claim: m.claim.Token}
	h, err := d.hold(&s)
	if err != nil {
		d.forget(s.Claim)
		return err
	}
	defer h.done()
	if err := h.setup(ctx, env); err != nil {
		return h.explain(err)
	}
	env.State, err = json.Marshal(s)
	return err
}

// poolOf is the pool of a transaction. What it has reserved in another one is given
// back.
func (d *Driver) poolOf(env *driver.Environment) (*Pool, error) {
	name := d.choose(env)
	p := d.pools[name]
	if p == nil {
		return nil, fmt.Errorf("there is no pool %q; there are %q", name, slices.Sorted(maps.Keys(d.pools)))
	}
	for _, other := range d.pools {
		if other != p {
			other.unreserve(env.ID)
		}
	}
	return p, nil
}

// keep makes a link that of a claim.
func (d *Driver) keep(token string, way *link) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.links[token] = way
	return true
}

// handle is access to a claimed machine for one call.
type handle struct {
	way  *link
	done func()
}

// open finds the machine that Init has claimed.
func (d *Driver) open(env *driver.Environment) (*handle, error) {
	if len(env.State) == 0 {
		return nil, fmt.Errorf("transaction %q: its init has not run on this driver", env.ID)
	}
	s := &state{}
	if err := json.Unmarshal(env.State, s); err != nil {
		return nil, fmt.Errorf("transaction %q: read the driver's state: %w", env.ID, err)
	}
	h, err := d.hold(s)
	if err != nil {
		return nil, fmt.Errorf("transaction %q: %w", env.ID, err)
	}
	return h, nil
}

// hold gives access to a claimed machine until the handle is done.
func (d *Driver) hold(s *state) (*handle, error) {
	p := d.pools[s.Pool]
	if p == nil {
		return nil, fmt.Errorf("its machine is of pool %q, which is not configured", s.Pool)
	}
	held, err := p.hold(s.Machine, s.Claim)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	way := d.links[s.Claim]
	if way == nil && !d.closed {
		if way, err = d.newLink(p, held.machine, held.rec, held.gone); err == nil {
			d.links[s.Claim] = way
		}
	}
	if way == nil {
		held.done()
		return nil, errors.Join(err, errors.New("the driver is closed"))
	}
	return &handle{way: way, done: held.done}, nil
}

// explain adds why the machine is gone to an error that comes of it.
func (h *handle) explain(err error) error {
	if err == nil || !errors.Is(err, agent.ErrGone) {
		return err
	}
	p := h.way.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Errorf("machine %s of pool %s: %w: %w", h.way.machine.id, p.cfg.Name, err, h.way.machine.reason)
}

// setup tells the agent what the steps of the transaction share.
func (h *handle) setup(ctx context.Context, env *driver.Environment) error {
	resp, err := h.way.client.Setup(ctx, &agent.SetupRequest{
		ID: env.ID, Labels: env.Labels, Network: env.Network, Volumes: env.Volumes, Envs: env.Envs,
		Files: env.Files, Clone: env.Clone, MountDockerSocket: env.MountDockerSocket,
	})
	said := ""
	if answered := (*agent.Error)(nil); errors.As(err, &answered) {
		said = answered.Log
	} else if err == nil {
		said = resp.Log
	}
	if env.Log != nil && said != "" {
		_, _ = io.WriteString(env.Log, said)
	}
	return err
}
