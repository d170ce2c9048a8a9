package vm

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// life is that of a process. Nothing that it does counts when it is dead.
type life struct{ dead atomic.Bool }

var errKilled = errors.New("the process is dead")

// mortalProvider is a provider as a process has it.
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

// disk is where records are. It takes its time, and fails before or, as a disk that
// cannot say whether all is written, after it has done what it was asked for.
type disk struct {
	mu     sync.Mutex
	dice   *rand.Rand
	faults int // of a hundred calls that fail
	slow   time.Duration
	unsure bool // whether what is on record is true
}

// heal makes it a good one.
func (d *disk) heal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults, d.slow = 0, 0
}

// luck draws how long both halves of a call take, and what fails.
func (d *disk) luck() (before, after time.Duration, refuse, doubt bool) {
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

// mortalRecords are records as a process has them.
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
	before, after, refuse, doubt := r.disk.luck()
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
