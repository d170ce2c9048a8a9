package vm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// PoolConfig configures a [Pool].
type PoolConfig struct {
	// Name identifies the pool in stages and logs. Required.
	Name string
	// Dir is the state directory. It lets machines survive the delegate's process. Each pool needs
	// its own directory, and one process at a time may use it. Never copy it, for example in a
	// machine's image: pools with the same directory contents destroy each other's machines. It
	// contains the machines' keys, readable by the delegate's user only. Required.
	Dir string
	// OS and Arch are the platform of the machines, with Go's names. The defaults are "linux" and
	// "amd64".
	OS, Arch string
	// Min is the number of machines to keep warm: ready, and neither claimed nor reserved. The
	// default is 0: the pool creates machines on demand.
	Min int
	// Schedule raises Min at certain times.
	Schedule []Window
	// ShrinkAfter is how long a warm machine must be superfluous until the pool destroys it. The default is 10 minutes for
	// a pool with a Schedule or with Forecast. For other pools it is 0: they keep their warm machines.
	ShrinkAfter time.Duration
	// Forecast announces calls of [Pool.SetWaiting]. It only changes the default of ShrinkAfter.
	Forecast bool
	// Price is the price of a machine for an hour, for the metrics. Any currency will do. 0 means that it is not known.
	Price float64
	// Max is the maximum number of machines. It includes machines that are being created or
	// destroyed, or whose destruction fails. Required, at least Min.
	Max int
	// Parallel is the maximum number of machines that are created at a time. The default is 4.
	Parallel int
	// MaxIdle is the time after which a warm machine is replaced. The default, 0, is unlimited.
	// Jitter shortens MaxIdle and MaxAge by up to 10 percent, so that machines of the same age do
	// not end together.
	MaxIdle time.Duration
	// MaxAge is the maximum age of a machine that is not claimed. The default, 0, is unlimited.
	MaxAge time.Duration
	// MaxUses is the number of transactions that may use a machine, one after the other. The pool
	// reuses a machine only after its agent has removed the resources of the previous transaction.
	// With 0, the default, and 1 the pool destroys a machine after one transaction.
	MaxUses int
	// HealthInterval is the time between health checks of a warm machine. The default is 30 s.
	// HealthTimeout limits a check; the default is 5 s.
	HealthInterval, HealthTimeout time.Duration
	// BootTimeout limits the time from the provider's call until the agent answers. The default is
	// 5 minutes.
	BootTimeout time.Duration
	// DestroyTimeout limits one attempt to destroy a machine. The pool repeats attempts until one
	// succeeds. The default is 2 minutes.
	DestroyTimeout time.Duration
	// MinRetry and MaxRetry limit the pause after a failure. It doubles with each failure, with
	// jitter. The defaults are 1 s and 1 minute.
	MinRetry, MaxRetry time.Duration
	// SweepInterval is the time between searches for machines without a record. The default is 5
	// minutes.
	SweepInterval time.Duration
	// Lease is the time that a claimed machine stays without any call for its transaction (rule
	// T6). Then the pool destroys it. The default is 25 hours, which exceeds the lifetime of
	// transactions.
	Lease time.Duration
	// Metadata is the address of the metadata service of the machines, in the form of EC2's (http://169.254.169.254 in
	// EC2). The agents watch it for notices that the cloud takes a machine away, and the pool asks them every five
	// seconds. The steps on such a machine fail at once, as lost. The machine is not given to another transaction, and
	// replaced. A machine that the cloud only recommends to replace finishes its transaction. Empty means no notices.
	Metadata string
	// KeepWarm makes Close leave warm machines to the next process. The default destroys them.
	KeepWarm bool
	// Labels are the provider's labels of each machine, if the provider supports labels.
	Labels map[string]string
	// Log receives the pool's events. The zero value discards them.
	Log zerolog.Logger
}

