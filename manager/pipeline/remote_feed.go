package pipeline

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
)

const (
	// maxFeed is the least number of newest events that a feed keeps.
	maxFeed = 4096
	// maxBehind is how long a stream may lack an event that another manager has. Then it is opened again, at the address
	// that answers calls: a manager without its store sends no events, and knows nothing of it.
	maxBehind = 10 * time.Second
)

// remoteFeed keeps the newest events of an account. It numbers them itself, because the numbers of the managers may
// begin anew when their store loses some.
type remoteFeed struct {
	once sync.Once // starts the stream

	mu      sync.Mutex
	kept    []api.Event // the newest events, without a gap
	last    uint64      // the number of the newest event
	missed  uint64      // a reader that is before this number may have missed events
	newest  uint64      // the managers' number of the newest event
	known   bool        // newest is known, because a stream was opened
	ahead   uint64      // an event that a manager has and the stream has not sent
	since   time.Time   // when the first answer showed it
	reopen  func()      // ends the stream, so that it is opened again
	changed chan struct{}
}

// newestEvent returns the managers' number of the newest event.
func (f *remoteFeed) newestEvent() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.newest
}

// compare compares the stream with the newest event of a manager that has answered a call.
func (f *remoteFeed) compare(applied uint64, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case !f.known || applied <= f.newest:
	case f.newest >= f.ahead: // it was not behind before
		f.ahead, f.since = applied, now
	case now.Sub(f.since) > maxBehind && f.reopen != nil:
		f.ahead = 0
		f.reopen()
	}
}

// add adds an event.
func (f *remoteFeed) add(e api.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.kept) >= 2*maxFeed {
		f.kept = append(f.kept[:0], f.kept[maxFeed:]...)
	}
	f.kept = append(f.kept, e)
	f.newest = e.ID
	f.step()
}

// miss notes that events may be missing up to one, by the managers' number. Later numbers may be lower than earlier
// ones.
func (f *remoteFeed) miss(until uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept, f.newest, f.known, f.ahead = nil, until, true, 0
	f.step()
	f.missed = f.last
}

// step takes the next number and wakes the readers. The caller holds the lock.
func (f *remoteFeed) step() {
	f.last++
	close(f.changed)
	f.changed = make(chan struct{})
}

// after returns the events after a number.
func (f *remoteFeed) after(number uint64) manager.Feed {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := manager.Feed{Last: f.last, Changed: f.changed}
	oldest := f.last - uint64(len(f.kept))
	if number > f.last || number < oldest || number < f.missed {
		out.Missed = true
		number = oldest
	}
	out.Events = slices.Clone(f.kept[number-oldest:])
	return out
}

// Events is [manager.Manager.Events]. Its numbers are valid in this process only, and the first call begins to follow the
// managers. After a lost connection it continues with the next event, at another manager if need be.
func (r *Remote) Events(account string, after uint64) manager.Feed {
	a := r.accounts[account]
	if a == nil {
		return manager.Feed{Changed: make(chan struct{})}
	}
	a.feed.once.Do(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.ctx.Err() == nil {
			r.streams.Go(func() { r.stream(r.ctx, account, a) })
		}
	})
	return a.feed.after(after)
}

// stream follows the events of an account until ctx ends.
func (r *Remote) stream(ctx context.Context, account string, a *remoteAccount) {
	for tries := 1; ctx.Err() == nil; tries++ {
		opened, err := a.feed.follow(ctx, a.client)
		if opened {
			tries = 0
		}
		if ctx.Err() != nil {
			return
		}
		if !opened {
			r.log.Warn().Err(err).Str("account", account).Msg("pipelines: cannot follow the events of the manager: runs wait until it answers")
		}
		pause(ctx, pauseAfter(tries))
	}
}

// follow reads a stream until it ends. It reports whether the manager opened it. The first stream of a process begins
// with the next event, so the reader must read the state once. Later streams resume, and the manager reports events that
// it has not kept.
func (f *remoteFeed) follow(ctx context.Context, client *api.Client) (opened bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var from api.EventFilter
	f.mu.Lock()
	f.reopen = cancel
	resumed := f.known
	if resumed {
		from.Since = new(f.newest)
	}
	f.mu.Unlock()
	for e, err := range client.Events(ctx, from) {
		switch {
		case err != nil: // the caller resumes, also after an event that cannot be read
			return opened, err
		case e.Kind == "missed", e.Kind == "open" && !resumed:
			f.miss(e.ID)
		case e.Kind == "status": // a place changes no status
			f.add(e)
		}
		opened = true
	}
	return opened, nil
}
