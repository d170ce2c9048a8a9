package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/delegate-io/dlite/driver"
)

// move is a step of the model.
type move struct {
	Kind string
	N    int
}

// modelTest is a pool with a provider in memory, in a bubble with its own clock.
type modelTest struct {
	fake *fakeProvider
	cfg  PoolConfig
	pool *Pool
	// life is the lifetime of the process that has the pool.
	life *life
	disk *disk
	// noOrder is set if a transaction with an unfinished claim may be overtaken.
	noOrder bool

	asked []*claimRequest // in the order of their requests
	turns int             // number of requests and reservations so far
	// kept are the active reservations that no init has used.
	kept map[string]*modelReservation
}

// modelReservation is a reservation from its owner's view.
type modelReservation struct {
	position int
	until    time.Time
	// restarted is set after another process took the reservation over, in its own order.
	restarted bool
}

// claimRequest is a transaction that wants a machine. With a reservation it has the position of the reservation.
type claimRequest struct {
	n        int
	position int
	noOrder  bool // another process has taken its reservation over
	cancel   context.CancelFunc
	done     chan struct{}
	m        *machine
	err      error
	unlucky  bool        // was given a machine that was dead
	over     bool        // cancelled, or has given it back
	gone     atomic.Bool // nothing of it is left, says the pool
	ledger   notes
}

func (mt *modelTest) waiting() (ws []*claimRequest) {
	for _, a := range mt.asked {
		if closed(a.done) {
			continue
		}
		ws = append(ws, a)
	}
	return ws
}

func (mt *modelTest) holding() (hs []*claimRequest) {
	for _, a := range mt.asked {
		if closed(a.done) && a.err == nil && !a.over {
			hs = append(hs, a)
		}
	}
	return hs
}

