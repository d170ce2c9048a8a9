package chaos_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/delegate-io/dlite/manager/api"
)

// watchers read the events of each manager, also after its restarts, and check that
// all managers report the same.
type watchers struct {
	t *testing.T

	mu         sync.Mutex
	events     map[uint64]api.Event
	ends       map[string]int // by stage
	last       uint64
	missed     int
	eventCount int // number of events from any manager
	different  int // number of events that differ between managers
}

func newWatchers(t *testing.T) *watchers {
	return &watchers{t: t, events: map[uint64]api.Event{}, ends: map[string]int{}}
}

// ended returns how many stages have ended so far.
func (w *watchers) ended() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.ends)
}

// follow reads a manager's events until ctx ends.
func (w *watchers) follow(ctx context.Context, a *apiCalls) {
	since := uint64(0)
	for ctx.Err() == nil {
		since = w.read(ctx, a, since)
		pause(ctx, 20*time.Millisecond)
	}
}

// read reads the events after an id until the stream ends, and returns the id of the
// last one.
func (w *watchers) read(ctx context.Context, a *apiCalls, since uint64) uint64 {
	resp, err := a.request(ctx, http.MethodGet, fmt.Sprintf("/api/events?since=%d", since), nil)
	if err != nil {
		return since
	}
	defer func() { _ = resp.Body.Close() }()
	kind := ""
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "event":
			kind = value
		case "data":
			var e api.Event
			if err := json.Unmarshal([]byte(value), &e); err != nil {
				return since // the stream ended
			}
			if kind != "place" {
				w.recordEvent(a, kind, e)
				since = max(since, e.ID)
			}
		}
	}
	return since
}

func (w *watchers) recordEvent(a *apiCalls, kind string, e api.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if kind == "missed" {
		w.missed++
		return
	}
	w.eventCount++
	e.Place, e.Reason, e.Waited = 0, "", 0 // they depend on the time of sending
	if before, ok := w.events[e.ID]; ok {
		if before != e {
			if w.different++; w.different <= 5 {
				w.t.Errorf("%s reports event %d as %+v, but it was %+v before", a.name, e.ID, e, before)
			}
		}
		return
	}
	w.events[e.ID] = e
	w.last = max(w.last, e.ID)
	if e.Type == "stage" && e.Status.Ended() {
		w.ends[e.Stage]++
	}
}
