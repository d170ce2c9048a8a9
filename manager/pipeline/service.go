package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/delegate-io/dlite/internal/source"
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
	cache caches

	counts   counts
	owner    string            // of claims
	queues   map[string]*queue // of messages for the workers of this process, by topic
	outgoing map[string]*queue // of messages for Redis
	streams  store.Streams     // nil if messages stay in the database
	finished chan store.Message
	own      ownParts

	stop  context.CancelFunc
	loops sync.WaitGroup

	mu         sync.Mutex
	changed    map[runKey]*watch            // runs that a caller waits for
	logStreams map[string]int               // streams of logs by account
	runFeeds   map[string]map[*runFeed]bool // by account
	newest     map[string]*newestRuns       // by account
	holds      map[runKey]time.Time         // of statuses, by account and connector
}

// watch is a run that callers wait for. The mutex of the service guards it.
type watch struct {
	head    *store.Run    // after the last change by this process, nil before the first
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
	s := &Service{
		cfg: cfg, store: st, table: table, changed: map[runKey]*watch{}, owner: newOwner(), finished: make(chan store.Message, queued), counts: newCounts(), logStreams: map[string]int{},
		runFeeds: map[string]map[*runFeed]bool{}, newest: map[string]*newestRuns{}, holds: map[runKey]time.Time{},
		queues: map[string]*queue{topicEvents: newQueue(), topicCommands: newQueue()},
	}
	if err := s.openStreams(ctx); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	for topic := range s.queues {
		st.SetTaker(topic, s.taker(topic))
	}
	s.cache.setBounds()
	s.own.most = mostOwn
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.start(ctx)
	return s, nil
}

// start starts the loops.
func (s *Service) start(ctx context.Context) {
	s.loops.Go(func() { s.consume(ctx, topicEvents, eventWorkers, s.deliver) })
	s.loops.Go(func() { s.consume(ctx, topicCommands, commandWorkers, s.carryOut) })
	s.loops.Go(func() { s.finishAll(ctx) })
	for _, account := range s.cfg.Manager.Accounts() {
		s.loops.Go(func() { s.follow(ctx, account) })
		s.loops.Go(func() { s.record(ctx, account) })
	}
	s.loops.Go(func() { s.every(ctx, s.cfg.Lease/6, s.renewLeases) })
	s.loops.Go(func() { s.every(ctx, time.Minute, s.expire) })
	s.loops.Go(func() {
		s.every(ctx, time.Second, func(ctx context.Context) error { return s.fireDue(ctx, time.Now()) })
	})
	s.loops.Go(func() {
		s.every(ctx, time.Second, func(ctx context.Context) error { return s.deliverStatuses(ctx, time.Now()) })
	})
	if m, ok := s.cfg.Manager.(perpetuals); ok {
		for _, taskType := range []string{source.TypeGit, source.TypeRegistry} {
			s.loops.Go(func() { s.consumeSources(ctx, m, taskType) })
		}
		s.loops.Go(func() {
			s.every(ctx, time.Second, func(ctx context.Context) error {
				return errors.Join(s.syncSources(ctx, time.Now()), s.startArrivals(ctx, time.Now()))
			})
		})
	}
}

// Close ends the service's work at once. Runs continue when a service with the same database
// starts, or in the other services of that database.
func (s *Service) Close() error {
	s.stop()
	var err error
	if s.streams != nil {
		err = s.streams.Interrupt()
	}
	s.loops.Wait()
	if s.streams != nil {
		err = errors.Join(err, s.streams.Close())
	}
	return errors.Join(err, s.store.Close())
}

// openStreams connects to Redis, if there is one.
func (s *Service) openStreams(ctx context.Context) (err error) {
	if s.cfg.Streams == nil {
		return nil
	}
	if s.streams, err = s.cfg.Streams(ctx, s.owner); err != nil {
		return err
	}
	s.owner = store.InStreams
	s.outgoing = map[string]*queue{topicEvents: newQueue(), topicCommands: newQueue()}
	return nil
}

// Ready returns nil if the database answers, and the Redis if there is one.
func (s *Service) Ready(ctx context.Context) error {
	if err := s.store.Ping(ctx); err != nil || s.streams == nil {
		return err
	}
	return s.streams.Ping(ctx)
}

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

// watch returns the changes of a run that this process makes. The caller calls stop when it does not wait any more.
func (s *Service) watch(key runKey) (changes func() (*store.Run, <-chan struct{}), stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.changed[key]
	if w == nil {
		w = &watch{changed: make(chan struct{})}
		s.changed[key] = w
	}
	w.callers++
	changes = func() (*store.Run, <-chan struct{}) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return w.head, w.changed
	}
	return changes, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if w.callers--; w.callers == 0 {
			delete(s.changed, key)
		}
	}
}

// announceChange gives a run that this process has changed to the callers that wait for it, and to the feeds.
func (s *Service) announceChange(run *store.Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.announceRun(run)
	if w := s.changed[runKey{run.Account, run.ID}]; w != nil && (w.head == nil || w.head.Version < run.Version) {
		w.head = run
		close(w.changed)
		w.changed = make(chan struct{})
	}
}
