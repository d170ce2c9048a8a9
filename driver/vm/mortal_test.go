package vm

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// life is the lifetime of a process. Calls of a dead process have no effect.
type life struct{ dead atomic.Bool }

var errKilled = errors.New("the process is dead")

// mortalProvider is the provider of one process.
type mortalProvider struct {
	*fakeProvider
	life *life
}

func (p *mortalProvider) Create(ctx context.Context, spec Spec) (Machine, error) {
	if p.life.dead.Load() {
		return Machine{}, errKilled
	}
	return p.fakeProvider.Create(ctx, spec)
}

func (p *mortalProvider) Destroy(ctx context.Context, id string) error {
	if p.life.dead.Load() {
		return errKilled
	}
	return p.fakeProvider.Destroy(ctx, id)
}

// disk stores records with delays. It fails before a write, or after it like a disk with an
// unknown result.
type disk struct {
	mu     sync.Mutex
	dice   *rand.Rand
	faults int // of a hundred calls that fail
	slow   time.Duration
	unsure bool // whether the records are correct
}

// heal stops the failures.
func (d *disk) heal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults, d.slow = 0, 0
}

// draw draws the durations of both halves of a call, and the failures.
func (d *disk) draw() (before, after time.Duration, refuse, doubt bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.slow > 0 {
		before, after = time.Duration(d.dice.Int64N(int64(d.slow))), time.Duration(d.dice.Int64N(int64(d.slow)))
	}
	bad := d.dice.IntN(100) < d.faults
	half := d.dice.IntN(2) == 0
	return before, after, bad && half, bad && !half
}

func (d *disk) open(l *life) func(ctx context.Context, dir string) (records, error) {
	return func(ctx context.Context, dir string) (records, error) {
		r, err := openFolder(ctx, dir)
		if err != nil {
			return nil, err
		}
		return &mortalRecords{r, l, d}, nil
	}
}

// mortalRecords are the records of one process.
type mortalRecords struct {
	records
	life *life
	disk *disk
}

func (r *mortalRecords) write(rec *record, durable bool) error {
	return r.do(durable, func() error { return r.records.write(rec, durable) })
}

func (r *mortalRecords) remove(id string) error {
	return r.do(false, func() error { return r.records.remove(id) })
}

func (r *mortalRecords) do(durable bool, act func() error) error {
	before, after, refuse, doubt := r.disk.draw()
	_ = pass(context.Background(), before)
	if r.life.dead.Load() {
		return errKilled
	}
	if refuse {
		return errUnlucky
	}
	err := act()
	_ = pass(context.Background(), after)
	if r.life.dead.Load() {
		return errKilled
	}
	if err == nil && doubt && durable {
		return errUnlucky
	}
	return err
}
