package manager

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/delegate-io/dlite/manager/api"
)

// The values of [api.Event.Type].
const (
	stageEvent    = "stage"
	stepEvent     = "step"
	taskEvent     = "task"
	delegateEvent = "delegate"
)

// LastEventHeader is the header of answers with the state of a stage or a step, and of the stream of events. Its value
// is the id of an event: the state has all changes up to that event, and a stream without since begins after it. A caller of
// several managers tells by it that one has not applied an event yet that another one has reported.
const LastEventHeader = "Dlite-Last-Event"

// setLastEvent sets [LastEventHeader]. The caller reads the state after it.
func (m *Manager) setLastEvent(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(LastEventHeader, strconv.FormatUint(m.core.lastEvent(account(r)), 10))
}

// maxEvents is the least number of newest events that are kept for each account, for
// clients that reconnect.
const maxEvents = 4096

// feed holds an account's events. The core's lock guards it. Last is part of the
// state. Each process keeps the events themselves since its start.
type feed struct {
	last    uint64
	kept    []api.Event // the newest events, without a gap
	changed chan struct{}
}

func (c *core) feed(account string) *feed {
	f := c.feeds[account]
	if f == nil {
		f = &feed{}
		c.feeds[account] = f
	}
	return f
}

// publish adds an event and wakes the streams.
func (c *core) publish(account string, e api.Event) {
	f := c.feed(account)
	f.last++
	if c.silent {
		return
	}
	e.ID, e.At = f.last, c.at
	if len(f.kept) >= 2*maxEvents {
		f.kept = append(f.kept[:0], f.kept[maxEvents:]...)
	}
	f.kept = append(f.kept, e)
	f.wake()
}