// Pool keeps machines warm and gives them to transactions (rule D6). It is safe for concurrent
// use. Create it with [NewPool], start it, pass it to [New], and close it when the transactions
// have ended.
type Pool struct {
	cfg      PoolConfig
	provider Provider
	windows  []window
	bill     bill
	// probe asks a machine's agent for its health.
	probe func(ctx context.Context, r *record) error
	// dial connects to a machine's agent; nil disables connections to machines that are not
	// claimed.
	dial func(ctx context.Context, r *record) (*connection, error)
	// open opens the state directory.
	open func(ctx context.Context, dir string) (records, error)

	records records         // set by Start
	ctx     context.Context //nolint:containedctx // ends when Close begins
	cancel  context.CancelFunc
	// closing is the context of work that continues during Close.
	closing    context.Context //nolint:containedctx // ends when Close stops waiting
	endClosing context.CancelFunc
	wake       chan struct{} // receives a value when there may be work
	work       sync.WaitGroup

	mu       sync.Mutex
	machines map[string]*machine
	queue    []*waiter // ordered by ticket
	tickets  int64
	// reservations that no init has used, by transaction.
	reservations  map[string]*reservation
	running       bool // between Start and Close
	closed        bool
	failuresInRow int       // consecutive failures of creation and health
	lastFailure   error     // last failure
	pausedUntil   time.Time // no creation before this time
	failures      uint64
	demand        int       // stages that wait elsewhere, see SetWaiting
	demandUntil   time.Time // when demand does not count any more
	spareSince    time.Time // when the pool got superfluous warm machines; zero if it has none
	neededSince   int       // the largest number of needed warm machines since then
	sweepAt       time.Time
	sweeping      bool
}

// Stats are the numbers of a [Pool] at one moment.
type Stats struct {
	// Warm, Reserved, Claimed, Creating and Destroying count machines. Their sum never exceeds
	// Max.
	Warm, Reserved, Claimed, Creating, Destroying int
	// Waiting counts transactions that wait for a machine. It includes reservations in the queue.
	Waiting int
	// Expected counts the stages that wait elsewhere, see [Pool.SetWaiting].
	Expected int
	// Failures counts failed creations, health checks and destructions since Start.
	Failures uint64
}

var poolName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// NewPool checks the configuration. It uses neither the disk nor the provider.
func NewPool(provider Provider, cfg PoolConfig) (*Pool, error) {
	if provider == nil {
		return nil, errors.New("pool: the provider is missing")
	}
	if !poolName.MatchString(cfg.Name) {
		return nil, fmt.Errorf("pool: the name %q must be 1 to 128 of A-Z, a-z, 0-9, '.', '_' and '-'", cfg.Name)
	}
	if cfg.Dir == "" {
		return nil, fmt.Errorf("pool %s: the state directory is missing", cfg.Name)
	}
	if cfg.Max < 1 || cfg.Min < 0 || cfg.Min > cfg.Max {
		return nil, fmt.Errorf("pool %s: the minimum is %d and the maximum %d: need 0 <= minimum <= maximum, and a maximum of at least 1",
			cfg.Name, cfg.Min, cfg.Max)
	}
	if cfg.Parallel < 0 || cfg.MaxUses < 0 {
		return nil, fmt.Errorf("pool %s: parallel is %d and the uses are %d; neither may be negative", cfg.Name, cfg.Parallel, cfg.MaxUses)
	}
	for name, d := range map[string]time.Duration{
		"idle time": cfg.MaxIdle, "age": cfg.MaxAge, "health interval": cfg.HealthInterval, "health time-out": cfg.HealthTimeout,
		"boot time-out": cfg.BootTimeout, "destroy time-out": cfg.DestroyTimeout, "shortest retry": cfg.MinRetry,
		"longest retry": cfg.MaxRetry, "sweep interval": cfg.SweepInterval, "lease": cfg.Lease, "shrink time": cfg.ShrinkAfter,
	} {
		if d < 0 {
			return nil, fmt.Errorf("pool %s: the %s %v is negative", cfg.Name, name, d)
		}
	}
	if cfg.Metadata != "" && !strings.HasPrefix(cfg.Metadata, "http://") && !strings.HasPrefix(cfg.Metadata, "https://") {
		return nil, fmt.Errorf("pool %s: the address of the metadata service must begin with http://: %q", cfg.Name, cfg.Metadata)
	}
	if cfg.Price < 0 {
		return nil, fmt.Errorf("pool %s: the price %v is negative", cfg.Name, cfg.Price)
	}
	windows, err := cfg.parseWindows()
	if err != nil {
		return nil, fmt.Errorf("pool %s: %w", cfg.Name, err)
	}
	cfg.fill()
	p := &Pool{cfg: cfg, provider: provider, windows: windows, bill: bill{spent: map[use]time.Duration{}}, wake: make(chan struct{}, 1), machines: map[string]*machine{}, reservations: map[string]*reservation{}}
	p.probe, p.dial, p.open = probeAgent, openConnection, openFolder
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.closing, p.endClosing = context.WithCancel(context.Background())
	return p, nil
}

