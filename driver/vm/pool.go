package vm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// PoolConfig says what a [Pool] keeps.
type PoolConfig struct {
	// Name is what a stage asks for the pool by, and is told in logs. Required.
	Name string
	// Dir is the state folder, which makes machines survive the delegate's process
	// and be found again. Each pool has its own, and one process at a time may use
	// it. A copy of it, as in a machine's image, is no other pool: each of the two would
	// destroy the machines of the other, which it does not know. It holds the machines'
	// keys, readable by the user that the delegate runs as. Required.
	Dir string
	// OS and Arch are the platform of the machines, in Go's names for those. The
	// defaults are "linux" and "amd64".
	OS, Arch string
	// Min is how many machines are kept warm: ready, and neither claimed nor reserved. The
	// default is 0: a machine is made when somebody asks for it.
	Min int
	// Max is how many machines there are at most, those included that are being
	// made or destroyed, or whose destruction fails. Required, and at least Min.
	Max int
	// Parallel is how many machines are made at once. The default is 4.
	Parallel int
	// MaxIdle is how long a machine stays warm before it is replaced. The default,
	// 0, is without end. Both ages are up to a tenth shorter, so that machines that
	// were made together do not end together.
	MaxIdle time.Duration
	// MaxAge is how old a machine may become that nobody has claimed. The default,
	// 0, is without end.
	MaxAge time.Duration
	// MaxUses is how many transactions may have a machine one after the other. It
	// is given to the next one only when the agent has removed all that the one
	// before had made. With the default, 0, and with 1 a machine is destroyed after
	// one transaction.
	MaxUses int
	// HealthInterval is the time between two looks at a warm machine. The default
	// is 30 s. HealthTimeout bounds a look; the default is 5 s.
	HealthInterval, HealthTimeout time.Duration
	// BootTimeout is how long a machine may take from the call of its provider until
	// its agent answers. The default is 5 minutes.
	BootTimeout time.Duration
	// DestroyTimeout bounds one attempt to destroy a machine; there are as many as
	// it takes. The default is 2 minutes.
	DestroyTimeout time.Duration
	// MinRetry and MaxRetry bound the time until something that has failed is
	// tried again; it doubles with every failure, with jitter. The defaults are 1 s
	// and 1 minute.
	MinRetry, MaxRetry time.Duration
	// SweepInterval is the time between two searches for machines that no record
	// knows. The default is 5 minutes.
	SweepInterval time.Duration
	// Lease is how long a claimed machine stays without any call for its
	// transaction (SPEC T6), should its cleanup never come. The default is 25 hours,
	// which is longer than transactions have.
	Lease time.Duration
	// KeepWarm leaves warm machines to the next process when the pool is closed,
	// instead of destroying them.
	KeepWarm bool
	// Labels go to where the provider has labels.
	Labels map[string]string
	// Log takes what the pool has to say. The zero value drops it.
	Log zerolog.Logger
}

// Pool keeps machines warm and gives them to transactions (SPEC D6). It is safe
// for concurrent use. Make it with [NewPool], start it, give it to [New], and
// close it when the transactions have ended.
type Pool struct {
	cfg      PoolConfig
	provider Provider
	// probe asks a machine's agent for its health.
	probe func(ctx context.Context, r *record) error
	// dial connects to a machine's agent; nil connects to none before it is claimed.
	dial func(ctx context.Context, r *record) (*line, error)
	// open takes the state folder.
	open func(ctx context.Context, dir string) (records, error)

	records records         // set by Start
	ctx     context.Context //nolint:containedctx // ends when the pool is closed
	cancel  context.CancelFunc
	// last is the context of what goes on while the pool is being closed.
	last    context.Context //nolint:containedctx // ends when Close has waited long enough
	endLast context.CancelFunc
	wake    chan struct{} // gets a value when there may be something to do
	work    sync.WaitGroup

	mu       sync.Mutex
	machines map[string]*machine
	queue    []*waiter // in the order of their tickets
	tickets  int64
	// reservations are those that no init has used, by transaction.
	reservations map[string]*reservation
	running      bool // between Start and Close
	closed       bool
	bad          int       // failures in a row of what makes machines warm
	why          error     // the last of them
	pause        time.Time // until when no machine is made
	failures     uint64
	sweepAt      time.Time
	sweeping     bool
}

// Stats are numbers of a [Pool] at one moment.
type Stats struct {
	// Warm, Reserved, Claimed, Creating and Destroying count machines. Together
	// they are never more than Max.
	Warm, Reserved, Claimed, Creating, Destroying int
	// Waiting counts the transactions that wait for a machine, those included that
	// have reserved one and whose init has not come.
	Waiting int
	// Failures counts what has failed since Start: making a machine, its health,
	// destroying it.
	Failures uint64
}

