package queue

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Registration is a delegate's report about itself.
type Registration struct {
	// ID is the delegate's id, if it has one.
	ID string
	// NewID is the id for a delegate that the account does not know by ID. If NewID is
	// empty or taken, [Queue.Register] makes an id that no other delegate of this queue
	// ever had.
	NewID string
	// Name is shown to people. It is also a tag.
	Name     string
	HostName string
	// Type and Version are shown to people.
	Type, Version string
	// Tags are the names that selectors require. The queue ignores case and surrounding
	// white space.
	Tags []string
	// Types are the task types that the delegate supports. Without any, the delegate gets
	// tasks of every type.
	Types []string
	// Group is the group of delegates that can serve each other's transactions, see peer.go.
	Group string
	// Draining delegates get nothing new, but all further tasks of their stages.
	Draining bool
	// Refused is a stage that the delegate refused since its last report. Nil means none.
	Refused *Refusal `json:",omitempty"`
}

// DelegateState tells whether a delegate can work.
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
	// MaxStages bounds Stages, the stages that the delegate has. 0 is unbounded.
	MaxStages, Stages int
	// Running counts the tasks that the delegate has acquired and not answered.
	Running int
	// StageIDs are the stages that the delegate has, and TaskIDs the single tasks that it has acquired, in the order of
	// their ids.
	StageIDs, TaskIDs []string
	Registered        time.Time
	LastHeartbeatSeen time.Time
	// RefusedAt is the time of the report with Refused, the last one that had it.
	RefusedAt time.Time
	// History are the newest changes, the oldest in front.
	History []Change
}

// delegate is the queue's state of a delegate.
type delegate struct {
	delegateFacts
	account *account
	info    Registration
	has     map[string]bool // its tags, folded

	slots map[string]*work   // stages that hold a slot
	open  map[string]*record // tasks that are offered or acquired
	stops map[string]*record // tasks that it acquired and must stop

	tags       []*tag       // where it is a holder: has, and the one that all delegates have
	candidates [2]candidate // by kind, its elements in the lists of the tags
	touched    [2]bool      // by kind, since the last updateCandidates

	changed chan struct{} // closed at the next version; nil until a caller asks for it
}

// delegateFacts are the parts of a delegate that are saved as they are.
type delegateFacts struct {
	Order      uint64  `json:"order"`             // of registration
	Max        int     `json:"max,omitempty"`     // stages, 0 is unbounded
	Drained    bool    `json:"drained,omitempty"` // by SetDraining
	Lost       bool    `json:"lost,omitempty"`
	Removed    bool    `json:"removed,omitempty"` // it is not in account.delegates any more; it is lost too
	Registered instant `json:"registered"`
	Seen       instant `json:"seen"`
	Idle       instant `json:"idle"`              // since when
	Due        instant `json:"due,omitempty"`     // of the next heartbeat; for a lost one, when it is forgotten
	Version    uint64  `json:"version"`           // of its list
	Unaware    bool    `json:"unaware,omitempty"` // of aborts
	// History and Refused are for people only.
	History []change `json:"history,omitempty"`
	Refused *refusal `json:"refused,omitempty"`
}

// Register adds a delegate and returns its id. The id is a new one unless the account has
// a delegate with r.ID. A second registration is like a heartbeat: the delegate keeps its
// stages and tasks.
func (q *Queue) Register(account string, r Registration) string {
	defer q.unlock(q.lock())
	now := q.now()
	a := q.account(account)
	d := a.delegates[r.ID]
	if d == nil {
		d = newDelegate(a, delegateFacts{Order: q.number(), Registered: now, Idle: now})
		if r.ID = r.NewID; r.ID == "" || a.delegates[r.ID] != nil {
			r.ID = q.epoch + "-" + strconv.FormatUint(d.Order, 36)
		}
		a.delegates[r.ID] = d
	}
	q.hear(d, r, now)
	return d.info.ID
}

func newDelegate(a *account, facts delegateFacts) *delegate {
	return &delegate{
		delegateFacts: facts, account: a,
		slots: map[string]*work{}, open: map[string]*record{}, stops: map[string]*record{},
	}
}

