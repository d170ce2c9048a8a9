package queuetest

import (
	"math"
	"time"
)

// model is what the managers should know. Times are since its beginning.
type model struct {
	set      settings
	now      time.Duration
	seq      int // the order of things
	accounts []*account
	ended    []*work // in the order of their ends
	events   []event // that the stages have not followed yet
}

// settings are those of the managers.
type settings struct {
	heartbeat, acquire, abort, answer, forget, retention time.Duration
	task, cleanup, queue                                 time.Duration
	finished, attempts                                   int
}

const never = time.Duration(math.MaxInt64)

type account struct {
	name, token string
	delegates   []*delegate // in the order of their registration
	gone        []string    // ids of former delegates
	works       []*work     // in the order of their submission
	limits      map[string]int
	paused      bool
	news        []string // the events that are expected
	last        int      // id of the last one that was seen
	names       int      // that were given to stages and tasks
}

type delegate struct {
	acc           *account
	id, name      string
	tags, types   []string
	most          int  // stages, 0 is unbounded
	says, told    bool // to drain: itself, and its manager
	silent        bool // sends no heartbeats
	lost, removed bool
	order         int
	idle          time.Duration
	at            time.Duration // lost, then forgotten
	open          []*record     // offered and acquired, in the order of the offers
	stops         map[string]*record
}

type state int

const (
	waiting state = iota
	later         // waits for its time
	given         // its first task is offered
	running
	over
)

// fate is what became of a work at a delegate.
type fate int

const (
	missed fate = iota + 1
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

	seq     int
	state   state
	d       *delegate
	variant int
	was     map[string]fate // by the ids of delegates
	first   *record
	tasks   []*record     // all of them
	at      time.Duration // the end of its wait, its offer, its run, its retention

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
	d         *delegate // that has it, or had it last
	seq       int
	submitted time.Duration
	at        time.Duration // the end of its time

	begun    bool // a delegate has acquired it
	detached bool // the stage does not wait for it
	half     bool // an agent will answer
	stopping bool
	answered bool
	former   bool // it was the first of an earlier attempt
	outcome  string
}

func (m *model) number() int {
	m.seq++
	return m.seq
}
