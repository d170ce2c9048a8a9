package manager

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/internal/queue"
)

// daemons is the state of the daemon sets of an account. It is also its JSON in the saved state.
type daemons struct {
	Sets map[string]*daemonSet `json:"sets"`
	// Reports has the latest report of each delegate, by daemon set.
	Reports map[string]map[string]daemonReport `json:"reports,omitempty"`

	owners map[string]string // the daemon set of each task
	moved  chan struct{}     // closed when an answer to a delegate may have changed
	plan   *daemonPlan       // nil, or maybe too old
}

// daemonSet is a daemon set with its tasks. The set has no Tasks and no Delegates.
type daemonSet struct {
	api.DaemonSet
	Tasks map[string]*api.DaemonTask `json:"all_tasks,omitempty"`
}

type daemonReport struct {
	Healthy bool      `json:"healthy,omitempty"`
	Error   string    `json:"error,omitempty"`
	At      time.Time `json:"at"`
}

// Commands about daemon sets.
type (
	daemonTaskCommand struct {
		Set  string         `json:"set"`
		Task api.DaemonTask `json:"task"`
	}
	dropDaemonTaskCommand struct {
		Set string `json:"set"`
		ID  string `json:"id"`
	}
	daemonReportCommand struct {
		Delegate string                  `json:"delegate"`
		Sets     map[string]daemonReport `json:"sets"` // without times
	}
)

const (
	// maxDaemonTasks bounds the tasks of a daemon set.
	maxDaemonTasks = 10_000
	// maxDaemonPayload bounds the JSON of a daemon set and of a task, in bytes.
	maxDaemonPayload = 1 << 20
	// maxDaemonError is the longest error of a delegate that the manager stores, in bytes.
	maxDaemonError = 1 << 10
)

// The values of api.DaemonTask.Spread.
const (
	spreadAll = "all"
	spreadOne = "one"
)

// daemonsOf returns the daemon sets of an account. Without any it makes the state if create is set, and otherwise
// returns nil.
func (c *core) daemonsOf(account string, create bool) *daemons {
	d := c.daemons[account]
	if d == nil && create {
		d = &daemons{Sets: map[string]*daemonSet{}, Reports: map[string]map[string]daemonReport{}}
		d.load()
		c.daemons[account] = d
		close(c.firstDaemons)
		c.firstDaemons = make(chan struct{})
	}
	return d
}

// load makes the parts that are not saved.
func (d *daemons) load() {
	d.moved, d.owners = make(chan struct{}), map[string]string{}
	if d.Reports == nil {
		d.Reports = map[string]map[string]daemonReport{}
	}
	for id, s := range d.Sets {
		for task := range s.Tasks {
			d.owners[task] = id
		}
	}
}

// move wakes the held reports of an account.
func (c *core) moveDaemons(account string) {
	if d := c.daemons[account]; d != nil {
		close(d.moved)
		d.moved = make(chan struct{})
	}
}

// sizes of daemon sets and tasks in the budget.
func sizeOfJSON(v any) int {
	b, err := json.Marshal(v)
	if err != nil {
		return 0
	}
	return len(b)
}

func daemonAmounts(size int) amounts { return amounts{budgetDaemons: 1, budgetBytes: size} }

// setDaemonSet adds or replaces a daemon set.
func (c *core) setDaemonSet(account string, s api.DaemonSet) {
	d := c.daemonsOf(account, true)
	s.UpdatedAt = c.at
	made := &daemonSet{DaemonSet: s, Tasks: map[string]*api.DaemonTask{}}
	if old := d.Sets[s.ID]; old != nil {
		c.occupy(account, daemonAmounts(sizeOfJSON(old.DaemonSet)), -1)
		made.Tasks = old.Tasks
	}
	c.occupy(account, daemonAmounts(sizeOfJSON(s)), 1)
	d.Sets[s.ID] = made
	c.moveDaemons(account)
}

