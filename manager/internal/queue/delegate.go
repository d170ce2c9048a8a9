package queue

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Registration is what a delegate reports about itself.
type Registration struct {
	// ID is the delegate's id, if it has one already.
	ID string
	// NewID is the id for a delegate that the account does not know by ID. If NewID is
	// empty or taken, [Queue.Register] makes an id that no other delegate of this queue
	// ever had.
	NewID string
	// Name is for people, and a tag too.
	Name     string
	HostName string
	// Type and Version are for people.
	Type, Version string
	// Tags are what selectors ask for. The queue compares them without regard to case
	// and surrounding white space.
	Tags []string
	// Types are the task types that the delegate supports, exactly. Without any, the
	// delegate gets tasks of every type.
	Types []string
	// Draining delegates get nothing new, but all further tasks of their stages.
	Draining bool
}

// DelegateState is whether a delegate can work.
type DelegateState string

// The states of a delegate.
const (
	Alive    DelegateState = "ALIVE"
	Draining DelegateState = "DRAINING"
	Gone     DelegateState = "LOST"
)

// Delegate is the state of a delegate.
type Delegate struct {
	Registration
	State DelegateState
	// Drained is set by [Queue.SetDraining], whatever the delegate reports.
	Drained bool
	// MaxStages bounds Stages, the stages that the delegate has. 0 is unbounded.
	MaxStages, Stages int
	// Running counts the tasks that the delegate has acquired and not answered.
	Running           int
	Registered        time.Time
	LastHeartbeatSeen time.Time
}

// delegate is a delegate. The queue's lock guards it.
type delegate struct {
	account    *account
	info       Registration
	tags       map[string]bool // folded
	types      map[string]bool // nil: all
	max        int             // stages, 0 is unbounded
	drained    bool            // by SetDraining
	lost       bool
	removed    bool   // it is not in account.delegates any more; it is lost too
	order      uint64 // of registration
	registered instant
	seen       instant
	idleSince  instant
	due        instant // of the next heartbeat; for a lost one, when it is forgotten

	slots map[string]*work   // stages that hold a slot
	open  map[string]*record // tasks that are offered or acquired
	stops map[string]*record // tasks that it acquired and is to stop

	holds   []*tag  // tags, and the one that all delegates have
	ranks   [2]rank // by kind, its places in the shards
	ranked  [2]bool // by kind, whether it is a candidate
	touched bool    // since the last updateRanks

	version uint64        // of its list
	changed chan struct{} // closed at the next version; nil until a caller asks for it
}

// Register makes a delegate known and returns its id. The id is a new one unless the
// account knows a delegate by r.ID. Registering again is like a heartbeat: the delegate
// keeps what it has.
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
	q.hear(d, r, now)
	return d.info.ID
}

func newDelegate(a *account, order uint64) *delegate {
	return &delegate{
		account: a, order: order,
		slots: map[string]*work{}, open: map[string]*record{}, stops: map[string]*record{},
	}
}

// Heartbeat reports that a delegate is alive, and what has changed about it. Nil tags
// and types, and an empty name, host, type and version, mean no change. A lost delegate
// is back. Heartbeat fails with [ErrUnknownDelegate].
func (q *Queue) Heartbeat(account string, r Registration) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	d, err := q.delegate(account, r.ID)
	if err != nil {
		return err
	}
	q.hear(d, d.info.merge(r), q.now())
	return nil
}

// Unchanged reports whether r repeats what the delegate reported before, so that a
// heartbeat with the ID and Draining alone does the same.
func (q *Queue) Unchanged(account string, r Registration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	d, err := q.delegate(account, r.ID)
	return err == nil && d.info.describes(d.info.merge(r))
}

// merge returns r with the values of i where r leaves them out.
func (i *Registration) merge(r Registration) Registration {
	r.Name, r.HostName = cmp.Or(r.Name, i.Name), cmp.Or(r.HostName, i.HostName)
	r.Type, r.Version = cmp.Or(r.Type, i.Type), cmp.Or(r.Version, i.Version)
	if r.Tags == nil {
		r.Tags = i.Tags
	}
	if r.Types == nil {
		r.Types = i.Types
	}
	return r
}

// describes reports whether i and r are the same except for ids and draining.
func (i *Registration) describes(r Registration) bool {
	return r.Name == i.Name && r.HostName == i.HostName && r.Type == i.Type && r.Version == i.Version &&
		slices.Equal(r.Tags, i.Tags) && slices.Equal(r.Types, i.Types)
}

