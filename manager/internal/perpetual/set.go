package perpetual

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	wire "github.com/delegate-io/dlite/internal/perpetual"
)

// The errors of operations, for [errors.Is].
var (
	// ErrUnknown: the account has no task with the id.
	ErrUnknown = errors.New("unknown perpetual task")
	// ErrPaused: a paused task cannot run.
	ErrPaused = errors.New("the perpetual task is paused")
	// ErrFull: the account has no room for more.
	ErrFull = errors.New("no room")
	// ErrUnknownDelegate: the queue does not know the delegate.
	ErrUnknownDelegate = errors.New("unknown delegate")
)

// Bounds of an account.
const (
	// maxBytes bounds the configs, states, and events that wait.
	maxBytes = 64 << 20
	// maxEvents bounds the number of events that wait.
	maxEvents = 10_000
	// maxSessions bounds the sessions of a delegate with a valid lease.
	maxSessions = 4
)

// Config are the settings, equal in all managers of a store.
type Config struct {
	// Lease is the length of the leases, 30 seconds by default.
	Lease time.Duration
	// Gap is the time without an operation after which all leases begin anew. 0 is never.
	Gap time.Duration
}

// Facts are the facts of the queue about a delegate.
type Facts struct {
	Name  string
	Tags  []string // folded and sorted
	Takes bool     // it is alive and does not drain, and its account is not paused
}

// millis is a time in milliseconds since 1970.
type millis int64

func (m millis) time() time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(m)).UTC()
}

func (m millis) after(d time.Duration) millis { return m + millis(d.Milliseconds()) }

// Set is the state of all accounts.
type Set struct {
	cfg      Config
	facts    func(account, delegate string) (Facts, bool)
	last     millis // the time of the last operation
	seq      uint64 // the last number that was given out
	accounts map[string]*account
	outboxes map[string]*outbox // by type

	// deadline is at most the earliest time at which something expires. 0 is unknown.
	deadline millis
	changed  chan struct{} // closed when events or claims change
}

type account struct {
	id       string
	tasks    map[string]*Task
	sessions map[string]*session
	asked    map[string]*Task // tasks that were asked back at once, by id
	free     map[string]*Task // tasks that wait for a session
	dirty    bool             // an assignment may be possible
	bytes    int
	events   int
}

// New returns an empty set. Facts returns the facts about a delegate; false if it is
// not registered.
func New(facts func(account, delegate string) (Facts, bool)) *Set {
	return &Set{facts: facts, accounts: map[string]*account{}, outboxes: map[string]*outbox{}, cfg: Config{Lease: defaultLease}}
}

const defaultLease = 30 * time.Second

// Configure changes the settings.
func (s *Set) Configure(c Config) {
	if c.Lease <= 0 {
		c.Lease = defaultLease
	}
	s.cfg = c
}

// Lease returns the length of the leases.
func (s *Set) Lease() time.Duration { return s.cfg.Lease }

func (s *Set) account(id string) *account {
	a := s.accounts[id]
	if a == nil {
		a = &account{id: id, tasks: map[string]*Task{}, sessions: map[string]*session{}, free: map[string]*Task{}, asked: map[string]*Task{}}
		s.accounts[id] = a
	}
	return a
}

// find returns an account, an empty one if there is none.
func (s *Set) find(id string) *account {
	if a := s.accounts[id]; a != nil {
		return a
	}
	return &account{}
}

// number returns a number that is larger than each one before it. It is at least the
// time in microseconds: numbers do not repeat after a store has lost its last entries.
func (s *Set) number() uint64 {
	s.seq = max(s.seq+1, uint64(max(s.last, 0))*1000)
	return s.seq
}

// Spec contains the values that the caller of the API chooses.
type Spec struct {
	ID         string          `json:"id"`
	Name       string          `json:"name,omitempty"`
	Type       string          `json:"type"`
	Config     json.RawMessage `json:"config,omitempty"`
	IntervalMS int64           `json:"interval_ms,omitempty"`
	Loop       bool            `json:"loop,omitempty"`
	TimeoutMS  int64           `json:"timeout_ms"`
	Selectors  []string        `json:"selectors,omitempty"` // folded
	Paused     bool            `json:"paused,omitempty"`
	Note       string          `json:"note,omitempty"`
}

func (p *Spec) interval() time.Duration { return time.Duration(p.IntervalMS) * time.Millisecond }

// key is equal for tasks that the same delegates can have.
func (p *Spec) key() string { return p.Type + "\x00" + strings.Join(p.Selectors, "\x00") }

