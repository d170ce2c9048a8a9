package manager

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// The values of [Event.Type].
const (
	stageEvent    = "stage"
	stepEvent     = "step"
	taskEvent     = "task"
	delegateEvent = "delegate"
)

// Event is a change of the status of a stage, step, task or delegate.
type Event struct {
	// ID counts an account's events from 1. All managers of a store use the same
	// ids.
	ID uint64 `json:"id,omitempty"`
	// Type is "stage", "step", "task" or "delegate".
	Type string    `json:"type"`
	At   time.Time `json:"at"`
	// Stage, Step, Task and Delegate are the ids that apply to the event. Step also
	// names an init or a cleanup.
	Stage    string `json:"stage_id,omitempty"`
	Step     string `json:"step_id,omitempty"`
	Task     string `json:"task_id,omitempty"`
	Delegate string `json:"delegate_id,omitempty"`
	// Status is the new status; for a delegate, its state.
	Status Status `json:"status"`
	// Place, Reason and Waited describe how a stage waits at the time the event is
	// sent. Place counts from 1, Waited is in milliseconds.
	Place  int    `json:"place,omitempty"`
	Reason string `json:"reason,omitempty"`
	Waited int64  `json:"waited_ms,omitempty"`
	Error  string `json:"error_msg,omitempty"`
	// FailureKind classifies the Error of a stage or step.
	FailureKind FailureKind `json:"failure_kind,omitempty"`
}

// maxEvents is the least number of newest events that are kept for each account, for
// clients that reconnect.
const maxEvents = 4096

// feed holds an account's events. The core's lock guards it. Last is part of the
// state. Each process keeps the events themselves since its start.
type feed struct {
	last    uint64
	kept    []Event // the newest events, without a gap
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
func (c *core) publish(account string, e Event) {
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
	c.publish(n.account, Event{Type: stageEvent, Stage: n.ID, Delegate: n.DelegateID, Status: n.Status, Error: n.Error, FailureKind: n.FailureKind})
}

func (c *core) publishStep(n *run, p *step) {
	c.publish(n.account, Event{
		Type: stepEvent, Stage: n.ID, Step: p.ID, Task: p.TaskID, Delegate: n.DelegateID, Status: p.Status, Error: p.Error,
		FailureKind: p.FailureKind,
	})
}

// Feed is a section of an account's events.
type Feed struct {
	// Events are the events after the given id.
	Events []Event
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
// keepAliveInterval is how often it sends a comment, so that clients notice a dead
// connection.
const (
	placesInterval    = time.Second
	keepAliveInterval = 15 * time.Second
	maxPlaces         = 1000 // largest number of stages whose places a stream sends
)

// streamEvents serves an account's events as server-sent events.
func (m *Manager) streamEvents(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	s := &eventStream{m: m, w: w, account: account(r), stage: q.Get("stage"), knownPlaces: map[string]Event{}}
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
	w.WriteHeader(http.StatusOK)
	s.run(r, after)
}

type eventStream struct {
	m              *Manager
	w              http.ResponseWriter
	account, stage string
	knownPlaces    map[string]Event // by stage id: the place and reason that the client knows
	err            error
}

func (s *eventStream) run(r *http.Request, after uint64) {
	flush := http.NewResponseController(s.w).Flush
	beat, stop := s.m.after(keepAliveInterval)
	places, stopPlaces := s.m.after(0)
	defer func() { stop(); stopPlaces() }()
	for {
		f := s.m.Events(s.account, after)
		if f.Missed {
			s.send("missed", Event{Type: stageEvent})
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
			_, s.err = fmt.Fprint(s.w, ": still here\n\n")
			stop()
			beat, stop = s.m.after(keepAliveInterval)
		case <-r.Context().Done():
			return
		case <-s.m.closing:
			return
		}
	}
}

// sendChange sends an event. If its stage waits, the event also tells its current
// place.
func (s *eventStream) sendChange(e Event) {
	if s.stage != "" && e.Stage != s.stage {
		return
	}
	if e.Type == stageEvent && e.Status == Queued {
		if now, err := s.m.Stage(s.account, e.Stage); err == nil && now.Status == Queued {
			e.Place, e.Reason, e.Waited = now.Place, now.Reason, now.waited(s.m.journal.Now())
			s.knownPlaces[e.Stage] = Event{Place: e.Place, Reason: e.Reason}
		}
	}
	s.send("status", e)
}

// sendPlaces sends the stages whose place, or whose reason to wait, has changed.
func (s *eventStream) sendPlaces() {
	waiting := s.m.queuedStages(s.account, s.stage)
	before := s.knownPlaces
	s.knownPlaces = make(map[string]Event, len(waiting))
	for _, w := range waiting {
		now := Event{Place: w.Place, Reason: w.Reason}
		s.knownPlaces[w.ID] = now
		if before[w.ID] == now {
			continue
		}
		at := s.m.journal.Now()
		s.send("place", Event{
			Type: stageEvent, At: at, Stage: w.ID, Status: Queued, Place: w.Place, Reason: w.Reason, Waited: w.waited(at),
		})
	}
}

func (s *eventStream) send(kind string, e Event) {
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
func (m *Manager) queuedStages(account, id string) []Stage {
	if id != "" {
		if s, err := m.Stage(account, id); err == nil && s.Status == Queued {
			return []Stage{s}
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
	stages []Stage
}

// queuedStages returns the first of an account's waiting stages, in the order of the
// queue.
func (c *core) queuedStages(account string) []Stage {
	places := c.queue.Places(account)
	out := make([]Stage, 0, len(places))
	c.mu.Lock()
	for id, p := range places {
		if n := c.stages[key{account, id}]; n != nil {
			s := n.Stage
			s.Place, s.Reason = p.Number, p.Reason
			out = append(out, s)
		}
	}
	c.mu.Unlock()
	slices.SortFunc(out, func(a, b Stage) int { return cmp.Or(cmp.Compare(a.Place, b.Place), cmp.Compare(a.ID, b.ID)) })
	return out[:min(len(out), maxPlaces)]
}

// waited returns how long a stage has waited in the queue, in milliseconds.
func (s *Stage) waited(now time.Time) int64 {
	if s.Status != Queued {
		return 0
	}
	return max(now.Sub(s.SubmittedAt).Milliseconds(), 0)
}
