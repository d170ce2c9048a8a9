package queuetest

import (
	"math"
	"time"
)

// model is the expected state of the managers. Times count from its start.
type model struct {
	set      settings
	now      time.Duration
	seq      int // the sequence number of the last event
	accounts []*account
	ended    []*work // in the order of their ends
	events   []event // events that the stages have not handled yet
}

// settings are the settings of the managers.
type settings struct {
	heartbeat, acquire, abort, answer, forget, retention time.Duration
	task, cleanup, queue                                 time.Duration
	finished, attempts                                   int
}

const never = time.Duration(math.MaxInt64)

type account struct {
	name, token    string
	delegates      []*delegate // in the order of their registration
	removed        []string    // ids of removed delegates
	works          []*work     // in the order of their submission
	limits         map[string]int
	paused         bool
	expectedEvents []string // expected events
	lastEvent      int      // id of the last event that was compared
	idCount        int      // number of ids that stages and tasks got
}

type delegate struct {
	acc                            *account
	id, name                       string
	tags, types                    []string
	group                          string
	maxStages                      int  // capacity in stages; 0 is unbounded
	drainsItself, drainedByManager bool // draining according to the delegate, and on request of an operator
	silent                         bool // sends no heartbeats
	lost, removed                  bool
	unaware                        bool // polls without wait, so it does not learn of aborts
	order                          int
	idle                           time.Duration
	at                             time.Duration // when it is lost or, after that, forgotten
	open                           []*record     // offered and acquired tasks, in the order of the offers
	stops                          map[string]*record
}

type state int

const (
	waiting      state = iota
	delayed            // waits for its back-off
	firstOffered       // its first task is offered
	running
	over
)

// rejection is how a work item came back from a delegate.
type rejection int

const (
	missed rejection = iota + 1
	refused
)

// work is a stage or a single task.
type work struct {
	acc          *account
	id, request  string
	high         bool
	selectors    []string
	variants     [][]string // the task types of each
	groups       []string
	queueTimeout time.Duration
	notBefore    time.Duration

	seq        int
	state      state
	d          *delegate
	variant    int
	rejections map[string]rejection // by delegate id
	first      *record
	tasks      []*record     // all tasks of the work
	at         time.Duration // when its wait, offer, run or retention ends
	leaseSeq   int
	leaseEnds  time.Duration // the zero value without a lease

	*stage // nil for a single task
}

type taskState int

const (
	idle taskState = iota
	offered
	acquired
	done
)

type record struct {
	w         *work
	id, kind  string
	timeout   time.Duration
	state     taskState
	d         *delegate // the delegate that has the task, or had it last
	seq       int
	submitted time.Duration
	at        time.Duration // when its time ends

	wasAcquired bool // a delegate has acquired it
	detached    bool // the stage does not wait for it
	awaitsAgent bool // an agent answers later
	stopping    bool
	answered    bool
	former      bool // it was the first task of an earlier attempt
	handedBack  bool // the delegate answered that another one should run it
	outcome     string
}

func (m *model) number() int {
	m.seq++
	return m.seq
}