func (f *feed) wake() {
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

func (c *core) publishStage(n *run) {
	c.publish(n.account, api.Event{Type: stageEvent, Stage: n.ID, Delegate: n.DelegateID, Status: n.Status, Error: n.Error, FailureKind: n.FailureKind})
}

func (c *core) publishStep(n *run, p *step) {
	c.publish(n.account, api.Event{
		Type: stepEvent, Stage: n.ID, Step: p.ID, Task: p.TaskID, Delegate: n.DelegateID, Status: p.Status, Error: p.Error,
		FailureKind: p.FailureKind,
	})
}

// Feed is a section of an account's events.
type Feed struct {
	// Events are the events after the given id.
	Events []api.Event
	// Last is the id of the account's newest event.
	Last uint64
	// Missed reports that events before Events are no longer kept, or that the
	// account never had the given event. The caller must read the state again.
	Missed bool
	// Changed is closed when there are new events, or when the store has lost some.
	Changed <-chan struct{}
}

// Events returns an account's events after an id; 0 returns all. The manager keeps
// at least the newest 4,096 events since the start of this process, or since it last
// loaded the state from the store.
func (m *Manager) Events(account string, after uint64) Feed {
	c := m.core
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.feed(account)
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	out := Feed{Last: f.last, Changed: f.changed}
	oldest := f.last - uint64(len(f.kept)) // the event before the oldest kept one
	if after > f.last || after < oldest {
		out.Missed = true
		after = oldest
	}
	out.Events = slices.Clone(f.kept[after-oldest:])
	return out
}

// lastEvent returns the id of an account's newest event.
func (c *core) lastEvent(account string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.feed(account).last
}

// placesInterval is how often a stream sends the places of waiting stages.
// keepAliveInterval is how often it sends its position, so that clients notice a dead
// connection.
const (
	placesInterval    = time.Second
	keepAliveInterval = 15 * time.Second
	maxPlaces         = 1000 // largest number of stages whose places a stream sends
)

// streamEvents serves an account's events as server-sent events.
func (m *Manager) streamEvents(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	s := &eventStream{m: m, w: w, account: account(r), stage: q.Get("stage"), knownPlaces: map[string]api.Event{}}
	since := cmp.Or(r.Header.Get("Last-Event-ID"), q.Get("since"))
	after := m.core.lastEvent(s.account)
	if since != "" {
		var err error
		if after, err = strconv.ParseUint(since, 10, 64); err != nil {
			writeStatus(w, http.StatusBadRequest, "since is not the id of an event: "+strconv.Quote(since))
			return
		}
	}
	if s.stage != "" {
		if _, err := m.syncedStage(r.Context(), s.account, s.stage); err != nil {
			writeError(w, err)
			return
		}
	}
	release, ok := m.hold(w, r, budgetStreams)
	if !ok {
		return
	}
	defer release()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set(LastEventHeader, strconv.FormatUint(after, 10))
	w.WriteHeader(http.StatusOK)
	s.run(r, after)
}

type eventStream struct {
	m              *Manager
	w              http.ResponseWriter
	account, stage string
	knownPlaces    map[string]api.Event // by stage id: the place and reason that the client knows
	err            error
}

func (s *eventStream) run(r *http.Request, after uint64) {
	flush := http.NewResponseController(s.w).Flush
	beat, stop := s.m.after(keepAliveInterval)
	places, stopPlaces := s.m.after(0)
	defer func() { stop(); stopPlaces() }()
	s.position(after)
	for {
		f := s.m.Events(s.account, after)
		if f.Missed {
			s.send("missed", api.Event{ID: f.Last - uint64(len(f.Events)), Type: stageEvent})
		}
		for _, e := range f.Events {
			s.sendChange(e)
		}
		after = f.Last
		if s.err != nil || flush() != nil {
			return
		}
		select {
		case <-f.Changed:
		case <-places:
			s.sendPlaces()
			stopPlaces()
			places, stopPlaces = s.m.after(placesInterval)
		case <-beat:
			s.position(after)
			stop()
			beat, stop = s.m.after(keepAliveInterval)
		case <-r.Context().Done():
			return
		case <-s.m.closing:
			return
		}
	}
}

// position tells the client the event after which the stream continues, by a message without data. A client that
// reconnects before the next event, or that sees only the events of one stage, then continues there.
func (s *eventStream) position(after uint64) {
	if s.err == nil {
		_, s.err = fmt.Fprintf(s.w, "id: %d\n\n", after)
	}
}

// sendChange sends an event. If its stage waits, the event also tells its current
// place.
func (s *eventStream) sendChange(e api.Event) {
	if s.stage != "" && e.Stage != s.stage {
		return
	}
	if e.Type == stageEvent && e.Status == api.Queued {
		if now, err := s.m.Stage(s.account, e.Stage); err == nil && now.Status == api.Queued {
			e.Place, e.Reason, e.Waited = now.Place, now.Reason, waited(&now, s.m.journal.Now())
			s.knownPlaces[e.Stage] = api.Event{Place: e.Place, Reason: e.Reason}
		}
	}
	s.send("status", e)
}

// sendPlaces sends the stages whose place, or whose reason to wait, has changed.
func (s *eventStream) sendPlaces() {
	waiting := s.m.queuedStages(s.account, s.stage)
	before := s.knownPlaces
	s.knownPlaces = make(map[string]api.Event, len(waiting))
	for _, w := range waiting {
		now := api.Event{Place: w.Place, Reason: w.Reason}
		s.knownPlaces[w.ID] = now
		if before[w.ID] == now {
			continue
		}
		at := s.m.journal.Now()
		s.send("place", api.Event{
			Type: stageEvent, At: at, Stage: w.ID, Status: api.Queued, Place: w.Place, Reason: w.Reason, Waited: waited(&w, at),
		})
	}
}

func (s *eventStream) send(kind string, e api.Event) {
	if s.err != nil {
		return
	}
	b, err := json.Marshal(e)
	if err != nil {
		s.err = err
		return
	}
	if e.ID != 0 {
		_, s.err = fmt.Fprintf(s.w, "id: %d\nevent: %s\ndata: %s\n\n", e.ID, kind, b)
		return
	}
	_, s.err = fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", kind, b)
}

// queuedStages returns an account's waiting stages in the order of the queue. With
// an id it returns that stage alone, if it waits. All streams of an account share a
// list, because it takes time in proportion to the number of stages.
func (m *Manager) queuedStages(account, id string) []api.Stage {
	if id != "" {
		if s, err := m.Stage(account, id); err == nil && s.Status == api.Queued {
			return []api.Stage{s}
		}
		return nil
	}
	m.placesMu.Lock()
	defer m.placesMu.Unlock()
	now := m.cfg.Clock.Now()
	l := m.places[account]
	if age := now.Sub(l.at); l.stages == nil || age < 0 || age >= placesInterval/2 {
		l = placesList{now, m.core.queuedStages(account)}
		m.places[account] = l
	}
	return l.stages
}

// placesList is a list of waiting stages at a time.
type placesList struct {
	at     time.Time
	stages []api.Stage
}

// queuedStages returns the first of an account's waiting stages, in the order of the
// queue.
func (c *core) queuedStages(account string) []api.Stage {
	places := c.queue.Places(account)
	out := make([]api.Stage, 0, len(places))
	c.mu.Lock()
	for id, p := range places {
		if n := c.stages[key{account, id}]; n != nil {
			s := n.Stage
			s.Place, s.Reason = p.Number, p.Reason
			out = append(out, s)
		}
	}
	c.mu.Unlock()
	slices.SortFunc(out, func(a, b api.Stage) int { return cmp.Or(cmp.Compare(a.Place, b.Place), cmp.Compare(a.ID, b.ID)) })
	return out[:min(len(out), maxPlaces)]
}

// waited returns how long a stage has waited in the queue, in milliseconds.
func waited(s *api.Stage, now time.Time) int64 {
	if s.Status != api.Queued {
		return 0
	}
	return max(now.Sub(s.SubmittedAt).Milliseconds(), 0)
}
