package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/agent"
)

// fakeProvider has machines in memory. With delays and failure rates it is as slow and unreliable
// as a cloud.
type fakeProvider struct {
	max int    // of machines that may be there at once, 0 for any number
	dir string // the pool's state folder

	mu      sync.Mutex
	dice    *rand.Rand
	faults  int               // of a hundred calls that fail
	slow    time.Duration     // the longest that a call takes
	owned   map[string]string // of all that is there, in part or as a whole
	dead    map[string]bool
	under   map[string]bool // Create or Destroy is under way
	broken  []string        // broken rules of the pool
	created int
	mute    bool // agents do not answer
	notices map[string]*agent.Interruption
}

func newFake(seed uint64) *fakeProvider {
	return &fakeProvider{
		dice: rand.New(rand.NewPCG(seed, 0)), owned: map[string]string{}, dead: map[string]bool{}, under: map[string]bool{},
	}
}

func (f *fakeProvider) Name() string { return "fake" }

// draw draws the duration of a call and whether it fails.
func (f *fakeProvider) draw() (time.Duration, bool) {
	var d time.Duration
	if f.slow > 0 {
		d = time.Duration(f.dice.Int64N(int64(f.slow)))
	}
	return d, f.dice.IntN(100) < f.faults
}

var errUnlucky = errors.New("the cloud had a bad day")

func pass(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *fakeProvider) Create(ctx context.Context, spec Spec) (Machine, error) {
	f.mu.Lock()
	d, bad := f.draw()
	half := f.dice.IntN(2) == 0 // of a failure: something is there already
	if f.max > 0 && len(f.owned) >= f.max {
		f.broken = append(f.broken, fmt.Sprintf("machine %d of %d", len(f.owned)+1, f.max))
	}
	if f.owned[spec.ID] != "" || f.under[spec.ID] {
		f.broken = append(f.broken, "the same machine twice")
	}
	if b, err := os.ReadFile(filepath.Join(f.dir, spec.ID+recordSuffix)); err != nil || !bytes.Contains(b, []byte(`"phase":"creating"`)) {
		f.broken = append(f.broken, "a machine before its record")
	}
	if len(spec.Boot()) == 0 {
		f.broken = append(f.broken, "nothing to boot with")
	}
	f.owned[spec.ID] = spec.Owner // counts from here on
	f.under[spec.ID] = true
	f.created++
	f.mu.Unlock()
	err := pass(ctx, d)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.under, spec.ID)
	if err == nil && bad {
		err = errUnlucky
	}
	if err != nil {
		if !half {
			delete(f.owned, spec.ID)
		}
		return Machine{}, err
	}
	return Machine{Address: spec.ID, Created: time.Now()}, nil
}

func (f *fakeProvider) Destroy(ctx context.Context, id string) error {
	f.mu.Lock()
	d, bad := f.draw()
	if f.under[id] {
		f.broken = append(f.broken, "destroyed while it is made or destroyed")
	}
	f.under[id] = true
	f.mu.Unlock()
	err := pass(ctx, d)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.under, id)
	if err == nil && bad {
		err = errUnlucky
	}
	if err == nil {
		delete(f.owned, id)
		delete(f.dead, id)
	}
	return err
}

func (f *fakeProvider) Alive(_ context.Context, id string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.owned[id] != "" && !f.dead[id], nil
}

func (f *fakeProvider) List(_ context.Context, owner string) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ids []string
	for id, o := range f.owned {
		if o == owner {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// probe simulates the agent of a machine.
func (f *fakeProvider) probe(_ context.Context, r *record) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.owned[r.Address] == "" || f.dead[r.Address] || f.mute {
		return errors.New("connection refused")
	}
	return interrupted(f.notices[r.Address])
}

func (f *fakeProvider) set(change func(f *fakeProvider)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fakeProvider) there() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.owned)
}

// notes is a transaction's ledger in memory.
type notes struct {
	mu      sync.Mutex
	records []driver.Resource
	before  func(r driver.Resource) error
}

func (n *notes) Record(_ context.Context, r driver.Resource) error {
	if n.before != nil {
		if err := n.before(r); err != nil {
			return err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.records = append(n.records, r)
	return nil
}