// hear takes over what a delegate reports and gives it work. The caller holds mu.
func (q *Queue) hear(d *delegate, r Registration, now instant) {
	d.describe(r)
	d.touch()
	before := q.nextDeadline()
	if d.lost || d.seen == 0 { // back, or new
		q.present++
	}
	d.seen = now
	q.arm(d, now.after(q.cfg.HeartbeatTimeout))
	q.wakeBefore(before)
	if d.lost {
		d.lost = false
		d.idleSince = now
		d.changeAbility()
		q.events = append(q.events, Event{Kind: Returned, At: now.time(), Account: d.account.id, Delegate: d.info.ID})
	}
	q.refill(d, now)
}

// describe takes over what a delegate reports about itself.
func (d *delegate) describe(r Registration) {
	old := d.info
	d.info, d.info.NewID = r, ""
	if d.holds != nil && r.Name == old.Name && slices.Equal(r.Tags, old.Tags) && slices.Equal(r.Types, old.Types) {
		d.info.Tags, d.info.Types = old.Tags, old.Types
		if r.Draining != old.Draining {
			d.changeAbility()
		}
		return
	}
	d.info.Tags, d.info.Types = slices.Clone(r.Tags), slices.Clone(r.Types)
	tags := map[string]bool{fold(r.Name): true}
	for _, t := range r.Tags {
		tags[fold(t)] = true
	}
	delete(tags, "") // no name, or an empty tag in the list
	d.types = nil
	for _, t := range r.Types {
		if d.types == nil {
			d.types = make(map[string]bool, len(r.Types))
		}
		d.types[t] = true
	}
	d.setTags(tags)
	d.changeAbility()
}

// fold returns the form in which tags and selectors are compared.
func fold(tag string) string { return strings.ToLower(strings.TrimSpace(tag)) }

// SetCapacity bounds how many stages a delegate may have. 0 and below are unbounded, as
// for a new delegate. Offered stages that do not fit any more go back to their places,
// the youngest first. SetCapacity fails with [ErrUnknownDelegate].
func (q *Queue) SetCapacity(account, id string, maxStages int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	d, err := q.delegate(account, id)
	if err != nil {
		return err
	}
	now := q.now()
	if maxStages = max(maxStages, 0); d.max != maxStages {
		d.max = maxStages
		d.changeAbility()
	}
	if offered := d.offered(); d.max > 0 && len(d.slots) > d.max {
		offered = slices.DeleteFunc(offered, func(w *work) bool { return !w.Stage })
		excess := min(len(d.slots)-d.max, len(offered))
		for _, w := range offered[len(offered)-excess:] {
			q.requeue(w, now)
		}
	}
	q.fill(d, now)
	return nil
}

// SetDraining drains a delegate, or ends that, whatever the delegate reports: it gets
// nothing new, its offers go back to their places, and it keeps what it has acquired.
// SetDraining fails with [ErrUnknownDelegate].
func (q *Queue) SetDraining(account, id string, draining bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	d, err := q.delegate(account, id)
	if err != nil {
		return err
	}
	d.drained = draining
	d.changeAbility()
	q.refill(d, q.now())
	return nil
}

// refill offers the delegate work, or withdraws its offers if it takes none. The caller
// holds mu.
func (q *Queue) refill(d *delegate, now instant) {
	if !d.takesWork() {
		q.withdraw(d, now)
	}
	q.fill(d, now)
}

// changeAbility notes that what the delegate is able to take has changed.
func (d *delegate) changeAbility() {
	d.touch()
	d.account.version++
}

// Delegates returns an account's delegates, lost ones included, in the order of their
// registration.
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
		case !d.takesWork():
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

// Label returns the name of a delegate, or its id if it has none. It is empty for an
// unknown one.
func (q *Queue) Label(account, delegate string) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if d, err := q.delegate(account, delegate); err == nil {
		return d.label()
	}
	return ""
}

// sorted returns the account's delegates in the order of their registration.
func (a *account) sorted() []*delegate {
	out := make([]*delegate, 0, len(a.delegates))
	for _, d := range a.delegates {
		out = append(out, d)
	}
	slices.SortFunc(out, byOrder)
	return out
}

func byOrder(x, y *delegate) int { return cmp.Compare(x.order, y.order) }

// id returns the delegate's id, which is empty for nil.
func (d *delegate) id() string {
	if d == nil {
		return ""
	}
	return d.info.ID
}

// label returns the delegate's name for people.
func (d *delegate) label() string { return cmp.Or(d.info.Name, d.info.ID) }

// offered returns the works that the delegate could acquire and has not, in the order
// of the queue.
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

// tasks returns what the delegate was offered and what it has acquired, in the order of
// the offers.
func (d *delegate) tasks() []*record {
	out := make([]*record, 0, len(d.open))
	for _, r := range d.open {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *record) int { return cmp.Compare(a.seq, b.seq) })
	return out
}

// wakePoll lets a held poll look at the delegate's list again.
func (d *delegate) wakePoll() {
	d.version++
	if d.changed != nil {
		close(d.changed)
		d.changed = nil
	}
}