func (c *core) deleteDaemonSet(account, id string) error {
	d := c.daemonsOf(account, false)
	if d == nil || d.Sets[id] == nil {
		return fmt.Errorf("daemon set %q: %w", id, ErrNotFound)
	}
	s := d.Sets[id]
	for task := range s.Tasks {
		c.dropTask(account, d, s, task)
	}
	c.occupy(account, daemonAmounts(sizeOfJSON(s.DaemonSet)), -1)
	delete(d.Sets, id)
	for _, r := range d.Reports {
		delete(r, id)
	}
	c.moveDaemons(account)
	return nil
}

func (c *core) dropTask(account string, d *daemons, s *daemonSet, id string) {
	c.occupy(account, daemonAmounts(sizeOfJSON(s.Tasks[id])), -1)
	delete(s.Tasks, id)
	delete(d.owners, id)
}

func (c *core) setDaemonTask(account string, cmd *daemonTaskCommand) (existed bool, err error) {
	d := c.daemonsOf(account, false)
	if d == nil || d.Sets[cmd.Set] == nil {
		return false, fmt.Errorf("daemon set %q: %w", cmd.Set, ErrNotFound)
	}
	s, t := d.Sets[cmd.Set], cmd.Task
	if owner, ok := d.owners[t.ID]; ok {
		if old, _ := json.Marshal(s.Tasks[t.ID]); owner == cmd.Set && bytes.Equal(old, encoded(t)) {
			return true, nil
		}
		return true, fmt.Errorf("%w: daemon set %q has a task %q with other values: remove it, or choose another id", ErrConflict, owner, t.ID)
	}
	if len(s.Tasks) >= maxDaemonTasks {
		return false, fmt.Errorf("%w: tasks of daemon set %q: there are %d", ErrBudget, cmd.Set, maxDaemonTasks)
	}
	s.Tasks[t.ID], d.owners[t.ID] = &t, cmd.Set
	c.occupy(account, daemonAmounts(sizeOfJSON(t)), 1)
	c.moveDaemons(account)
	return false, nil
}

func encoded(t api.DaemonTask) []byte {
	b, _ := json.Marshal(t) // it was decoded from JSON
	return b
}

func (c *core) deleteDaemonTask(account string, cmd *dropDaemonTaskCommand) error {
	d := c.daemonsOf(account, false)
	if d == nil || d.Sets[cmd.Set] == nil || d.Sets[cmd.Set].Tasks[cmd.ID] == nil {
		return fmt.Errorf("task %q of daemon set %q: %w", cmd.ID, cmd.Set, ErrNotFound)
	}
	c.dropTask(account, d, d.Sets[cmd.Set], cmd.ID)
	c.moveDaemons(account)
	return nil
}

// reportDaemons stores the report of a delegate. The time of a state that has not changed stays.
func (c *core) reportDaemons(account string, cmd *daemonReportCommand) {
	d := c.daemonsOf(account, false)
	if d == nil {
		return
	}
	old, now := d.Reports[cmd.Delegate], map[string]daemonReport{}
	for id, r := range cmd.Sets {
		if d.Sets[id] == nil {
			continue
		}
		r.At = c.at
		if before, ok := old[id]; ok && before.Healthy == r.Healthy && before.Error == r.Error {
			r.At = before.At
		}
		now[id] = r
	}
	d.Reports[cmd.Delegate] = now
	known := c.queue.Delegates(account)
	if len(d.Reports) <= 2*len(known)+16 {
		return
	}
	keep := map[string]bool{}
	for i := range known {
		keep[known[i].ID] = true
	}
	maps.DeleteFunc(d.Reports, func(id string, _ map[string]daemonReport) bool { return !keep[id] })
}

// reported reports whether the state has this report of a delegate.
func (d *daemons) reported(delegate string, sets map[string]daemonReport) bool {
	old, n := d.Reports[delegate], 0
	for id, r := range sets {
		if d.Sets[id] == nil {
			continue
		}
		n++
		if before, ok := old[id]; !ok || before.Healthy != r.Healthy || before.Error != r.Error {
			return false
		}
	}
	return n == len(old)
}