// Task is a task with its state. Only this package changes it.
type Task struct {
	Spec
	Created millis          `json:"created"`
	State   json.RawMessage `json:"state,omitempty"`
	// Token is the token of the last assignment. Holder is the session that has the task.
	Token  uint64   `json:"token,omitempty"`
	Holder string   `json:"holder,omitempty"`
	Since  millis   `json:"since,omitempty"` // when the holder got it
	Run    uint64   `json:"run,omitempty"`   // the last result of this assignment
	holder *session // nil if Holder is empty
	// Seq is the number of the last change for the holder.
	Seq uint64 `json:"seq,omitempty"`
	// Withdraw asks the holder for the task, AskedUntil is when the manager takes it.
	Withdraw   string `json:"withdraw,omitempty"`
	AskedUntil millis `json:"asked_until,omitempty"`
	Deleted    bool   `json:"deleted,omitempty"` // it is forgotten when it is released
	Kick       uint64 `json:"kick,omitempty"`
	Kicked     uint64 `json:"kicked,omitempty"` // the last kick that a run had

	Started    millis `json:"started,omitempty"` // of the last run
	DurationMS int64  `json:"duration_ms,omitempty"`
	Succeeded  millis `json:"succeeded,omitempty"` // the end of the last successful run
	Failures   int    `json:"failures,omitempty"`  // since then
	Error      string `json:"error,omitempty"`     // of the last failed run
	ErrorAt    millis `json:"error_at,omitempty"`
	Runs       uint64 `json:"runs,omitempty"`
	Failed     uint64 `json:"failed,omitempty"`
	Blocked    string `json:"blocked,omitempty"` // why the last result waits
}

func (t *Task) size() int { return 512 + len(t.Config) + len(t.State) }

// next returns when the next run is due.
func (t *Task) next() millis {
	if t.Started == 0 || t.Kick > t.Kicked {
		return 0
	}
	d := time.Duration(t.DurationMS) * time.Millisecond
	return t.Started.after(d).after(wire.Next(t.Failures, t.interval(), d))
}

// Put adds a task, or replaces the one with its id. A replaced task keeps its state if
// its type is the same. It fails with [ErrFull].
func (s *Set) Put(account string, p Spec) error {
	a := s.account(account)
	t, size := a.tasks[p.ID], 512+len(p.Config)
	if t != nil {
		size -= t.size() - len(t.State)
	}
	if size > 0 && a.bytes+size > maxBytes {
		return fmt.Errorf("%w: configs, states and events of the account's perpetual tasks would have more than %d bytes", ErrFull, maxBytes)
	}
	if t == nil {
		t = &Task{Created: s.last}
		a.tasks[p.ID] = t
	} else {
		a.bytes -= t.size()
	}
	same := t.Type == p.Type && bytesEqual(t.Config, p.Config) && slices.Equal(t.Selectors, p.Selectors) && !t.Deleted
	if t.Deleted || t.Type != p.Type {
		*t = Task{
			Created: s.last, Token: t.Token, Holder: t.Holder, Since: t.Since, holder: t.holder, Seq: t.Seq,
			Withdraw: t.Withdraw, AskedUntil: t.AskedUntil,
		}
	}
	t.Spec = p
	a.bytes += t.size()
	if t.holder != nil && same && !p.Paused {
		s.change(t) // the holder learns the interval and the time-out
		return nil
	}
	s.updateWaiting(a, t)
	s.dispatch(a)
	return nil
}

func bytesEqual(a, b []byte) bool { return string(a) == string(b) }

// updateWaiting asks for a task back, or lets it wait for a session.
func (s *Set) updateWaiting(a *account, t *Task) {
	switch {
	case t.holder != nil:
		s.ask(a, t, wire.WithdrawNow)
	case t.Deleted:
		delete(a.tasks, t.ID)
		delete(a.free, t.ID)
		a.bytes -= t.size()
	case t.Paused:
		delete(a.free, t.ID)
	default:
		a.free[t.ID], a.dirty = t, true
	}
}

// Delete removes a task.
func (s *Set) Delete(account, id string) error {
	a := s.find(account)
	t, err := a.task(id)
	if err != nil {
		return err
	}
	t.Deleted = true
	s.updateWaiting(a, t)
	return nil
}

// Pause begins or ends the pause of a task.
func (s *Set) Pause(account, id string, on bool, note string) error {
	a := s.find(account)
	t, err := a.task(id)
	if err != nil {
		return err
	}
	if t.Note = note; t.Paused == on {
		return nil
	}
	t.Paused = on
	if t.Paused || t.holder == nil { // a holder that was asked hands it back first
		s.updateWaiting(a, t)
	}
	s.dispatch(a)
	return nil
}

// Kick asks for a run now.
func (s *Set) Kick(account, id string) error {
	t, err := s.find(account).task(id)
	switch {
	case err != nil:
		return err
	case t.Paused:
		return fmt.Errorf("%q: %w: resume it first", id, ErrPaused)
	}
	t.Kick = s.number()
	s.change(t)
	return nil
}

func (a *account) task(id string) (*Task, error) {
	if t := a.tasks[id]; t != nil && !t.Deleted {
		return t, nil
	}
	return nil, fmt.Errorf("perpetual task %q: %w", id, ErrUnknown)
}

// Usage returns the number of an account's tasks, with those that are being deleted.
func (s *Set) Usage(account string) int { return len(s.find(account).tasks) }

// sorted returns the values of a map in the order of their keys.
func sorted[V any](m map[string]V) []V {
	out := make([]V, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[k])
	}
	return out
}

func bySeq(x, y *Task) int { return cmp.Compare(x.Seq, y.Seq) }
