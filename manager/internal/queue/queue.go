package queue

import (
	"cmp"
	"crypto/rand"
	"errors"
	"sync"
	"time"
)

// The errors of operations, for [errors.Is].
var (
	// ErrUnknownDelegate: no delegate of the account has the id. It never
	// registered, has unregistered or is forgotten.
	ErrUnknownDelegate = errors.New("unknown delegate")
	// ErrUnknownTask: no task of the account has the id, or it is forgotten.
	ErrUnknownTask = errors.New("unknown task")
	// ErrUnknownWork: no stage or single task of the account has the id, or it is
	// forgotten.
	ErrUnknownWork = errors.New("unknown stage or task")
	// ErrExists: another work or task has the id.
	ErrExists = errors.New("the id is taken")
	// ErrNotOwner: the task belongs to another delegate.
	ErrNotOwner = errors.New("the task belongs to another delegate")
	// ErrFinished: the stage has been released and takes no more tasks.
	ErrFinished = errors.New("the stage has ended")
	// ErrVersion: a newer version of this package has saved the queue. Run that
	// version.
	ErrVersion = errors.New("the queue was saved by a newer version")
)

// Config sets the limits of a queue. The zero value has the defaults.
type Config struct {
	// HeartbeatTimeout is how long a delegate may be silent before it is lost.
	// Delegates send a heartbeat every 10 seconds. Defaults to 60 seconds.
	HeartbeatTimeout time.Duration
	// AcquireTimeout is how long a delegate may leave an offer alone before the work
	// goes back to its old place (rule Q4). Defaults to 30 seconds.
	AcquireTimeout time.Duration
	// AbortGrace is how long a delegate has to answer an aborted task before the task
	// ends without an answer. A delegate that cannot learn of the abort has no time.
	// Defaults to 30 seconds.
	AbortGrace time.Duration
	// AnswerGrace is added to a task's own time-out, so that the delegate, which
	// enforces the time-out too, can answer first. Defaults to 2 seconds.
	AnswerGrace time.Duration
	// ForgetLost is how long the queue remembers a lost delegate, with the cleanups
	// that wait for its return. Defaults to 1 hour.
	ForgetLost time.Duration
	// Retention is how long the queue remembers works that have ended. Defaults to
	// 1 hour.
	Retention time.Duration
	// MaxFinished bounds how many ended works the queue remembers: the newest ones. It
	// keeps works with a cleanup that waits for its delegate, and always the last work
	// that ended. Defaults to 10,000.
	MaxFinished int
	// MaxFinishedBytes bounds the size of ended works with their answers, in bytes. The
	// queue always remembers the newest one. Defaults to 64 MiB.
	MaxFinishedBytes int
	// FairRetention forgets the oldest work of the account that has most, in number or in size,
	// and not the oldest work of all. An account then never displaces the works of another one
	// that has fewer. The newest work displaces no work of another account.
	FairRetention bool
	// Gap is the time without an operation, [Queue.Tick] included, after which the
	// queue assumes that delegates could not reach it: see timer.go. It must exceed the
	// slowest operation of the caller and be below HeartbeatTimeout and
	// AcquireTimeout, for example 10 seconds. Zero and below turn this off.
	Gap time.Duration
	// MaxAttempts bounds how many delegates may run a task that they answer with
	// RETRY_ON_OTHER_DELEGATE. Defaults to 3.
	MaxAttempts int
	// Epoch distinguishes the cursors and ids of this queue from the cursors and ids of
	// other queues. Replicas of a queue need the same one. Defaults to a random text.
	Epoch string
	// Now returns the time of the operation that calls it. Each operation calls it
	// once at most. A time before the previous operation counts as the time of that one.
	// Defaults to the time of the system, without its jumps.
	Now func() time.Time
}

func (c *Config) setDefaults() {
	for setting, value := range map[*time.Duration]time.Duration{
		&c.HeartbeatTimeout: time.Minute, &c.AcquireTimeout: 30 * time.Second, &c.AbortGrace: 30 * time.Second,
		&c.AnswerGrace: 2 * time.Second, &c.ForgetLost: time.Hour, &c.Retention: time.Hour,
	} {
		if *setting <= 0 {
			*setting = value
		}
	}
	for setting, value := range map[*int]int{&c.MaxFinished: 10_000, &c.MaxFinishedBytes: 64 << 20, &c.MaxAttempts: 3} {
		if *setting <= 0 {
			*setting = value
		}
	}
	if c.Epoch == "" {
		c.Epoch = rand.Text()
	}
	if c.Now == nil {
		start := time.Now()
		c.Now = func() time.Time { return start.Add(time.Since(start)) }
	}
}

