package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"sync"
)

// pool is a set of instances with one driver.
type pool struct {
	name   string
	driver driver
	size   int // warm instances
	limit  int // all instances
	idle   []*instance
	busy   map[string]*instance
}

// poolManager provisions instances for stages.
type poolManager struct {
	mu      sync.Mutex
	pools   map[string]*pool
	metrics *metrics
}

func newPoolManager(m *metrics) *poolManager {
	return &poolManager{pools: map[string]*pool{}, metrics: m}
}

// add makes a pool with warm instances.
func (m *poolManager) add(ctx context.Context, name string, d driver, size, limit int) error {
	p := &pool{name: name, driver: d, size: size, limit: limit, busy: map[string]*instance{}}
	for range size {
		in, err := d.create(ctx, name)
		if err != nil {
			return errors.Join(err, m.destroyList(ctx, p, p.idle))
		}
		p.idle = append(p.idle, in)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pools[name] != nil {
		return fmt.Errorf("the pool %s exists already", name)
	}
	m.pools[name] = p
	m.metrics.pool(name, len(p.idle), 0)
	return nil
}

func (m *poolManager) get(name string) (*pool, error) {
	p := m.pools[name]
	if p == nil {
		return nil, fmt.Errorf("%w: %s", errUnknownPool, name)
	}
	return p, nil
}

// provision takes a warm instance, or makes a new one.
func (m *poolManager) provision(ctx context.Context, name, stageID string) (*instance, error) {
	m.mu.Lock()
	p, err := m.get(name)
	if err != nil {
		m.mu.Unlock()
		return nil, err
	}
	if len(p.idle) > 0 {
		in := p.idle[0]
		p.idle = p.idle[1:]
		in.Stage = stageID
		p.busy[in.ID] = in
		m.metrics.pool(name, len(p.idle), len(p.busy))
		m.mu.Unlock()
		return in, nil
	}
	if len(p.busy) >= p.limit {
		m.mu.Unlock()
		return nil, errPoolFull
	}
	place := &instance{ID: "reserved-" + stageID} // keeps the place while the instance is made
	p.busy[place.ID] = place
	m.mu.Unlock()

	in, err := p.driver.create(ctx, name)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(p.busy, place.ID)
	if err != nil {
		return nil, fmt.Errorf("could not create an instance: %w", err)
	}
	in.Stage = stageID
	p.busy[in.ID] = in
	m.metrics.pool(name, len(p.idle), len(p.busy))
	return in, nil
}

// find returns the busy instance of a stage.
func (m *poolManager) find(name, id string) (*instance, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, err := m.get(name)
	if err != nil {
		return nil, err
	}
	in := p.busy[id]
	if in == nil {
		return nil, errGone
	}
	return in, nil
}

// destroy ends an instance and fills the pool up again.
func (m *poolManager) destroy(ctx context.Context, name, id string) error {
	m.mu.Lock()
	p, err := m.get(name)
	if err != nil {
		m.mu.Unlock()
		return err
	}
	in := p.busy[id]
	delete(p.busy, id)
	m.metrics.pool(name, len(p.idle), len(p.busy))
	m.mu.Unlock()
	if in == nil {
		return nil
	}
	if err := p.driver.destroy(ctx, in); err != nil {
		return fmt.Errorf("could not destroy the instance %s: %w", id, err)
	}
	m.refill(ctx, p)
	return nil
}

// refill makes warm instances until the pool has its size.
func (m *poolManager) refill(ctx context.Context, p *pool) {
	for {
		m.mu.Lock()
		full := len(p.idle) >= p.size || len(p.idle)+len(p.busy) >= p.limit
		m.mu.Unlock()
		if full {
			return
		}
		in, err := p.driver.create(ctx, p.name)
		if err != nil {
			log.Printf("could not refill the pool %s: %v", p.name, err)
			return
		}
		m.mu.Lock()
		p.idle = append(p.idle, in)
		m.metrics.pool(p.name, len(p.idle), len(p.busy))
		m.mu.Unlock()
	}
}

// clean destroys the warm instances.
func (m *poolManager) clean(ctx context.Context) error {
	var errs []error
	for _, p := range m.all() {
		m.mu.Lock()
		idle := p.idle
		p.idle = nil
		m.metrics.pool(p.name, 0, len(p.busy))
		m.mu.Unlock()
		errs = append(errs, m.destroyList(ctx, p, idle))
	}
	return errors.Join(errs...)
}

// destroyAll destroys all instances.
func (m *poolManager) destroyAll(ctx context.Context) {
	for _, p := range m.all() {
		m.mu.Lock()
		list := p.idle
		for _, in := range p.busy {
			list = append(list, in)
		}
		p.idle, p.busy = nil, map[string]*instance{}
		m.mu.Unlock()
		if err := m.destroyList(ctx, p, list); err != nil {
			log.Printf("could not destroy the pool %s: %v", p.name, err)
		}
	}
}

func (m *poolManager) destroyList(ctx context.Context, p *pool, list []*instance) error {
	var errs []error
	for _, in := range list {
		errs = append(errs, p.driver.destroy(ctx, in))
	}
	return errors.Join(errs...)
}

func (m *poolManager) all() []*pool {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []*pool
	for _, p := range m.pools {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b *pool) int {
		if a.name < b.name {
			return -1
		}
		return 1
	})
	return list
}

// free returns how many more stages fit into a pool.
func (m *poolManager) free(name string) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, err := m.get(name)
	if err != nil {
		return 0, err
	}
	return p.limit - len(p.busy), nil
}

// poolStatus is the state of a pool.
type poolStatus struct {
	Name  string   `json:"name"`
	Idle  int      `json:"idle"`
	Busy  []string `json:"busy"`
	Limit int      `json:"limit"`
}

func (m *poolManager) status() []poolStatus {
	var list []poolStatus
	for _, p := range m.all() {
		m.mu.Lock()
		s := poolStatus{Name: p.name, Idle: len(p.idle), Limit: p.limit, Busy: []string{}}
		for _, in := range p.busy {
			s.Busy = append(s.Busy, in.Stage)
		}
		m.mu.Unlock()
		slices.Sort(s.Busy)
		list = append(list, s)
	}
	return list
}
