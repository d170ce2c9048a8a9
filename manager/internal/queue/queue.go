package queue

import (
	"crypto/rand"
	"errors"
	"sync"
	"time"
)

// What an operation can fail with, for [errors.Is].
var (
	// ErrUnknownDelegate: no delegate of the account has the id; it never
	// registered, has unregistered or was forgotten.
	ErrUnknownDelegate = errors.New("unknown delegate")
	// ErrUnknownTask: no task of the account has the id, or it is forgotten.
	ErrUnknownTask = errors.New("unknown task")
	// ErrUnknownWork: no stage or task of the account has the id, or it is
	// forgotten.
	ErrUnknownWork = errors.New("unknown stage or task")
	// ErrExists: the id is taken.
	ErrExists = errors.New("the id is taken")
	// ErrNotOwner: the task belongs to another delegate.
	ErrNotOwner = errors.New("the task belongs to another delegate")
	// ErrFinished: the stage has been released and takes no more tasks.
	ErrFinished = errors.New("the stage has ended")
	// ErrVersion: the queue was saved by a version of this package that this one
	// does not know. Running the newer program helps.
	ErrVersion = errors.New("the queue was saved by a newer version")
)

// Config sets a queue's limits. The zero value is useful.
type Config struct {
	// HeartbeatTimeout is how long a delegate may be silent before it counts as
	// lost. Delegates send a heartbeat every 10 seconds. Defaults to 60 seconds.
	HeartbeatTimeout time.Duration
	// AcquireTimeout is how long a delegate may leave an offered stage or single
	// task alone before it goes back to its old place (SPEC Q4). Defaults to
	// 30 seconds.
	AcquireTimeout time.Duration
	// AbortGrace is how long an aborted task may take to be answered before it
	// counts as ended. Defaults to 30 seconds.
	AbortGrace time.Duration
	// AnswerGrace is added to a task's own time-out, so that the delegate that
	// enforces it has the first word. Defaults to 2 seconds.
	AnswerGrace time.Duration
	// ForgetLost is how long a lost delegate is remembered, with the cleanups
	// that wait for its return. Defaults to 1 hour.
	ForgetLost time.Duration
	// Retention is how long what has ended is remembered. Defaults to 1 hour.
	Retention time.Duration
	// MaxFinished bounds how many ended stages and single tasks are remembered,
	// the newest; those with a cleanup that waits for its delegate stay, and so does
	// the last one to end. Defaults to 10,000.
	MaxFinished int
	// MaxFinishedBytes bounds what the answers of those take, in bytes; the newest
	// is always remembered. Defaults to 256 MiB.
	MaxFinishedBytes int
	// Gap is how long it takes without an operation, [Queue.Tick] included, until it
	// counts as a time in which delegates could not reach the queue: see gap.go. It
	// is to be longer than the owner's slowest answer and shorter than
	// HeartbeatTimeout and AcquireTimeout, like 10 seconds. Zero and below: never.
	Gap time.Duration
	// MaxAttempts bounds how many delegates are asked to run a task that is
	// answered RETRY_ON_OTHER_DELEGATE. Defaults to 3.
	MaxAttempts int
	// Epoch tells the cursors of this queue, and the ids that it makes, from those
	// of another one. Queues that are to be replicas of each other need the same.
	// Defaults to a random text.
	Epoch string
	// Now is the clock: the time of the operation that is being carried out. Each
	// operation asks once at most; a time before an earlier one counts as that.
	// Defaults to the time of the system, without its jumps.
	Now func() time.Time
}

func (c *Config) setDefaults() {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.HeartbeatTimeout, time.Minute},
		{&c.AcquireTimeout, 30 * time.Second},
		{&c.AbortGrace, 30 * time.Second},
		{&c.AnswerGrace, 2 * time.Second},
		{&c.ForgetLost, time.Hour},
		{&c.Retention, time.Hour},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if c.MaxFinished <= 0 {
		c.MaxFinished = 10_000
	}
	if c.MaxFinishedBytes <= 0 {
		c.MaxFinishedBytes = 256 << 20
	}
	if c.MaxAttempts <= 0 {
		c.MaxAttempts = 3
	}
	if c.Epoch == "" {
		c.Epoch = rand.Text()
	}
	if c.Now == nil {
		start := time.Now()
		c.Now = func() time.Time { return start.Add(time.Since(start)) }
	}
}

// Queue is the queue in memory. Make one with [New].
type Queue struct {
	cfg  Config
	wake chan struct{}

	mu sync.Mutex
	state
	events []Event

	// placing and filling are told of each decision before it is carried out, in
	// tests.
	placing func(w *work, left, to *delegate)
	filling func(d *delegate, with *work)
}

// state is what a queue knows. Its future depends on this, and on what it is told,
// alone: see save.go.
type state struct {
	epoch    string
	last     instant // the time of the last operation
	seq      uint64  // the order of things
	accounts map[string]*account
	timers   timers
	finished []*work // ended, the oldest first; forgotten ones are skipped
	kept     int     // of finished, not forgotten
	bytes    int     // in the answers of kept
	present  int     // delegates that are not lost
	answers  int     // timers of tasks that are armed
}

// account is all that one account has.
type account struct {
	id        string
	delegates map[string]*delegate
	works     map[string]*work
	tasks     map[string]*record

	classes  map[string]*class // of works, by what they need
	groups   map[string]*group // of stages, by their names
	gate     group             // of everything; see Queue.Pause
	idle     int               // of classes, that have no work
	crews    map[string]*crew  // of delegates, by what they have
	tags     map[string]*tag
	bits     uint64      // those that tags have
	everyone *tag        // that all delegates have
	touched  []*delegate // since the orders were brought up to date
}

// New makes an empty queue. Negative and zero settings are the defaults.
func New(cfg Config) *Queue {
	cfg.setDefaults()
	return &Queue{cfg: cfg, wake: make(chan struct{}, 1), state: newState(cfg.Epoch)}
}

func newState(epoch string) state {
	return state{epoch: epoch, accounts: map[string]*account{}, timers: timers{far: map[int64][]owner{}}}
}

// account finds or makes an account. The caller holds mu.
func (q *Queue) account(id string) *account {
	a := q.accounts[id]
	if a == nil {
		a = &account{
			id: id, delegates: map[string]*delegate{}, works: map[string]*work{},
			tasks: map[string]*record{}, classes: map[string]*class{}, crews: map[string]*crew{}, groups: map[string]*group{}, tags: map[string]*tag{},
			everyone: &tag{crews: map[*crew]struct{}{}},
		}
		q.accounts[id] = a
	}
	return a
}

// delegate finds a delegate. The caller holds mu.
func (q *Queue) delegate(account, id string) (*delegate, error) {
	if a := q.accounts[account]; a != nil {
		if d := a.delegates[id]; d != nil {
			return d, nil
		}
	}
	return nil, ErrUnknownDelegate
}

// record finds a task. The caller holds mu.
func (q *Queue) record(account, id string) (*record, error) {
	if a := q.accounts[account]; a != nil {
		if r := a.tasks[id]; r != nil {
			return r, nil
		}
	}
	return nil, ErrUnknownTask
}

// work finds a stage or single task. The caller holds mu.
func (q *Queue) work(account, id string) (*work, error) {
	if a := q.accounts[account]; a != nil {
		if w := a.works[id]; w != nil {
			return w, nil
		}
	}
	return nil, ErrUnknownWork
}

func (q *Queue) number() uint64 {
	q.seq++
	return q.seq
}
