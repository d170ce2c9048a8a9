package pipeline

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
)

const (
	// maxFeed is the least number of newest events that a feed keeps.
	maxFeed = 4096
	// maxEvent bounds an event, in bytes.
	maxEvent = 1 << 20
	// maxBehind is how long a stream may lack an event that another manager has. Then it is opened again, at the address
	// that answers calls: a manager without its store sends no events, and knows nothing of it.
	maxBehind = 10 * time.Second
	// streamSilence is the time without a sign of the manager after which a stream is opened again. A manager sends
	// something every 15 seconds.
	streamSilence = 40 * time.Second
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
	if f == nil { // the account is not known, and the call will fail
		return 0
	}
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
	f := r.feeds[account]
	if f == nil {
		return manager.Feed{Changed: make(chan struct{})}
	}
	f.once.Do(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.ctx.Err() == nil {
			r.streams.Go(func() { r.stream(r.ctx, account, f) })
		}
	})
	return f.after(after)
}

// stream follows the events of an account until ctx ends.
func (r *Remote) stream(ctx context.Context, account string, f *remoteFeed) {
	for tries := 1; ctx.Err() == nil; tries++ {
		i, base := r.address()
		opened, err := r.readStream(ctx, base, account, f)
		if opened {
			tries = 0
		}
		if ctx.Err() != nil {
			return
		}
		r.fail(i)
		if !opened {
			r.log.Warn().Err(err).Str("account", account).Str("manager", base).Msg("pipelines: cannot follow the events of the manager: runs wait until it answers")
		}
		pause(ctx, pauseAfter(tries))
	}
}

// readStream reads a stream until it ends. It reports whether the manager opened it. The first stream of a process
// begins with the next event, so the reader must read the state once. Later streams resume, and the manager reports
// events that it has not kept.
func (r *Remote) readStream(ctx context.Context, base, account string, f *remoteFeed) (opened bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(streamSilence, cancel)
	defer silence.Stop()
	query := url.Values{}
	f.mu.Lock()
	f.reopen = cancel
	resumed := f.known
	if resumed {
		query.Set("since", strconv.FormatUint(f.newest, 10))
	}
	f.mu.Unlock()
	resp, err := r.send(ctx, base, account, http.MethodGet, "/api/events", query, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		answer, _ := io.ReadAll(io.LimitReader(resp.Body, maxEvent)) // a part of the message is enough
		return false, errorOf(resp.StatusCode, answer)
	}
	if media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";"); media != "text/event-stream" {
		return false, fmt.Errorf("the answer is not a stream of events but %q: check the address and proxies", media)
	}
	if !resumed {
		from, err := strconv.ParseUint(resp.Header.Get(manager.LastEventHeader), 10, 64)
		if err != nil {
			return false, fmt.Errorf("the stream of events has no header %s: the manager is older than this program", manager.LastEventHeader)
		}
		f.miss(from)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxEvent)
	kind := ""
	for lines.Scan() {
		silence.Reset(streamSilence)
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "event":
			kind = value
		case "data":
			if err := f.receive(kind, []byte(value)); err != nil {
				return true, err
			}
		}
	}
	return true, lines.Err()
}

// receive handles an event of a stream.
func (f *remoteFeed) receive(kind string, data []byte) error {
	if kind != "missed" && kind != "status" { // a place changes no status
		return nil
	}
	var e api.Event
	if err := json.Unmarshal(data, &e); err != nil {
		return fmt.Errorf("decoding an event: %w", err)
	}
	if kind == "missed" {
		f.miss(e.ID)
	} else {
		f.add(e)
	}
	return nil
}
