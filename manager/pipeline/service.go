package pipeline

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/delegate-io/dlite/manager/pipeline/internal/steps"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// The topics of messages.
const (
	topicEvents   = "events"   // for the engine
	topicCommands = "commands" // for the manager
)

// Service runs pipelines. It is safe for concurrent use.
type Service struct {
	cfg   Config
	store *store.Store
	table *steps.Table
	cache runCache

	stop  context.CancelFunc
	loops sync.WaitGroup

	mu      sync.Mutex
	changed map[runKey]*watch // runs that a caller waits for
}

// watch is a run that callers wait for.
type watch struct {
	changed chan struct{} // closed at the next change
	callers int
}

type runKey struct{ account, id string }

// New opens the database and starts the service's goroutines, which [Service.Close] ends.
func New(ctx context.Context, cfg Config) (*Service, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	table, err := steps.New(cfg.Settings)
	if err != nil {
		return nil, fmt.Errorf("the settings of pipelines: %w", err)
	}
	st, err := store.Open(ctx, cfg.Database)
	if err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, store: st, table: table, changed: map[runKey]*watch{}}
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.start(ctx)
	return s, nil
}

// start starts the loops.
func (s *Service) start(ctx context.Context) {
	for range eventWorkers {
		s.loops.Go(func() { s.consume(ctx, topicEvents, s.deliver) })
	}
	for range commandWorkers {
		s.loops.Go(func() { s.consume(ctx, topicCommands, s.carryOut) })
	}
	for _, account := range s.cfg.Manager.Accounts() {
		s.loops.Go(func() { s.follow(ctx, account) })
	}
	s.loops.Go(func() { s.every(ctx, s.cfg.Lease/6, s.renewLeases) })
	s.loops.Go(func() { s.every(ctx, time.Minute, s.expire) })
	s.loops.Go(func() {
		s.every(ctx, time.Second, func(ctx context.Context) error { return s.fireDue(ctx, time.Now()) })
	})
}

// Close ends the service's work at once. Runs continue when a service with the same database
// starts, or in the other services of that database.
func (s *Service) Close() error {
	s.stop()
	s.loops.Wait()
	return s.store.Close()
}

// Ready returns nil if the database answers.
func (s *Service) Ready(ctx context.Context) error { return s.store.Ping(ctx) }

// every calls do in an interval until ctx ends. A failure is logged and repeated.
func (s *Service) every(ctx context.Context, interval time.Duration, do func(context.Context) error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := do(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Logger.Warn().Err(err).Msg("pipelines: background work failed and will be repeated")
		}
	}
}

// expire removes old runs.
func (s *Service) expire(ctx context.Context) error {
	const batch = 200
	for {
		n, err := s.store.Expire(ctx, time.Now().Add(-s.cfg.Retention), batch)
		if err != nil {
			return err
		}
		if n < batch {
			break
		}
	}
	return s.store.ForgetDeliveries(ctx, time.Now().Add(-s.cfg.Retention))
}

// changes returns a channel that is closed at the next change of a run that this process
// makes. The caller calls stop when it does not wait any more.
func (s *Service) changes(key runKey) (changed <-chan struct{}, stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.changed[key]
	if w == nil {
		w = &watch{changed: make(chan struct{})}
		s.changed[key] = w
	}
	w.callers++
	return w.changed, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if w.callers--; w.callers == 0 && s.changed[key] == w {
			delete(s.changed, key)
		}
	}
}

func (s *Service) announceChange(key runKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.changed[key]; w != nil {
		close(w.changed)
		delete(s.changed, key)
	}
}