var poolName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// NewPool checks the configuration. It touches neither the disk nor the provider.
func NewPool(provider Provider, cfg PoolConfig) (*Pool, error) {
	if provider == nil {
		return nil, errors.New("pool: it has no provider")
	}
	if !poolName.MatchString(cfg.Name) {
		return nil, fmt.Errorf("pool: the name %q must be 1 to 128 of A-Z, a-z, 0-9, '.', '_' and '-'", cfg.Name)
	}
	if cfg.Dir == "" {
		return nil, fmt.Errorf("pool %s: it has no state folder", cfg.Name)
	}
	if cfg.Max < 1 || cfg.Min < 0 || cfg.Min > cfg.Max {
		return nil, fmt.Errorf("pool %s: the minimum is %d and the maximum %d; wanted is 0 <= minimum <= maximum, and a maximum of at least 1",
			cfg.Name, cfg.Min, cfg.Max)
	}
	if cfg.Parallel < 0 || cfg.MaxUses < 0 {
		return nil, fmt.Errorf("pool %s: parallel is %d and the uses are %d; neither may be negative", cfg.Name, cfg.Parallel, cfg.MaxUses)
	}
	for name, d := range map[string]time.Duration{
		"idle time": cfg.MaxIdle, "age": cfg.MaxAge, "health interval": cfg.HealthInterval, "health time-out": cfg.HealthTimeout,
		"boot time-out": cfg.BootTimeout, "destroy time-out": cfg.DestroyTimeout, "shortest retry": cfg.MinRetry,
		"longest retry": cfg.MaxRetry, "sweep interval": cfg.SweepInterval, "lease": cfg.Lease,
	} {
		if d < 0 {
			return nil, fmt.Errorf("pool %s: the %s %v is negative", cfg.Name, name, d)
		}
	}
	cfg.fill()
	p := &Pool{cfg: cfg, provider: provider, wake: make(chan struct{}, 1), machines: map[string]*machine{}, reservations: map[string]*reservation{}}
	p.probe, p.dial, p.open = probeAgent, openLine, openFolder
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.last, p.endLast = context.WithCancel(context.Background())
	return p, nil
}

// fill puts in the defaults.
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
}

func set[T comparable](v *T, byDefault T) {
	var zero T
	if *v == zero {
		*v = byDefault
	}
}

// Name is the pool's.
func (p *Pool) Name() string { return p.cfg.Name }

// Platform is that of its machines, in Go's names.
func (p *Pool) Platform() (os, arch string) { return p.cfg.OS, p.cfg.Arch }

// Start takes the state folder and begins to keep machines warm, in the
// background. What an earlier process has left is taken over: warm machines that
// are healthy stay, claimed ones wait for their transaction's cleanup, all others
// are destroyed. It fails when the folder cannot be used, or another process has
// it. ctx bounds Start alone.
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
		return errors.Join(fmt.Errorf("pool %s: it has been started before", p.cfg.Name), f.close())
	}
	p.records, p.running, p.sweepAt = f, true, time.Now()
	for _, r := range records {
		p.takeOver(r)
	}
	p.dropUsed()
	p.work.Go(p.tend)
	return nil
}

// Close ends the pool. Whoever waits for a machine is refused, what is being made
// is destroyed, warm machines too unless they are to be kept, and claimed ones are
// left to the next process. When ctx ends, what could not be destroyed is left to
// the next process as well, which is an error. It may be called again.
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
		m.reservation.disinherit()
		p.disconnect(m)
		if running && (m.phase == warm || m.phase == setApart) && !p.cfg.KeepWarm {
			p.end(m, errClosed)
		}
		// Whoever tries again to destroy one need not wait to do so.
		m.hurry()
	}
	p.mu.Unlock()
	p.cancel()
	if !running {
		p.work.Wait()
		p.endLast()
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
	p.endLast()
	<-done
	p.mu.Lock()
	defer p.mu.Unlock()
	var left []error
	for _, m := range p.machines {
		if m.phase == destroying {
			left = append(left, fmt.Errorf("machine %s is left: %w", m.id, errors.Join(m.err, context.Cause(ctx))))
		}
	}
	return errors.Join(errors.Join(left...), p.records.close())
}

// errClosed says that a pool gives out no machines.
var errClosed = errors.New("the pool is closed")

// Stats tells what the pool has now.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Stats{Waiting: len(p.queue), Failures: p.failures}
	for _, m := range p.machines {
		switch m.phase {
		case creating, adopting:
			s.Creating++
		case warm:
			s.Warm++
		case reserving, setApart:
			s.Reserved++
		case destroying:
			s.Destroying++
		default:
			s.Claimed++
		}
	}
	return s
}

// stir makes the tender look whether there is something to do.
func (p *Pool) stir() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// failed counts a failure of what makes machines warm, and lets the next attempt
// wait. The caller holds mu.
func (p *Pool) failed(err error) {
	p.failures++
	p.why = err
	p.pause = time.Now().Add(p.retryAfter(p.bad))
	p.bad++
}

// retryAfter is the time until the next attempt after n failures and one.
func (p *Pool) retryAfter(n int) time.Duration {
	d := p.cfg.MaxRetry
	if n < 20 {
		d = min(d, p.cfg.MinRetry<<n)
	}
	return d/2 + rand.N(d/2+1)
}
