package poller

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
	"github.com/rs/zerolog"
)

// Defaults of the options.
const (
	DefaultInterval  = time.Second
	DefaultWait      = 20 * time.Second
	DefaultHeartbeat = 10 * time.Second
	DefaultGrace     = 30 * time.Second
)

// Unbounded is for [WithGrace]: a drain takes as long as it takes.
const Unbounded time.Duration = 1<<63 - 1

// Option configures a [Poller]. A value that makes no sense panics in [New].
type Option func(*config)

type config struct {
	name, kind, version string
	host, ip            string
	tags                []string
	log                 zerolog.Logger
	slots               *capacity.Slots
	thresholds          *capacity.Thresholds
	filter              func(task.Event) error
	heartbeat           time.Duration
	wait                time.Duration
	grace               time.Duration
	idle                time.Duration
	overrun             time.Duration
	state               *state // nil stores nothing
	stages              Stages // nil without stages
	interval            time.Duration
	signals             []os.Signal
}

func defaults() config {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "delegate"
	}
	return config{
		name: host, host: host, kind: "DOCKER", log: zerolog.Nop(),
		interval: DefaultInterval, heartbeat: DefaultHeartbeat, wait: DefaultWait, grace: DefaultGrace, overrun: overrun,
	}
}

// WithName sets the delegate's name, which is a tag too (SPEC Q3). The default
// is the host's name.
func WithName(name string) Option { return func(c *config) { c.name = name } }

// WithTags adds tags that selectors match.
func WithTags(tags ...string) Option {
	return func(c *config) { c.tags = append(c.tags, slices.Clone(tags)...) }
}

// WithDelegateType sets the type that the delegate registers as. The default is
// "DOCKER".
func WithDelegateType(kind string) Option { return func(c *config) { c.kind = kind } }

// WithVersion sets the version that the delegate registers with. The default is
// none.
func WithVersion(version string) Option { return func(c *config) { c.version = version } }

// WithAddress sets the host name and IP address that the delegate registers
// with. The default is the host's name and no address.
func WithAddress(host, ip string) Option {
	return func(c *config) { c.host, c.ip = host, ip }
}

// WithLogger sets the delegate's own log. The default is none.
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

// WithThresholds refuses init tasks while the host is busier than it allows
// (SPEC P6). The default refuses none.
func WithThresholds(t *capacity.Thresholds) Option { return func(c *config) { c.thresholds = t } }

// WithFilter refuses events: those for which f returns an error, the reason, are
// not acquired. It is asked again about an event that stays on the manager's
// list, about once an interval. f must be quick; one that panics refuses.
func WithFilter(f func(task.Event) error) Option { return func(c *config) { c.filter = f } }

// WithHeartbeat sets the interval of the heartbeats. The default is 10 s, which
// managers expect.
func WithHeartbeat(every time.Duration) Option {
	positive("WithHeartbeat", every)
	return func(c *config) { c.heartbeat = every }
}

// WithWait sets how long a manager that knows the extension may hold a poll
// (SPEC C7). The default is 20 s; 0 turns the extension off.
func WithWait(d time.Duration) Option {
	notNegative("WithWait", d)
	return func(c *config) { c.wait = d }
}

// WithGrace sets how long a drain may go on after the end of Poll's context. The
// default is 30 s. 0 cancels what runs at once, [Unbounded] never. It does not
// apply to [Poller.Shutdown], whose own context says it, while Poll's goes on.
func WithGrace(d time.Duration) Option {
	notNegative("WithGrace", d)
	return func(c *config) { c.grace = d }
}

// WithIdleWait sets how long a drain waits for further tasks of its transactions
// after the last one has ended. The default is 0.
func WithIdleWait(d time.Duration) Option {
	notNegative("WithIdleWait", d)
	return func(c *config) { c.idle = d }
}

// WithState keeps the delegate's id, and what it has acquired and not answered,
// in a folder, which is made when it is missing and which only one poller at a
// time may use. It holds no payloads. A poller that is started again after its
// process died then goes on as the same delegate (SPEC T5): it registers under
// the old id, acquires the tasks of stages that it owes an answer again, and
// hands them to their handlers a second time; a handler that must not do its work
// twice has to recognise the task's id, as those of transaction.Stages do. A
// standalone task that had been acquired, and a task that the manager does not
// give again, are answered FAILED. The default keeps nothing.
func WithState(dir string) Option {
	if dir == "" {
		panic("poller: WithState of no folder")
	}
	return func(c *config) { c.state = &state{dir: dir} }
}

// WithInterval sets how often [Poller.Run] polls a manager that does not hold
// polls. The default is [DefaultInterval].
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
