package pipeline

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

const (
	// mostRunFeeds bounds the feeds of an account.
	mostRunFeeds = 1000
	// mostWaiting bounds the changes that wait until a feed sends them.
	mostWaiting = 5000
	// feedPause is the least time between two messages of a feed: a run that changes often is sent once in it.
	feedPause = time.Second
)

// runFeed collects the runs of an account that have changed. The mutex of the service guards it.
type runFeed struct {
	changed map[string]*runText // by id, until they are sent
	lost    bool                // there were too many
	wake    chan struct{}
}

// runText is a run, and its JSON, which all feeds share.
type runText struct {
	run  *store.Run
	text func() ([]byte, error)
}

// openRunFeed begins a feed. It fails with [ErrBudget].
func (s *Service) openRunFeed(account string) (f *runFeed, end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.runFeeds[account]) >= mostRunFeeds {
		return nil, nil, fmt.Errorf("%w: the account has %d feeds of runs at the same time, which is the most", ErrBudget, mostRunFeeds)
	}
	f = &runFeed{changed: map[string]*runText{}, wake: make(chan struct{}, 1)}
	if s.runFeeds[account] == nil {
		s.runFeeds[account] = map[*runFeed]bool{}
	}
	s.runFeeds[account][f] = true
	return f, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.runFeeds[account], f)
		if len(s.runFeeds[account]) == 0 {
			delete(s.runFeeds, account)
			delete(s.newest, account)
		}
	}, nil
}

// announceRun gives a run to the feeds of its account. The caller holds mu.
func (s *Service) announceRun(run *store.Run) {
	feeds := s.runFeeds[run.Account]
	if len(feeds) == 0 {
		return
	}
	t := &runText{run, sync.OnceValues(func() ([]byte, error) { return json.Marshal(summary(run)) })}
	for f := range feeds {
		f.add(t)
	}
}

// add adds a change. The caller holds mu of the service.
func (f *runFeed) add(t *runText) {
	known := f.changed[t.run.ID]
	switch {
	case known != nil && known.run.Version >= t.run.Version:
		return
	case known == nil && len(f.changed) >= mostWaiting:
		f.changed, f.lost = map[string]*runText{}, true
	case !f.lost:
		f.changed[t.run.ID] = t
	}
	signal(f.wake)
}

// take returns the changes since the last call, the oldest run first, and reports whether there were too many.
func (s *Service) take(f *runFeed) (changed []*runText, lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed, lost = slices.Collect(maps.Values(f.changed)), f.lost
	clear(f.changed)
	f.lost = false
	slices.SortFunc(changed, func(a, b *runText) int {
		return cmp.Or(a.run.Created.Compare(b.run.Created), cmp.Compare(a.run.ID, b.run.ID))
	})
	return changed, lost
}

// readNewest announces the newest runs that other processes have changed. All feeds of an account share what it reads.
func (s *Service) readNewest(ctx context.Context, account string) error {
	s.mu.Lock()
	n := s.newest[account]
	if n == nil {
		n = &newestRuns{versions: map[string]int64{}}
		s.newest[account] = n
	}
	fresh := time.Since(n.at) < poll
	if !fresh {
		n.at = time.Now()
	}
	s.mu.Unlock()
	if fresh {
		return nil
	}
	rows, _, err := s.store.Runs(ctx, store.Filter{Account: account, Limit: maxPage})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	versions := make(map[string]int64, len(rows))
	for i := range rows {
		versions[rows[i].ID] = rows[i].Version
		if len(n.versions) > 0 && n.versions[rows[i].ID] < rows[i].Version {
			s.announceRun(&rows[i])
		}
	}
	n.versions = versions
	return nil
}

// newestRuns are the versions of the newest runs of an account. The mutex of the service guards it.
type newestRuns struct {
	at       time.Time
	versions map[string]int64 // by id
}

// runEvents streams the runs that change, without their nodes.
func (a *handlers) runEvents(w http.ResponseWriter, r *http.Request) {
	account := a.account(r)
	f, end, err := a.service.openRunFeed(account)
	if err != nil {
		answer(w, 0, nil, err)
		return
	}
	defer end()
	stream := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	var others <-chan time.Time
	if a.service.store.Shared() {
		tick := time.NewTicker(poll)
		defer tick.Stop()
		others = tick.C
	}
	idle := time.NewTicker(heartbeat)
	defer idle.Stop()
	text := "event: missed\ndata: {}\n\n" // the client reads the runs now: the feed has all changes from here on
	for {
		if text != "" && writeEvent(w, stream, text) != nil {
			return
		}
		text = ""
		select {
		case <-r.Context().Done():
			return
		case <-idle.C:
			text = ": idle\n\n"
		case <-others:
			if err := a.service.readNewest(r.Context(), account); err != nil && r.Context().Err() == nil {
				return // the client reconnects
			}
		case <-f.wake:
			if text, err = a.service.runMessages(f); err != nil {
				return
			}
			if text != "" && writeEvent(w, stream, text) != nil {
				return
			}
			text = ""
			pause(r.Context(), feedPause)
		}
	}
}

// runMessages returns the messages for the changes of a feed.
func (s *Service) runMessages(f *runFeed) (string, error) {
	changed, lost := s.take(f)
	var out strings.Builder
	if lost {
		out.WriteString("event: missed\ndata: {}\n\n")
	}
	for _, t := range changed {
		b, err := t.text()
		if err != nil {
			return "", fmt.Errorf("encoding a run: %w", err)
		}
		out.WriteString("data: ")
		out.Write(b)
		out.WriteString("\n\n")
	}
	return out.String(), nil
}