// hasTags reports whether a delegate has all tags.
func hasTags(d *queue.Delegate, tags []string) bool {
	for _, tag := range tags {
		tag = strings.TrimSpace(tag)
		if !strings.EqualFold(strings.TrimSpace(d.Name), tag) &&
			!slices.ContainsFunc(d.Tags, func(t string) bool { return strings.EqualFold(strings.TrimSpace(t), tag) }) {
			return false
		}
	}
	return true
}

// ofDelegate returns the daemon sets of a delegate, ordered by id, and the daemon sets that match but have the type of an
// earlier one, with its id.
func (d *daemons) ofDelegate(q *queue.Delegate) (sets []*daemonSet, shadowed map[string]string) {
	types, shadowed := map[string]string{}, map[string]string{}
	for _, id := range slices.Sorted(maps.Keys(d.Sets)) {
		s := d.Sets[id]
		if !hasTags(q, s.Selectors) {
			continue
		}
		if other, ok := types[s.Type]; ok {
			shadowed[id] = other
			continue
		}
		types[s.Type] = id
		sets = append(sets, s)
	}
	return sets, shadowed
}

// daemonPlan assigns daemon sets and tasks to delegates.
type daemonPlan struct {
	at        time.Time
	moved     chan struct{} // of the state that it was made from
	delegates []queue.Delegate
	runs      map[string][]*daemonSet        // by delegate
	shadowed  map[string]map[string]string   // by delegate: see ofDelegate
	tasks     map[string]map[string][]string // by delegate and daemon set, ordered
}

// planAge is how long a plan is used after tags of delegates have changed.
const planAge = 5 * time.Second

// planDaemons returns the plan of an account. The caller holds the core's lock.
func (c *core) planDaemons(account string, now time.Time) *daemonPlan {
	d := c.daemons[account]
	if d == nil {
		return &daemonPlan{}
	}
	if p := d.plan; p != nil && p.moved == d.moved && now.Sub(p.at) < planAge {
		return p
	}
	p := &daemonPlan{
		at: now, moved: d.moved, delegates: c.queue.Delegates(account), runs: map[string][]*daemonSet{},
		shadowed: map[string]map[string]string{}, tasks: map[string]map[string][]string{},
	}
	running := map[*daemonSet][]*queue.Delegate{}
	for i := range p.delegates {
		q := &p.delegates[i]
		p.runs[q.ID], p.shadowed[q.ID] = d.ofDelegate(q)
		p.tasks[q.ID] = map[string][]string{}
		for _, s := range p.runs[q.ID] {
			running[s] = append(running[s], q)
		}
	}
	for s, delegates := range running {
		for _, id := range slices.Sorted(maps.Keys(s.Tasks)) {
			for _, q := range placeTask(s.Tasks[id], delegates) {
				p.tasks[q.ID][s.ID] = append(p.tasks[q.ID][s.ID], id)
			}
		}
	}
	d.plan = p
	return p
}

// placeTask returns the delegates of a task, of those that run its daemon set.
func placeTask(t *api.DaemonTask, delegates []*queue.Delegate) []*queue.Delegate {
	var out []*queue.Delegate
	best := uint64(0)
	for _, q := range delegates {
		switch {
		case !hasTags(q, t.Selectors):
		case t.Spread != spreadOne:
			out = append(out, q)
		case q.State == queue.Alive:
			// All managers choose the same delegate, and most tasks stay where they are when a delegate comes or goes.
			if weight := weightOf(t.ID, q.ID); len(out) == 0 || weight > best || weight == best && q.ID > out[0].ID {
				out, best = []*queue.Delegate{q}, weight
			}
		}
	}
	return out
}

func weightOf(task, delegate string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(task + "\x00" + delegate)) // never fails
	// The last bytes change only the low bits of the sum.
	x := h.Sum64()
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	return x ^ x>>33
}
