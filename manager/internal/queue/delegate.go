package queue

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Registration is what a delegate says about itself.
type Registration struct {
	// ID is the delegate's id, where it has one already.
	ID string
	// NewID is the id for a delegate that the account does not know by ID. Without
	// it, or when it is taken, [Queue.Register] makes one that no other delegate of
	// this queue ever had.
	NewID string
	// Name is for people, and a tag too.
	Name     string
	HostName string
	// Type and Version are for people.
	Type, Version string
	// Tags are what selectors ask for. They are compared without regard to case
	// and surrounding white space.
	Tags []string
	// Types are the task types that it runs, exactly. None means that it does
	// not tell and is trusted with every type.
	Types []string
	// Draining delegates get nothing new, but all that belongs to their stages.
	Draining bool
}

// DelegateState says whether a delegate can work.
type DelegateState string

// The states of a delegate.
const (
	Alive    DelegateState = "ALIVE"
	Draining DelegateState = "DRAINING"
	Gone     DelegateState = "LOST"
)

// Delegate is what the queue knows about a delegate.
type Delegate struct {
	Registration
	State DelegateState
	// Drained says that [Queue.SetDraining] drains it, whatever it says of itself.
	Drained bool
	// MaxStages bounds Stages, the stages that it has; 0 is unbounded.
	MaxStages, Stages int
	// Running counts the tasks that it has acquired and not answered.
	Running           int
	Registered        time.Time
	LastHeartbeatSeen time.Time
}

// delegate is a delegate. The queue's lock guards it.
type delegate struct {
	acc        *account
	info       Registration
	tags       map[string]bool
	types      map[string]bool // nil: all
	max        int             // stages, 0 is unbounded
	drained    bool            // by its manager
	lost       bool
	removed    bool   // and known only to the tasks that it had; it counts as lost
	order      uint64 // of registration
	registered instant
	seen       instant
	idleSince  instant
	timer      timer // until the next heartbeat, then until it is forgotten

	slots map[string]*work   // stages that hold a slot
	open  map[string]*record // tasks offered and acquired
	stops map[string]*record // tasks that it acquired and is to stop

	crew    *crew   // nil when it is removed
	seats   [2]seat // in the crew, by kind
	touched bool    // since account.settle
	counted tally   // in the crew

	version uint64        // of what it can see
	changed chan struct{} // closed at the next version; nil while nobody watches
}

// Register makes a delegate known and returns its id: a new one, unless the
// account knows a delegate by r.ID. Registering again is like a heartbeat and
// keeps what the delegate has.
func (q *Queue) Register(account string, r Registration) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	a := q.account(account)
	d := a.delegates[r.ID]
	if d == nil {
		d = newDelegate(a, q.number())
		d.registered, d.idleSince = now, now
		if r.ID = r.NewID; r.ID == "" || a.delegates[r.ID] != nil {
			r.ID = q.epoch + "-" + strconv.FormatUint(d.order, 36)
		}
		a.delegates[r.ID] = d
	}
	q.alive(d, r, now)
	return d.info.ID
}

func newDelegate(a *account, order uint64) *delegate {
	d := &delegate{
		acc: a, order: order,
		slots: map[string]*work{}, open: map[string]*record{}, stops: map[string]*record{},
	}
	d.seats[singles].d, d.seats[stages].d = d, d
	return d
}

// Heartbeat tells that a delegate is alive, and what may have changed about it:
// nil tags and types, and an empty name, host, type and version, are those of
// before. A lost delegate
// is back with it. It fails with [ErrUnknownDelegate].
func (q *Queue) Heartbeat(account string, r Registration) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	d, err := q.delegate(account, r.ID)
	if err != nil {
		return err
	}
	r.Name, r.HostName = cmp.Or(r.Name, d.info.Name), cmp.Or(r.HostName, d.info.HostName)
	r.Type, r.Version = cmp.Or(r.Type, d.info.Type), cmp.Or(r.Version, d.info.Version)
	if r.Tags == nil {
		r.Tags = d.info.Tags
	}
	if r.Types == nil {
		r.Types = d.info.Types
	}
	q.alive(d, r, q.now())
	return nil
}

// alive takes over what a delegate says and gives it work. The caller holds mu.
func (q *Queue) alive(d *delegate, r Registration, now instant) {
	d.describe(r)
	d.touch()
	before := q.next()
	if d.lost || d.seen == 0 { // back, or new
		q.present++
	}
	d.seen = now
	q.arm(d, now.after(q.cfg.HeartbeatTimeout))
	q.hurry(before)
	if d.lost {
		d.lost = false
		d.idleSince = now
		q.events = append(q.events, Event{Kind: Returned, At: now.time(), Account: d.acc.id, Delegate: d.info.ID})
	}
	q.refill(d, now)
}