// Heartbeat records that a delegate is alive, and its changes. Nil tags and types, and an
// empty name, host, type, version and group, mean no change. A lost delegate is not lost
// any more. Heartbeat fails with [ErrUnknownDelegate].
func (q *Queue) Heartbeat(account string, r Registration) error {
	return q.change(account, r.ID, func(d *delegate, now instant) { q.hear(d, d.info.merge(r), now) })
}

// change applies a change to a delegate at the time of the operation. It fails with [ErrUnknownDelegate].
func (q *Queue) change(account, id string, apply func(*delegate, instant)) error {
	defer q.unlock(q.lock())
	d, err := q.delegate(account, id)
	if err == nil {
		apply(d, q.now())
	}
	return err
}

// Unchanged reports whether r repeats the delegate's previous report. A heartbeat with
// only the ID and Draining then has the same effect.
func (q *Queue) Unchanged(account string, r Registration) bool {
	defer q.unlock(q.lock())
	d, err := q.delegate(account, r.ID)
	return err == nil && d.info.describes(d.info.merge(r))
}

// merge returns r with the values of i where r leaves them out.
func (i *Registration) merge(r Registration) Registration {
	r.Name, r.HostName = cmp.Or(r.Name, i.Name), cmp.Or(r.HostName, i.HostName)
	r.Type, r.Version = cmp.Or(r.Type, i.Type), cmp.Or(r.Version, i.Version)
	r.Group = cmp.Or(r.Group, i.Group)
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
	return r.Name == i.Name && r.HostName == i.HostName && r.Type == i.Type && r.Version == i.Version && r.Group == i.Group &&
		slices.Equal(r.Tags, i.Tags) && slices.Equal(r.Types, i.Types)
}

// hear records a delegate's report and gives it work.
func (q *Queue) hear(d *delegate, r Registration, now instant) {
	took, drained, version := d.takesWork(), d.draining(), d.info.Version
	if r.Refused != nil {
		d.Refused = &refusal{*r.Refused, now}
		r.Refused = nil
	}
	d.describe(r)
	switch {
	case d.Seen == 0:
		q.present++
		version = d.info.Version
		d.note(now, changeRegistered)
	case d.Lost:
		q.present++
		d.Lost, d.Idle = false, now
		d.note(now, changeReturned)
		q.emitDelegate(Returned, now, d)
	}
	d.Seen = now
	q.arm(d, now.after(q.cfg.HeartbeatTimeout))
	if d.takesWork() != took {
		d.changeAbility()
	}
	if version != d.info.Version {
		d.note(now, changeUpgraded)
	}
	d.noteDrain(now, drained)
	d.touch()
	q.refill(d, now)
}

// describe records a delegate's report about itself.
func (d *delegate) describe(r Registration) {
	old := d.info
	d.info, d.info.NewID = r, ""
	if d.has != nil && old.describes(r) {
		d.info.Tags, d.info.Types = old.Tags, old.Types
		return
	}
	d.info.Tags, d.info.Types = slices.Clone(r.Tags), slices.Clone(r.Types)
	tags := foldAll(append([]string{r.Name}, r.Tags...))
	delete(tags, "") // no name, or an empty tag in the list
	if r.Group != "" {
		tags[groupTag(r.Group)] = true
	}
	d.setTags(tags)
}

// fold returns the form in which tags and selectors are compared.
func fold(tag string) string { return strings.ToLower(strings.TrimSpace(tag)) }

// SetCapacity bounds how many stages a delegate may have. 0 and below are unbounded, as
// for a new delegate. Offered stages that do not fit any more go back to their places,
// the youngest first. SetCapacity fails with [ErrUnknownDelegate].
func (q *Queue) SetCapacity(account, id string, maxStages int) error {
	return q.change(account, id, func(d *delegate, now instant) {
		d.Max = max(maxStages, 0)
		d.changeAbility()
		q.withdrawExcess(d, now)
		q.dispatch(nil, d, nil, now)
	})
}

