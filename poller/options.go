package poller

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
	"github.com/rs/zerolog"
)

// Defaults of the options.
const (
	defaultInterval  = time.Second
	defaultWait      = 20 * time.Second
	defaultHeartbeat = 10 * time.Second
	defaultGrace     = 30 * time.Second
)

// Unbounded is a value for [WithGrace]: the drain has no time limit.
const Unbounded time.Duration = 1<<63 - 1

// Option configures a [Poller]. An invalid value panics in the option or in [New].
type Option func(*config)

type config struct {
	name       string
	self       client.Registration // see WithRegistration
	tags       []string
	log        zerolog.Logger
	slots      *capacity.Slots
	thresholds *capacity.Thresholds
	filter     func(task.Event) error
	heartbeat  time.Duration
	wait       time.Duration
	grace      time.Duration
	graceGiven bool // by WithGrace
	idle       time.Duration
	overrun    time.Duration
	state      *state // nil stores nothing
	stages     Stages // nil without stages
	daemons    Daemons
	perpetual  map[string]task.Perpetual
	interval   time.Duration
	signals    []os.Signal
}

func defaults() config {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "delegate"
	}
	return config{
		name: host, self: client.Registration{HostName: host, DelegateType: "DOCKER"}, log: zerolog.Nop(),
		interval: defaultInterval, heartbeat: defaultHeartbeat, wait: defaultWait, grace: defaultGrace, overrun: overrun,
	}
}

// WithName sets the delegate's name, which is also a tag (rule Q3). The default is
// the host name.
func WithName(name string) Option { return func(c *config) { c.name = name } }

// WithTags adds tags that selectors match.
func WithTags(tags ...string) Option {
	return func(c *config) { c.tags = append(c.tags, slices.Clone(tags)...) }
}

// WithRegistration changes what the delegate tells the manager about itself: DelegateType
// is "DOCKER" by default, HostName is the host name, and Version and IP are empty. The
// poller sets the other fields of the registration itself.
func WithRegistration(change func(*client.Registration)) Option {
	return func(c *config) { change(&c.self) }
}

// WithLogger sets the delegate's log, to which the poller adds the label delegate.
// Handlers find it, with the labels of their task, in their context. The default
// discards.
func WithLogger(log zerolog.Logger) Option { return func(c *config) { c.log = log } }

// WithSlots bounds how many stages run at once (rule Q1). It is for delegates with
// their own init handlers, which find the slot with [capacity.FromContext]. It
// excludes [WithStages], which brings slots. The default is no bound.
func WithSlots(slots *capacity.Slots) Option {
	return func(c *config) {
		if slots == nil {
			panic("poller: WithSlots of nil")
		}
		c.slots = slots
	}
}

// WithThresholds refuses init tasks while the host is busier than t allows (rule
// P6). The default refuses none.
func WithThresholds(t *capacity.Thresholds) Option { return func(c *config) { c.thresholds = t } }

// WithFilter refuses the events for which f returns an error, the reason. Refused
// tasks are not acquired. While the manager lists the event, f is called again,
// about once an interval. f must return quickly. An f that panics refuses.
func WithFilter(f func(task.Event) error) Option { return func(c *config) { c.filter = f } }

// WithHeartbeat sets the interval of the heartbeats. The default is 10 s, which
// managers expect.
func WithHeartbeat(every time.Duration) Option {
	positive("WithHeartbeat", every)
	return func(c *config) { c.heartbeat = every }
}

// WithWait sets how long a manager may hold a poll, if it supports that (rule C7).
// The default is 20 s. 0 turns it off.
func WithWait(d time.Duration) Option {
	notNegative("WithWait", d)
	return func(c *config) { c.wait = d }
}

// WithGrace sets how long a drain may take after the end of Poll's context and after
// the first of [WithSignals]. The default is 30 s after the context and no limit after
// a signal. With 0 running tasks are cancelled at once, with [Unbounded] never. It does
// not apply to a drain that [Poller.Shutdown] begins.
func WithGrace(d time.Duration) Option {
	notNegative("WithGrace", d)
	return func(c *config) { c.grace, c.graceGiven = d, true }
}

// WithIdleWait sets how long a drain waits, after the last task has ended, for
// further tasks of its transactions. The default is 0.
func WithIdleWait(d time.Duration) Option {
	notNegative("WithIdleWait", d)
	return func(c *config) { c.idle = d }
}

// WithState stores the delegate's id and its unanswered tasks in dir. The
// directory is created if it is missing, and only one poller at a time may use it.
// It holds no payloads. A poller that starts after its process died then continues
// as the same delegate (rule T5). It registers with the previous id. It acquires
// the stage tasks again that it has not answered, and gives them to their handlers
// a second time. A handler that must not work twice has to recognise the task's
// id, as transaction.Stages does. A standalone task that had been acquired is
// answered FAILED, and so is a task that the manager does not give again. The
// default stores nothing.
func WithState(dir string) Option {
	if dir == "" {
		panic("poller: WithState of no folder")
	}
	return func(c *config) { c.state = &state{dir: dir} }
}

// WithInterval sets how often [Poller.Run] polls a manager that does not hold
// polls. The default is 1 s.
func WithInterval(d time.Duration) Option {
	positive("WithInterval", d)
	return func(c *config) { c.interval = d }
}

func positive(name string, d time.Duration) {
	if d <= 0 {
		panic(fmt.Sprintf("poller: %s(%s): it must be above 0", name, d))
	}
}

func notNegative(name string, d time.Duration) {
	if d < 0 {
		panic(fmt.Sprintf("poller: %s(%s): it must not be negative", name, d))
	}
}