// Queue is a queue in memory. [New] makes one. Exported methods take its lock; all other
// functions of the package expect that their caller holds it.
type Queue struct {
	cfg  Config
	wake chan struct{}

	mu sync.Mutex
	state
	events []Event
}

// state is the part of a queue that [Queue.Save] saves. Decisions depend only on it and on
// the operations.
type state struct {
	epoch    string
	last     instant // the time of the last operation
	seq      uint64  // the last number that was given to a delegate, work or offer
	accounts map[string]*account
	timers   sorted[alarm]
	finished sorted[finished] // works that have ended and are not forgotten
	byNumber sorted[share]    // accounts by the number of these works
	bySize   sorted[share]    // accounts by their size
	ends     int              // the last number that was given to such a work
	bytes    int              // the size of their answers
	present  int              // delegates that are not lost
	awaited  int              // tasks and leases with a deadline
}

// account is the part of the state that belongs to one account.
type account struct {
	id        string
	delegates map[string]*delegate
	works     map[string]*work
	tasks     map[string]*record

	requirements map[string]*requirement // of works that have not ended, by key
	groups       map[string]*group       // by name
	gate         group                   // of all works, closed by Queue.Pause
	tags         map[string]*tag         // by name
	touched      [2][]*delegate          // by kind, since the last updateCandidates
	finished     sorted[finished]        // works that have ended and are not forgotten
	ended        int                     // the number of these works
	endedBytes   int                     // and their size
	version      uint64                  // changes with the work that delegates are able to take, see requirement.count
}

// New makes an empty queue. Settings of zero and below have their defaults.
func New(cfg Config) *Queue {
	cfg.setDefaults()
	return &Queue{cfg: cfg, wake: make(chan struct{}, 1), state: newState(cfg.Epoch)}
}

func newState(epoch string) state { return state{epoch: epoch, accounts: map[string]*account{}} }

// lock takes the lock and returns the next deadline.
func (q *Queue) lock() instant {
	q.mu.Lock()
	return q.nextDeadline()
}

// unlock gives the lock back. It tells the reader of [Queue.Wake] if the operation has
// made the next deadline earlier.
func (q *Queue) unlock(before instant) {
	if q.nextDeadline() < before {
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
	q.mu.Unlock()
}

// Configure replaces the settings except the clock. An empty Epoch keeps the present
// one. Deadlines that are set already do not move.
func (q *Queue) Configure(cfg Config) {
	defer q.unlock(q.lock())
	cfg.Epoch, cfg.Now = cmp.Or(cfg.Epoch, q.epoch), q.cfg.Now
	cfg.setDefaults()
	q.cfg, q.epoch = cfg, cfg.Epoch
}

// account finds or makes an account.
func (q *Queue) account(id string) *account {
	a := q.accounts[id]
	if a == nil {
		a = &account{
			id: id, delegates: map[string]*delegate{}, works: map[string]*work{}, tasks: map[string]*record{},
			requirements: map[string]*requirement{}, groups: map[string]*group{}, tags: map[string]*tag{},
		}
		q.accounts[id] = a
	}
	return a
}

// find finds an account. It returns an empty one if the queue has none with the id.
func (q *Queue) find(id string) *account {
	if a := q.accounts[id]; a != nil {
		return a
	}
	return &account{}
}

func (q *Queue) delegate(account, id string) (*delegate, error) {
	if d := q.find(account).delegates[id]; d != nil {
		return d, nil
	}
	return nil, ErrUnknownDelegate
}

func (q *Queue) record(account, id string) (*record, error) {
	if r := q.find(account).tasks[id]; r != nil {
		return r, nil
	}
	return nil, ErrUnknownTask
}

func (q *Queue) work(account, id string) (*work, error) {
	if w := q.find(account).works[id]; w != nil {
		return w, nil
	}
	return nil, ErrUnknownWork
}

// number returns the next number.
func (q *Queue) number() uint64 {
	q.seq++
	return q.seq
}