// withdrawExcess takes back offered stages, the youngest first, while the delegate has more
// stages than slots.
func (q *Queue) withdrawExcess(d *delegate, now instant) {
	if d.Max == 0 || len(d.slots) <= d.Max {
		return
	}
	offered := slices.DeleteFunc(d.offered(), func(w *work) bool { return !w.Stage })
	excess := min(len(d.slots)-d.Max, len(offered))
	for _, w := range offered[len(offered)-excess:] {
		q.requeue(w, now)
	}
}

// SetDraining begins or ends the drain of a delegate, independent of the delegate's own
// reports. During a drain it gets no new work, its offers go back to their places, and it
// keeps the tasks that it has acquired.
// SetDraining fails with [ErrUnknownDelegate].
func (q *Queue) SetDraining(account, id string, draining bool) error {
	return q.change(account, id, func(d *delegate, now instant) {
		before := d.draining()
		d.Drained = draining
		d.noteDrain(now, before)
		d.changeAbility()
		q.refill(d, now)
	})
}

// SetUnaware records whether a delegate cannot learn which tasks it must stop. A task that
// it has acquired then ends at once if it is aborted. The default is false.
// SetUnaware fails with [ErrUnknownDelegate].
func (q *Queue) SetUnaware(account, id string, unaware bool) error {
	return q.change(account, id, func(d *delegate, _ instant) { d.Unaware = unaware })
}

// refill offers the delegate work, or withdraws its offers if it takes none.
func (q *Queue) refill(d *delegate, now instant) {
	if !d.takesWork() {
		q.withdraw(d, now)
	}
	q.dispatch(nil, d, nil, now)
}

// changeAbility notes a change of the work that the delegate is able to take.
func (d *delegate) changeAbility() {
	d.account.version++
	d.touch()
}

// Delegates returns an account's delegates, lost ones included, in the order of their
// registration.
func (q *Queue) Delegates(account string) []Delegate {
	defer q.unlock(q.lock())
	var out []Delegate
	for _, d := range q.find(account).sorted() {
		v := Delegate{
			Registration: d.info, State: Alive, MaxStages: d.Max, Stages: len(d.slots),
			Registered: d.Registered.time(), LastHeartbeatSeen: d.Seen.time(),
		}
		v.Tags, v.Types = slices.Clone(v.Tags), slices.Clone(v.Types)
		v.History = d.history()
		if d.Refused != nil {
			refused := d.Refused.Refusal
			v.Refused, v.RefusedAt = &refused, d.Refused.At.time()
		}
		switch {
		case d.Lost:
			v.State = Gone
		case !d.takesWork():
			v.State = Draining
		}
		for _, r := range d.open {
			if r.State == acquired {
				v.Running++
				if !r.work.Stage {
					v.TaskIDs = append(v.TaskIDs, r.work.ID)
				}
			}
		}
		v.StageIDs = slices.Sorted(maps.Keys(d.slots))
		slices.Sort(v.TaskIDs)
		out = append(out, v)
	}
	return out
}

// Ability returns the name and the tags of a delegate, folded and sorted, and whether it takes
// work: it is alive and does not drain, and its account is not paused. It reports false for an
// unknown delegate.
func (q *Queue) Ability(account, delegate string) (name string, tags []string, takes, ok bool) {
	defer q.unlock(q.lock())
	d, err := q.delegate(account, delegate)
	if err != nil {
		return "", nil, false, false
	}
	return d.label(), slices.Sorted(maps.Keys(d.has)), d.takesWork() && !d.account.gate.closed, true
}

// Fold returns the form in which tags and selectors are compared.
func Fold(tag string) string { return fold(tag) }

// Label returns the name of a delegate, or its id if it has none. It is empty for an
// unknown one.
func (q *Queue) Label(account, delegate string) string {
	defer q.unlock(q.lock())
	if d, err := q.delegate(account, delegate); err == nil {
		return d.label()
	}
	return ""
}