func closed(done chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func (mt *modelTest) open(ctx context.Context) error {
	var err error
	mt.life = &life{}
	if mt.pool, err = NewPool(&mortalProvider{mt.fake, mt.life}, mt.cfg); err != nil {
		return err
	}
	mt.pool.probe = mt.fake.probe
	mt.pool.dial = nil
	mt.pool.open = mt.disk.open(mt.life)
	return mt.pool.Start(ctx)
}

// ask starts the init of a transaction. An empty name has no reservation.
func (mt *modelTest) ask(ctx context.Context, transaction string) {
	ctx, cancel := context.WithCancel(ctx)
	a := &claimRequest{n: len(mt.asked), position: mt.position(), cancel: cancel, done: make(chan struct{})}
	if r := mt.kept[transaction]; r != nil {
		a.position, a.noOrder = r.position, r.restarted
		delete(mt.kept, transaction)
	}
	if transaction == "" {
		transaction = fmt.Sprintf("transaction %d", a.n)
	}
	mt.asked = append(mt.asked, a)
	pool := mt.pool
	go func() {
		env := &driver.Environment{ID: transaction}
		a.m, a.err = pool.claim(ctx, env, &a.ledger, func(ctx context.Context, m *machine, r *record) error {
			err := mt.fake.probe(ctx, r)
			a.unlucky = a.unlucky || err != nil
			return err
		})
		close(a.done)
		if a.err != nil {
			a.giveBack(context.WithoutCancel(ctx), pool)
		}
	}()
}

func (mt *modelTest) position() int {
	mt.turns++
	return mt.turns
}

// reserve reserves a machine for a limited time, for a new transaction.
func (mt *modelTest) reserve(ctx context.Context, limit time.Duration) error {
	position := mt.position()
	id := fmt.Sprintf("reserved %d", position)
	var first *driver.Reservation
	// A second call changes nothing, but a machine may be ready by then.
	for begin := time.Now(); first == nil || time.Now().Equal(begin); {
		r, err := mt.pool.reserve(ctx, id, limit)
		if err != nil {
			return err
		}
		again := first != nil
		if first == nil {
			first = r
		}
		kept := first.Machine == "" || r.Machine == first.Machine
		if !kept || r.Place > first.Place || r.Until != begin.Add(limit) || (r.Machine == "") != (r.Place > 0) {
			return fmt.Errorf("reserved %+v, then %+v", first, r)
		}
		if again {
			break
		}
	}
	mt.kept[id] = &modelReservation{position: position, until: first.Until}
	return nil
}

// oneKept returns one of the reservations.
func (mt *modelTest) oneKept(n int) string {
	ids := slices.Sorted(maps.Keys(mt.kept))
	if len(ids) == 0 {
		return ""
	}
	return ids[n%len(ids)]
}

// restarted cleans up ended transactions. It keeps the reservations with a machine, which the new
// process must know.
func (mt *modelTest) restarted(ctx context.Context) {
	for _, a := range mt.asked {
		if closed(a.done) && !a.gone.Load() && (a.err != nil || a.over) {
			mt.cleanUp(ctx, a)
		}
	}
	mt.pool.mu.Lock()
	defer mt.pool.mu.Unlock()
	for id, r := range mt.kept {
		if mt.pool.reservations[id] == nil {
			delete(mt.kept, id)
		}
		r.restarted = true
	}
	for id, r := range mt.pool.reservations {
		if mt.kept[id] == nil && mt.disk.unsure {
			// The end was not recorded.
			mt.kept[id] = &modelReservation{until: r.until, restarted: true}
		}
	}
}

// crash kills the pool's process and starts another one, which cleans up ended transactions.
func (mt *modelTest) crash(ctx context.Context) error {
	mt.disk.unsure = true
	mt.life.dead.Store(true)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_ = mt.pool.Close(ended) // releases its goroutines and its lock
	for _, a := range mt.waiting() {
		a.cancel()
		<-a.done
	}
	synctest.Wait()
	if err := mt.open(ctx); err != nil {
		return err
	}
	mt.restarted(ctx)
	return nil
}

// cleanUp ends a transaction.
func (mt *modelTest) cleanUp(ctx context.Context, a *claimRequest) {
	a.over = true
	pool := mt.pool
	go a.giveBack(ctx, pool)
}

// giveBack cleans up the resources in a transaction's ledger. The pool retries failures.
func (a *claimRequest) giveBack(ctx context.Context, p *Pool) {
	left := false
	for _, r := range a.ledger.records {
		var data machineData
		err := json.Unmarshal(r.Data, &data)
		if err == nil {
			err = p.release(ctx, r.ID, data.Claim, func(ctx context.Context, _ *machine, r *record) error { return p.probe(ctx, r) })
		}
		left = left || err != nil
	}
	if !left {
		a.gone.Store(true)
	}
}

// checkReservations compares the model's reservations with the pool's.
func (mt *modelTest) checkReservations() error {
	for id, r := range mt.kept {
		if !time.Now().Before(r.until) {
			delete(mt.kept, id)
		}
	}
	held := map[string]bool{}
	for _, a := range mt.holding() {
		held[a.m.id] = true
	}
	mt.pool.mu.Lock()
	defer mt.pool.mu.Unlock()
	for id, r := range mt.pool.reservations {
		if mt.kept[id] == nil {
			return fmt.Errorf("%s is kept and should not be", id)
		}
		if r.machine != nil && (held[r.machine.id] || r.machine.reservation != r) {
			return fmt.Errorf("the machine of %s belongs to another transaction", id)
		}
	}
	if len(mt.pool.reservations) != len(mt.kept) {
		return fmt.Errorf("reservations are lost: there should be %d and are %d", len(mt.kept), len(mt.pool.reservations))
	}
	return nil
}

func (mt *modelTest) make(ctx context.Context, mv move) error {
	switch mv.Kind {
	case "ask":
		mt.ask(ctx, "")
	case "reserve":
		return mt.reserve(ctx, time.Duration(1+mv.N*10)*time.Second)
	case "come":
		if id := mt.oneKept(mv.N); id != "" {
			mt.ask(ctx, id)
		}
	case "unreserve":
		if id := mt.oneKept(mv.N); id != "" {
			delete(mt.kept, id)
			return (&Driver{pools: map[string]*Pool{"": mt.pool}}).Unreserve(ctx, id)
		}
	case "give back":
		if hs := mt.holding(); len(hs) > 0 {
			mt.cleanUp(ctx, hs[mv.N%len(hs)])
		}
	case "cancel":
		if ws := mt.waiting(); len(ws) > 0 {
			ws[mv.N%len(ws)].cancel()
		}
	case "kill":
		mt.fake.set(func(f *fakeProvider) {
			ids := make([]string, 0, len(f.owned))
			for id := range f.owned {
				ids = append(ids, id)
			}
			slices.Sort(ids)
			if len(ids) > 0 {
				f.dead[ids[mv.N%len(ids)]] = true
			}
		})
	case "wait":
		return pass(ctx, time.Duration(mv.N)*time.Second)
	case "crash":
		return mt.crash(ctx)
	case "restart":
		for _, a := range mt.waiting() {
			a.cancel()
			<-a.done
		}
		bounded, cancel := context.WithTimeout(ctx, time.Duration(mv.N)*time.Second)
		defer cancel()
		_ = mt.pool.Close(bounded) // the next pool finishes the rest
		if err := mt.open(ctx); err != nil {
			return err
		}
		mt.restarted(ctx)
	}
	return nil
}

// check checks the invariants.
func (mt *modelTest) check() error {
	synctest.Wait()
	s := mt.pool.Stats()
	if all := s.Warm + s.Reserved + s.Claimed + s.Creating + s.Destroying; all > mt.cfg.Max {
		return fmt.Errorf("%d machines of %d: %+v", all, mt.cfg.Max, s)
	}
	if s.Warm > 0 && s.Waiting > 0 {
		return fmt.Errorf("a transaction waits although a machine is warm: %+v", s)
	}
	if err := mt.checkReservations(); err != nil {
		return err
	}
	mt.fake.mu.Lock()
	defer mt.fake.mu.Unlock()
	if len(mt.fake.broken) > 0 {
		return fmt.Errorf("the pool broke a rule: %v", mt.fake.broken)
	}
	// No transaction is served before one that asked earlier.
	first := mt.turns + 1
	for _, a := range mt.waiting() {
		if !a.unlucky && !a.noOrder {
			first = min(first, a.position)
		}
	}
	for _, a := range mt.holding() {
		if a.position > first && !a.noOrder && !mt.noOrder {
			return fmt.Errorf("%d has a machine and %d, which asked before, waits", a.position, first)
		}
	}
	held := map[string]int{}
	for _, a := range mt.holding() {
		held[a.m.id]++
		if held[a.m.id] > 1 {
			return fmt.Errorf("machine %s is claimed twice", a.m.id)
		}
	}
	return nil
}

// finish ends all transactions and stops all failures. It requires a full pool, and that nothing
// remains when the pool is closed.
func (mt *modelTest) finish(ctx context.Context) error {
	mt.fake.set(func(f *fakeProvider) { f.faults = 0 })
	mt.disk.heal()
	for range 3*len(mt.asked) + 3 { // in which reservations end, too
		for _, a := range mt.holding() {
			mt.cleanUp(ctx, a)
		}
		if err := pass(ctx, 5*time.Minute); err != nil {
			return err
		}
		if err := mt.check(); err != nil {
			return err
		}
		if len(mt.waiting())+len(mt.holding()) == 0 {
			break
		}
	}
	if n := len(mt.waiting()); n > 0 {
		return fmt.Errorf("%d still wait: %+v", n, mt.pool.Stats())
	}
	// The pool replaces old machines all the time, so it is not full at every moment.
	for range 100 {
		if err := pass(ctx, 7*time.Second); err != nil {
			return err
		}
		synctest.Wait()
		if s := mt.pool.Stats(); s.Warm >= mt.cfg.Min && s.Reserved+s.Claimed+s.Creating+s.Destroying+s.Waiting == 0 {
			return mt.end(ctx)
		}
	}
	return fmt.Errorf("the pool is not full and quiet again: %+v", mt.pool.Stats())
}

// end closes an idle pool.
func (mt *modelTest) end(ctx context.Context) error {
	if there, s := mt.fake.there(), mt.pool.Stats(); there != s.Warm {
		return fmt.Errorf("%d machines are there, the pool has %d", there, s.Warm)
	}
	records, err := filepath.Glob(filepath.Join(mt.cfg.Dir, "dlite-*"))
	if err != nil || len(records) != mt.pool.Stats().Warm {
		return fmt.Errorf("records %v, machines %+v (%w)", records, mt.pool.Stats(), err)
	}
	all, err := mt.pool.records.read()
	if err != nil || !mt.disk.unsure && slices.ContainsFunc(all, func(r *record) bool { return r.Reserved != nil }) {
		return fmt.Errorf("reservations are left on record (%w)", err)
	}
	mt.pool.cfg.KeepWarm = false
	if err := mt.pool.Close(ctx); err != nil {
		return err
	}
	if there := mt.fake.there(); there > 0 {
		return fmt.Errorf("%d machines are left", there)
	}
	left, err := filepath.Glob(filepath.Join(mt.cfg.Dir, "dlite-*"))
	if err != nil || len(left) > 0 {
		return fmt.Errorf("records are left: %v (%w)", left, err)
	}
	return nil
}

func (mt *modelTest) run(ctx context.Context, moves []move) error {
	if err := mt.open(ctx); err != nil {
		return err
	}
	defer func() { _ = mt.pool.Close(ctx) }()
	for i, mv := range moves {
		if err := mt.make(ctx, mv); err != nil {
			return fmt.Errorf("move %d, %v: %w", i, mv, err)
		}
		if err := mt.check(); err != nil {
			return fmt.Errorf("after move %d, %v: %w", i, mv, err)
		}
	}
	return mt.finish(ctx)
}

// Rules D6 and T2: after any sequence of calls, failures of provider and disk, and kills of
// the process, these rules hold. There are never too many machines, and none is lost or
// claimed twice. Requests are served in their order. A reserved machine is kept for its owner
// until the reservation ends. Finally the pool is full again.
func TestThePoolKeepsItsPromises(t *testing.T) {
	t.Parallel()
	kinds := []string{"reserve", "reserve", "come", "come", "unreserve", "ask", "ask", "ask", "give back", "give back", "cancel", "kill", "wait", "wait", "restart", "crash"}
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(inMemory(), "dlite-model-")
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(dir) //nolint:errcheck // it is a temporary one
		cfg := PoolConfig{Name: "model", Dir: dir, Max: rapid.IntRange(1, 6).Draw(rt, "max"), KeepWarm: true}
		cfg.Min = rapid.IntRange(0, cfg.Max).Draw(rt, "min")
		cfg.Parallel = rapid.IntRange(1, 3).Draw(rt, "parallel")
		cfg.MaxUses = rapid.IntRange(0, 3).Draw(rt, "uses")
		cfg.MaxIdle = time.Duration(rapid.SampledFrom([]int{0, 120, 600}).Draw(rt, "idle")) * time.Second
		cfg.MaxAge = time.Duration(rapid.SampledFrom([]int{0, 300, 900}).Draw(rt, "age")) * time.Second
		fake := newFake(rapid.Uint64().Draw(rt, "seed"))
		fake.faults = rapid.SampledFrom([]int{0, 10, 50}).Draw(rt, "faults")
		fake.slow = time.Duration(rapid.IntRange(0, 20).Draw(rt, "slow")) * time.Second
		fake.max, fake.dir = cfg.Max, dir
		d := &disk{dice: rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "disk"), 0))}
		d.faults = rapid.SampledFrom([]int{0, 0, 20}).Draw(rt, "disk faults")
		d.slow = time.Duration(rapid.SampledFrom([]int{0, 0, 5}).Draw(rt, "slow disk")) * time.Second
		d.unsure = d.faults > 0
		moves := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) move {
			return move{rapid.SampledFrom(kinds).Draw(rt, "kind"), rapid.IntRange(0, 60).Draw(rt, "n")}
		}), 1, 60).Draw(rt, "moves")
		var failure error
		synctest.Test(t, func(t *testing.T) {
			failure = (&modelTest{fake: fake, cfg: cfg, disk: d, noOrder: d.slow > 0, kept: map[string]*modelReservation{}}).run(context.WithoutCancel(t.Context()), moves)
		})
		if failure != nil {
			rt.Fatal(failure)
		}
	})
}

// inMemory returns a directory in memory, or "": waiting for a disk would take most of the test's
// time.
func inMemory() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return ""
}
