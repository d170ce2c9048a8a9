package vm

import (
	"cmp"
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

// Driver runs each transaction on its own machine (rule D6). It is safe for concurrent use. Create
// it with [New].
type Driver struct {
	pools map[string]*Pool
	first string // the name of the pool of transactions that choose none
	// unreachable is how long the agent of a running machine may be unreachable until the
	// machine counts as dead. A machine that does not run counts as dead at once.
	unreachable time.Duration

	mu     sync.Mutex
	links  map[string]*link // by claim token; guarded by mu
	closed bool             // guarded by mu
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Finder     = (*Driver)(nil)
	_ driver.Reattacher = (*Driver)(nil)
	_ driver.Reserver   = (*Driver)(nil)
)

// New returns a driver on pools. The network option "pool_id" of a transaction, where a
// DLITE_CI_VM_INITIALIZE_TASK has its pool, is the name of its pool. Without it the transaction
// gets the first pool. The caller starts and closes the pools.
func New(pools []*Pool) (*Driver, error) {
	d := &Driver{pools: map[string]*Pool{}, links: map[string]*link{}, unreachable: 20 * time.Second}
	for _, p := range pools {
		if p == nil || d.pools[p.cfg.Name] != nil {
			return nil, errors.New("driver vm: each pool needs a unique name")
		}
		d.pools[p.cfg.Name] = p
	}
	if len(pools) == 0 {
		return nil, errors.New("driver vm: no pool is configured")
	}
	d.first = pools[0].cfg.Name
	return d, nil
}

// Infra returns "vm".
func (d *Driver) Infra() string { return "vm" }

// Close closes the connections to machines. It stops copying the output of detached steps. The
// machines stay claimed. No method may be called after Close.
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

// state is the part of an environment's state that Init sets.
type state struct {
	Pool    string `json:"pool"`
	Machine string `json:"machine"`
	Claim   string `json:"claim"`
}

// Init claims a machine for the transaction and sets up its agent. If the pool is exhausted, Init
// reports that to env.Log and waits until ctx ends. A second Init of an environment returns
// without claiming another machine.
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
	var lk *link
	m, err := p.claim(ctx, env, l, func(ctx context.Context, m *machine, r *record) (err error) {
		if lk != nil {
			lk.close() // belongs to a machine that was not healthy
		}
		if lk, err = d.newLink(p, m, r, m.gone); err != nil {
			return err
		}
		return lk.check(ctx)
	})
	if err == nil && !d.addLink(m.claim.Token, lk) {
		err = errClosed
	}
	if err != nil {
		if lk != nil {
			lk.close()
		}
		return err
	}
	s := state{Pool: p.cfg.Name, Machine: m.id, Claim: m.claim.Token}
	h, err := d.hold(&s)
	if err != nil {
		d.closeLink(s.Claim)
		return err
	}
	defer h.done()
	if err := h.setup(ctx, env); err != nil {
		return h.explain(err)
	}
	env.State, err = json.Marshal(s)
	return err
}

// poolOf returns the pool of a transaction. It ends the transaction's reservations in other pools.
func (d *Driver) poolOf(env *driver.Environment) (*Pool, error) {
	name := cmp.Or(env.Network.Options[stage.PoolOption], d.first)
	p := d.pools[name]
	if p == nil {
		return nil, fmt.Errorf("unknown pool %q: the pools are %q", name, slices.Sorted(maps.Keys(d.pools)))
	}
	for _, other := range d.pools {
		if other != p {
			other.unreserve(env.ID)
		}
	}
	return p, nil
}

// addLink registers the link of a claim. It returns false if the driver is closed.
func (d *Driver) addLink(token string, lk *link) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.links[token] = lk
	return true
}

// handle is access to a claimed machine for one call.
type handle struct {
	link *link
	done func()
}

// open returns access to the machine that Init claimed.
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

// hold gives access to a claimed machine until the handle's done is called.
func (d *Driver) hold(s *state) (*handle, error) {
	p := d.pools[s.Pool]
	if p == nil {
		return nil, fmt.Errorf("its machine belongs to pool %q, which is not configured", s.Pool)
	}
	held, err := p.hold(s.Machine, s.Claim)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	lk := d.links[s.Claim]
	if lk == nil && !d.closed {
		if lk, err = d.newLink(p, held.machine, held.rec, held.gone); err == nil {
			d.links[s.Claim] = lk
		}
	}
	if lk == nil {
		held.done()
		return nil, errors.Join(err, errors.New("the driver is closed"))
	}
	return &handle{link: lk, done: held.done}, nil
}

// explain adds the reason of a machine's end to an error that it caused.
func (h *handle) explain(err error) error {
	if err == nil || !errors.Is(err, agent.ErrGone) {
		return err
	}
	p := h.link.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := isInterrupted(h.link.machine.reason); ok { // first, because its kind of failure counts
		return fmt.Errorf("machine %s of pool %s: %w (%w)", h.link.machine.id, p.cfg.Name, h.link.machine.reason, err)
	}
	return fmt.Errorf("machine %s of pool %s: %w: %w", h.link.machine.id, p.cfg.Name, err, h.link.machine.reason)
}

// setup sends the agent the environment that the transaction's steps share.
func (h *handle) setup(ctx context.Context, env *driver.Environment) error {
	began := time.Now()
	resp, err := h.link.client.Setup(ctx, &agent.SetupRequest{
		ID: env.ID, Labels: env.Labels, Network: env.Network, Volumes: env.Volumes, Envs: env.Envs,
		Files: env.Files, Clone: env.Clone, MountDockerSocket: env.MountDockerSocket,
	})
	if env.Clone != nil { // nearly all of a setup with a clone
		env.CloneBegan, env.CloneEnded = began, time.Now()
	}
	log := ""
	if answered := (*agent.Error)(nil); errors.As(err, &answered) {
		log = answered.Log
	} else if err == nil {
		log = resp.Log
	}
	if env.Log != nil && log != "" {
		_, _ = io.WriteString(env.Log, log)
	}
	return err
}