// sorted returns the account's delegates in the order of their registration.
func (a *account) sorted() []*delegate {
	return slices.SortedFunc(maps.Values(a.delegates), byOrder)
}

func byOrder(x, y *delegate) int { return cmp.Compare(x.Order, y.Order) }

// id returns the delegate's id, which is empty for nil.
func (d *delegate) id() string {
	if d == nil {
		return ""
	}
	return d.info.ID
}

// label returns the delegate's name, or its id if it has none.
func (d *delegate) label() string { return cmp.Or(d.info.Name, d.info.ID) }

// offered returns the works that the delegate could acquire and has not, in the order
// of the queue.
func (d *delegate) offered() []*work {
	var out []*work
	for _, r := range d.open {
		if r.State == offered && r == r.work.first {
			out = append(out, r.work)
		}
	}
	slices.SortFunc(out, (*work).compare)
	return out
}

// tasks returns the tasks that the delegate was offered or has acquired, in the order of
// the offers.
func (d *delegate) tasks() []*record {
	return slices.SortedFunc(maps.Values(d.open), func(a, b *record) int { return cmp.Compare(a.Seq, b.Seq) })
}

// wakePoll lets a held poll look at the delegate's list again.
func (d *delegate) wakePoll() {
	d.Version++
	if d.changed != nil {
		close(d.changed)
		d.changed = nil
	}
}

func (d *delegate) deadline() *instant { return &d.Due }
func (d *delegate) age() uint64        { return d.Order }

// expire marks a silent delegate as lost, and removes a lost one.
func (d *delegate) expire(q *Queue, now instant) {
	if d.Lost {
		q.remove(d, now, fmt.Sprintf("the delegate %q was lost and has not come back", d.label()))
	} else {
		q.lose(d, now)
	}
}

// lose marks a delegate as lost. Its offers go to other delegates, and offered further
// tasks of stages to its peers. All other tasks end as [Abandoned], except detached tasks,
// which wait for its return.
func (q *Queue) lose(d *delegate, now instant) {
	d.Lost = true
	d.note(now, changeLost)
	q.present--
	d.changeAbility()
	q.emitDelegate(Lost, now, d)
	q.abandon(d, now, d.absence())
	q.arm(d, now.after(q.cfg.ForgetLost))
}

// abandon gives the offers of a delegate that is gone to others, and ends its other tasks.
func (q *Queue) abandon(d *delegate, now instant, reason string) {
	q.withdraw(d, now)
	q.strand(d, now, reason)
	for _, r := range d.tasks() {
		if (r.State != offered || !q.handOver(r, now)) && (d.Removed || !r.Detached) {
			q.end(r, now, Result{Outcome: Abandoned, Error: reason})
		}
	}
}

// Unregister removes a delegate. Its offers go to other delegates, and offered further
// tasks of stages to its peers. All other tasks end as [Abandoned]. Unregister fails with
// [ErrUnknownDelegate].
func (q *Queue) Unregister(account, id string) error {
	return q.change(account, id, func(d *delegate, now instant) {
		q.remove(d, now, fmt.Sprintf("the delegate %q has unregistered", d.label()))
	})
}

// remove drops a delegate that will not come back.
func (q *Queue) remove(d *delegate, now instant, reason string) {
	if !d.Lost {
		q.present--
	}
	d.Lost, d.Removed = true, true
	q.disarm(d)
	delete(d.account.delegates, d.info.ID)
	d.setTags(nil)
	q.abandon(d, now, reason)
	for k := range d.touched { // without a decision of the kind the account would refer to the delegate forever
		d.account.updateCandidates(kind(k))
	}
	clear(d.stops)
	d.wakePoll() // a held poll learns that the delegate is unknown
}

// absence returns the reason why a task of a lost delegate ends.
func (d *delegate) absence() string {
	if d.Removed {
		return fmt.Sprintf("the delegate %q has unregistered", d.label())
	}
	return fmt.Sprintf("the delegate %q is lost: it has sent no heartbeat since %s", d.label(),
		d.Seen.time().Format(time.RFC3339))
}