// describe takes over what a delegate says about itself.
func (d *delegate) describe(r Registration) {
	old := d.info
	d.info, d.info.NewID = r, ""
	if d.crew != nil && r.Name == old.Name && slices.Equal(r.Tags, old.Tags) && slices.Equal(r.Types, old.Types) {
		d.info.Tags, d.info.Types = old.Tags, old.Types
		return
	}
	d.info.Tags, d.info.Types = slices.Clone(r.Tags), slices.Clone(r.Types)
	tags := map[string]bool{fold(r.Name): true}
	for _, t := range r.Tags {
		tags[fold(t)] = true
	}
	delete(tags, "") // no name, or an empty one in a list
	d.types = nil
	for _, t := range r.Types {
		if d.types == nil {
			d.types = make(map[string]bool, len(r.Types))
		}
		d.types[t] = true
	}
	d.acc.hold(d, tags)
	d.acc.crewUp(d)
}

// fold is the form in which tags and selectors are compared.
func fold(tag string) string { return strings.ToLower(strings.TrimSpace(tag)) }

// SetCapacity sets how many stages a delegate may have; 0 and below are
// unbounded, which is also how a delegate starts. Stages that are offered and
// do not fit any more go back to their places. It fails with
// [ErrUnknownDelegate].
func (q *Queue) SetCapacity(account, id string, maxStages int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	d, err := q.delegate(account, id)
	if err != nil {
		return err
	}
	now := q.now()
	d.max = max(maxStages, 0)
	d.touch()
	if offered := d.offered(); d.max > 0 && len(d.slots) > d.max {
		offered = slices.DeleteFunc(offered, func(w *work) bool { return !w.Stage })
		tooMany := min(len(d.slots)-d.max, len(offered))
		for _, w := range offered[len(offered)-tooMany:] {
			q.requeue(w, now)
		}
	}
	q.fill(d, now)
	return nil
}

// SetDraining drains a delegate or ends that, independent of what it says of itself:
// it gets nothing new, offers go back to their places, and it keeps what it has
// acquired. It fails with [ErrUnknownDelegate].
func (q *Queue) SetDraining(account, id string, draining bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	d, err := q.delegate(account, id)
	if err != nil {
		return err
	}
	d.drained = draining
	d.touch()
	q.refill(d, q.now())
	return nil
}

// refill makes what a delegate has fit to whether it takes anything. The caller holds
// mu.
func (q *Queue) refill(d *delegate, now instant) {
	if !d.takes() {
		q.withdraw(d, now)
	}
	q.fill(d, now)
}

// Unregister removes a delegate. What it was offered goes to others, what it
// had taken ends as [Abandoned]. It fails with [ErrUnknownDelegate].
func (q *Queue) Unregister(account, id string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	d, err := q.delegate(account, id)
	if err != nil {
		return err
	}
	q.remove(d, q.now(), fmt.Sprintf("the delegate %q has unregistered", d.label()))
	return nil
}

// Delegates are an account's delegates, lost ones included, in the order of
// their registration.
func (q *Queue) Delegates(account string) []Delegate {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.accounts[account]
	if a == nil || len(a.delegates) == 0 {
		return nil
	}
	out := make([]Delegate, 0, len(a.delegates))
	for _, d := range a.sorted() {
		v := Delegate{
			Registration: d.info, State: Alive, Drained: d.drained, MaxStages: d.max, Stages: len(d.slots),
			Registered: d.registered.time(), LastHeartbeatSeen: d.seen.time(),
		}
		v.Tags, v.Types = slices.Clone(v.Tags), slices.Clone(v.Types)
		switch {
		case d.lost:
			v.State = Gone
		case !d.takes():
			v.State = Draining
		}
		for _, r := range d.open {
			if r.state == acquired {
				v.Running++
			}
		}
		out = append(out, v)
	}
	return out
}

// sorted are the account's delegates in the order of their registration.
func (a *account) sorted() []*delegate {
	out := make([]*delegate, 0, len(a.delegates))
	for _, d := range a.delegates {
		out = append(out, d)
	}
	slices.SortFunc(out, byOrder)
	return out
}

func byOrder(x, y *delegate) int { return cmp.Compare(x.order, y.order) }

// id is empty for nobody.
func (d *delegate) id() string {
	if d == nil {
		return ""
	}
	return d.info.ID
}

// label is what people call the delegate.
func (d *delegate) label() string { return cmp.Or(d.info.Name, d.info.ID) }

// offered are the works that the delegate could take and has not, in their
// queue's order.
func (d *delegate) offered() []*work {
	var out []*work
	for _, r := range d.open {
		if r.state == offered && r == r.work.first {
			out = append(out, r.work)
		}
	}
	slices.SortFunc(out, (*work).compare)
	return out
}

// bump makes a held poll look again.
func (d *delegate) bump() {
	d.version++
	if d.changed != nil {
		close(d.changed)
		d.changed = nil
	}
}