// fill sets the defaults.
func (c *PoolConfig) fill() {
	set(&c.OS, "linux")
	set(&c.Arch, "amd64")
	set(&c.Parallel, 4)
	set(&c.HealthInterval, 30*time.Second)
	set(&c.HealthTimeout, 5*time.Second)
	set(&c.BootTimeout, 5*time.Minute)
	set(&c.DestroyTimeout, 2*time.Minute)
	set(&c.MinRetry, time.Second)
	set(&c.MaxRetry, max(time.Minute, c.MinRetry))
	set(&c.SweepInterval, 5*time.Minute)
	set(&c.Lease, 25*time.Hour)
	if len(c.Schedule) > 0 || c.Forecast {
		set(&c.ShrinkAfter, shrinkAfter)
	}
}

func set[T comparable](v *T, byDefault T) {
	var zero T
	if *v == zero {
		*v = byDefault
	}
}

// Name returns the pool's name.
func (p *Pool) Name() string { return p.cfg.Name }

// Platform returns the platform of the machines, with Go's names.
func (p *Pool) Platform() (os, arch string) { return p.cfg.OS, p.cfg.Arch }

// Start opens the state directory and keeps machines warm in the background. It takes over the
// machines of an earlier process: healthy warm machines stay warm, claimed machines wait for their
// transaction's cleanup, and all others are destroyed. Start fails if the directory cannot be
// used, or if another process uses it. ctx applies to Start only.
func (p *Pool) Start(ctx context.Context) error {
	f, err := p.open(ctx, p.cfg.Dir)
	if err != nil {
		return fmt.Errorf("pool %s: %w", p.cfg.Name, err)
	}
	records, err := f.read()
	if err != nil {
		return fmt.Errorf("pool %s: %w", p.cfg.Name, errors.Join(err, f.close()))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running || p.closed {
		return errors.Join(fmt.Errorf("pool %s: it was started before", p.cfg.Name), f.close())
	}
	p.records, p.running, p.sweepAt = f, true, time.Now()
	for _, r := range records {
		p.takeOver(r)
	}
	p.dropUsedReservations()
	p.work.Go(p.maintain)
	return nil
}

// Close closes the pool. It refuses waiting transactions, destroys machines that are being
// created, and destroys warm machines unless KeepWarm is set. Claimed machines stay for the next
// process. If ctx ends first, the next process destroys the remaining machines, and Close returns
// an error. It may be called again.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	running := p.running
	p.running, p.closed = false, true
	for _, w := range p.queue {
		if w.reservation == nil {
			close(w.got)
		}
	}
	p.queue = nil
	for _, m := range p.machines {
		m.reservation.releaseWaiter()
		p.disconnect(m)
		if running && (m.phase == warm || m.phase == reservedIdle) && !p.cfg.KeepWarm {
			p.end(m, errClosed)
		}
		// Skips the pause before the next attempt to destroy it.
		m.retryNow()
	}
	p.mu.Unlock()
	p.cancel()
	if !running {
		p.work.Wait()
		p.endClosing()
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.work.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	p.endClosing()
	<-done
	p.mu.Lock()
	defer p.mu.Unlock()
	var remaining []error
	for _, m := range p.machines {
		if m.phase == destroying {
			remaining = append(remaining, fmt.Errorf("machine %s is not destroyed: %w", m.id, errors.Join(m.err, context.Cause(ctx))))
		}
	}
	return errors.Join(errors.Join(remaining...), p.records.close())
}

// errClosed is the error of calls that need a running pool.
var errClosed = errors.New("the pool is closed")

// Stats returns the current numbers.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Stats{Waiting: len(p.queue), Failures: p.failures}
	if time.Now().Before(p.demandUntil) {
		s.Expected = p.demand
	}
	for _, m := range p.machines {
		switch m.phase {
		case creating, adopting:
			s.Creating++
		case warm:
			s.Warm++
		case reserving, reservedIdle:
			s.Reserved++
		case destroying:
			s.Destroying++
		default:
			s.Claimed++
		}
	}
	return s
}

// signal wakes maintain.
func (p *Pool) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// failed counts a failure of creation or health, and delays the next creation. The caller holds
// mu.
func (p *Pool) failed(err error) {
	p.failures++
	p.lastFailure = err
	p.pausedUntil = time.Now().Add(p.retryAfter(p.failuresInRow))
	p.failuresInRow++
}

// retryAfter returns the pause after n+1 consecutive failures.
func (p *Pool) retryAfter(n int) time.Duration {
	d := p.cfg.MaxRetry
	if n < 20 {
		d = min(d, p.cfg.MinRetry<<n)
	}
	return d/2 + rand.N(d/2+1)
}
