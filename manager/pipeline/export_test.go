package pipeline

import (
	"context"
	"time"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// RenewBefore renews the leases that were last renewed before a time.
func (s *Service) RenewBefore(ctx context.Context, before time.Time) error {
	return s.renewBefore(ctx, before)
}

// Waiters returns the number of runs that callers wait for.
func (s *Service) Waiters() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.changed)
}

// Tuned returns a configuration whose messages are claimed for a time and given up after some
// tries. Close is abrupt: it leaves claimed messages as a killed process does.
func Tuned(cfg Config, claim time.Duration, tries int, abrupt bool) Config {
	cfg.tuning = tuning{claim: claim, tries: tries, abrupt: abrupt}
	return cfg
}

// FireDue starts the runs of the cron triggers that are due at a time.
func (s *Service) FireDue(ctx context.Context, at time.Time) error { return s.fireDue(ctx, at) }

// Feed is the feed of a [Remote] whose stream counts how often it is opened again.
type Feed struct {
	remoteFeed

	reopened int
}

// NewFeed returns a feed that knows the events up to a number of the managers.
func NewFeed(newest uint64) *Feed {
	f := &Feed{remoteFeed: remoteFeed{changed: make(chan struct{})}}
	f.miss(newest)
	f.reopen = func() { f.reopened++ }
	return f
}

// Compare compares the stream with the newest event of an answer.
func (f *Feed) Compare(applied uint64, now time.Time) { f.compare(applied, now) }

// Add adds an event of the stream.
func (f *Feed) Add(e api.Event) { f.add(e) }

// Reopened returns how often the stream was ended to be opened again.
func (f *Feed) Reopened() int { return f.reopened }

// SyncSources writes the perpetual tasks of the sources that are due at a time.
func (s *Service) SyncSources(ctx context.Context, at time.Time) error { return s.syncSources(ctx, at) }

// StartArrivals starts the runs of the events of sources that are due at a time.
func (s *Service) StartArrivals(ctx context.Context, at time.Time) error {
	return s.startArrivals(ctx, at)
}

// DeliverStatuses looks at the statuses of commits that are due at a time.
func (s *Service) DeliverStatuses(ctx context.Context, at time.Time) error {
	return s.deliverStatuses(ctx, at)
}

// QueueStatus queues a state of a run for a commit, as a change of the run does.
func (s *Service) QueueStatus(ctx context.Context, account, run string, began time.Time, commit, connector, state string) error {
	target := commitTarget{Provider: "github", Connector: connector, Server: "https://forge.invalid", Repository: "a/b", Commit: commit, Context: "c"}
	return s.store.Update(ctx, func(tx *store.Tx) error {
		live := liveRun{run: &store.Run{Account: account, ID: run, Created: began}, due: &wantedStatus{target: target, state: state}}
		return live.queueStatus(tx)
	})
}
