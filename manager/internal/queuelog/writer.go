package queuelog

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/task/stage"
)

// Config configures a [Writer]. The zero value is valid.
type Config struct {
	// Delay is the waiting time before the first line of a stage, and the minimum time
	// between two lines of one stage. 0 means 1 s.
	Delay time.Duration
	// Interval is the minimum time between two lines of a stage of which only the place
	// has changed. 0 means 10 s.
	Interval time.Duration
	// Rate bounds the requests per second for all stages. Lines for taken stages
	// precede lines for a changed place. 0 means 50.
	Rate int
	// MaxStages bounds the stages in memory. The writer ignores further stages. Each
	// stage needs less than 1 KiB. 0 means 10,000.
	MaxStages int
	// CloseDelay is the time between the end of an init and the close of its log. The
	// delegate can send its last lines in this time. 0 means 5 s.
	CloseDelay time.Duration
	// Timeout bounds one request. 0 means 5 s.
	Timeout time.Duration

	// Ask returns the state of a queued stage, for callers that do not call Tell for
	// each change of its place. The writer calls it every Interval for each queued
	// stage, as far as Rate allows, from any goroutine and without holding a lock. ok
	// is false if the state is unknown. Ask may be nil.
	Ask func(account, stageID string) (s State, ok bool)

	// HTTPClient makes the requests. The writer never follows redirects, because they
	// would send the token to another server. Nil means a client that uses HTTP_PROXY.
	HTTPClient *http.Client
	// Logger logs refusals of log services at level debug. The zero value logs nothing.
	Logger zerolog.Logger
}

func (c *Config) setDefaults() {
	c.Delay = cmp.Or(max(c.Delay, 0), time.Second)
	c.Interval = cmp.Or(max(c.Interval, 0), 10*time.Second)
	c.Rate = cmp.Or(max(c.Rate, 0), 50)
	c.MaxStages = cmp.Or(max(c.MaxStages, 0), 10_000)
	c.CloseDelay = cmp.Or(max(c.CloseDelay, 0), 5*time.Second)
	c.Timeout = cmp.Or(max(c.Timeout, 0), 5*time.Second)
}

const (
	// senders is the number of concurrent requests.
	senders = 8
	// attempts bounds the attempts to close a log.
	attempts = 10
	// maxBackoff bounds the time between attempts.
	maxBackoff = time.Minute
	// urgent moves the due time of an urgent entry forward, so that it precedes all
	// other waiting entries.
	urgent = 24 * time.Hour
)

// Writer writes to the logs of inits. It is safe for concurrent use.
type Writer struct {
	cfg    Config
	client http.Client
	own    bool
	name   string // prefix of the writer names; the stage follows

	stop context.CancelFunc
	work sync.WaitGroup
	wake chan struct{} // signals an earlier due time or a finished request; capacity 1

	mu      sync.Mutex // guards the following fields and the entries; never held over I/O
	entries map[key]*entry
	due     schedule
	order   int // numbers the stages in the order of their first Tell
	sending int
	next    time.Time // time at which Rate allows the next request
	closed  bool
}

type key struct{ account, stage string }

// New returns a writer; the caller must close it.
func New(cfg Config) *Writer {
	cfg.setDefaults()
	ctx, stop := context.WithCancel(context.Background())
	w := &Writer{cfg: cfg, name: newName(), stop: stop, wake: make(chan struct{}, 1), entries: map[key]*entry{}}
	w.client, w.own = newClient(cfg.HTTPClient)
	w.work.Go(func() { w.run(ctx) })
	return w
}

// Close ends the writer. It drops lines that are not sent yet.
func (w *Writer) Close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.stop()
	w.work.Wait()
	if w.own {
		w.client.CloseIdleConnections()
	}
}

// Tell records the state of a stage and schedules its line for the init's log, which
// config and logKey name. Without both it does nothing. It returns at once. The caller
// may repeat an equal state. The caller must report the end of an init, because it
// closes the log.
func (w *Writer) Tell(account, stageID string, config *stage.LogConfig, logKey string, s State) {
	if config == nil || config.URL == "" || logKey == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	now := time.Now()
	k := key{account, stageID}
	e := w.entries[k]
	if e == nil {
		if e = w.newEntry(k, s, now); e == nil {
			return
		}
		e.log = *config
		e.log.AccountID = cmp.Or(config.AccountID, account)
		e.logKey = logKey
	}
	e.update(s, now)
	w.plan(e, now)
	w.signal()
}

// newEntry returns nil for a stage that needs no lines.
func (w *Writer) newEntry(k key, s State, now time.Time) *entry {
	switch {
	case s.Status != Queued && s.Status != Running,
		s.Status == Running && now.Sub(s.Since) < w.cfg.Delay,
		len(w.entries) >= w.cfg.MaxStages:
		return nil
	}
	w.order++
	e := &entry{key: k, order: w.order, began: now, index: -1}
	w.entries[k] = e
	return e
}

// plan schedules the next work for an entry, or removes the entry. The caller must hold
// mu.
func (w *Writer) plan(e *entry, now time.Time) {
	if e.busy {
		return
	}
	at, keep := e.next(&w.cfg, now)
	if !keep {
		delete(w.entries, e.key)
		at = time.Time{}
	}
	switch e.due = at; {
	case at.IsZero() && e.index >= 0:
		heap.Remove(&w.due, e.index)
	case at.IsZero():
	case e.index >= 0:
		heap.Fix(&w.due, e.index)
	default:
		heap.Push(&w.due, e)
	}
}

func (w *Writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run starts the due work until ctx ends.
func (w *Writer) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		e, wait := w.take()
		if e != nil {
			w.work.Go(func() { w.serve(ctx, e) })
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-w.wake:
		case <-ctx.Done():
		}
	}
}

// take returns a due entry, or the time until the next one.
func (w *Writer) take() (*entry, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if len(w.due) == 0 || w.sending >= senders {
		return nil, time.Hour // wake ends the wait
	}
	e := w.due[0]
	at := e.due
	if w.next.After(at) {
		at = w.next
	}
	if at.After(now) {
		return nil, at.Sub(now)
	}
	heap.Pop(&w.due)
	e.busy = true
	w.sending++
	w.next = now.Add(time.Second / time.Duration(w.cfg.Rate))
	return e, 0
}

// serve does the due work for an entry.
func (w *Writer) serve(ctx context.Context, e *entry) {
	if w.cfg.Ask != nil {
		w.ask(e)
	}
	w.mu.Lock()
	now := time.Now()
	e.compose(&w.cfg, now)
	j := job{lines: e.lines, log: &e.log, key: e.logKey, writer: w.name + "-" + e.key.stage, closes: e.closes(&w.cfg, now)}
	w.mu.Unlock()

	var err error
	if len(j.lines) > 0 || j.closes {
		err = w.do(ctx, &j)
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	e.busy = false
	w.sending--
	w.after(e, &j, err)
	w.plan(e, time.Now())
	w.signal()
}

// ask asks for the state of a queued stage.
func (w *Writer) ask(e *entry) {
	w.mu.Lock()
	queued := e.state.Status == Queued
	version := e.version
	w.mu.Unlock()
	if !queued {
		return
	}
	s, ok := w.cfg.Ask(e.key.account, e.key.stage)
	w.mu.Lock()
	defer w.mu.Unlock()
	e.asked = time.Now()
	// A Tell in the meantime is newer.
	if ok && e.version == version && s.Status == Queued {
		e.update(s, e.asked)
	}
}

// after records the result of a job.
func (w *Writer) after(e *entry, j *job, err error) {
	var refused *refusal
	switch {
	case err == nil:
		if len(j.lines) > 0 {
			e.wrote = true
			e.lines = e.lines[len(j.lines):]
		}
		e.closed = e.closed || j.closes
		e.tries, e.retry = 0, time.Time{}
	case errors.As(err, &refused) && refused.final:
		w.cfg.Logger.Debug().Err(err).Str("stage", e.key.stage).Msg("the log service refuses the lines of a queued stage")
		e.mute, e.lines = true, nil
	default:
		e.tries++
		wait := min(time.Second<<min(e.tries-1, 10), maxBackoff)
		if refused != nil {
			wait = max(wait, min(refused.after, maxBackoff))
		}
		e.retry = time.Now().Add(wait)
	}
}

// entry is the record of one stage.
type entry struct {
	key    key
	order  int
	log    stage.LogConfig
	logKey string

	state   State
	version int       // number of calls of update
	began   time.Time // time of the first Tell of the current wait
	runner  State     // the first state with Running
	held    time.Time // time of runner, zero while the stage is not taken
	ended   time.Time // time at which the end was reported

	// Lines written about the current wait.
	written   State
	writtenAt time.Time
	again     bool // the stage was taken before
	taken     bool // the line about the delegate is written

	lines  []logger.Line // lines to send
	pos    int64
	wrote  bool
	closed bool
	mute   bool // the log service refuses the lines
	tries  int
	retry  time.Time
	asked  time.Time

	busy  bool      // a request is in progress
	due   time.Time // time of the next work; zero for none
	index int       // index in the schedule, -1 if not scheduled
}

// update records a state.
func (e *entry) update(s State, now time.Time) {
	was := e.state.Status
	e.state = s
	e.version++
	switch {
	case s.Status == Queued && was != Queued:
		// The stage is new, or has returned from a delegate.
		e.began, e.held, e.ended = now, time.Time{}, time.Time{}
		e.again = was != ""
		e.taken, e.closed = false, false
		e.written, e.writtenAt = State{}, time.Time{}
		e.tries, e.retry = 0, time.Time{}
	case s.Status == Running && e.held.IsZero():
		e.runner, e.held = s, now
	case s.Status != Queued && s.Status != Running && e.ended.IsZero():
		e.ended, e.tries = now, 0
	}
}

// next returns the time of the next work, zero if none is scheduled. keep is false if
// there will be no more work.
func (e *entry) next(cfg *Config, now time.Time) (at time.Time, keep bool) {
	over := !e.ended.IsZero()
	switch {
	case over && (e.mute || e.closed || e.tries >= attempts):
		return at, false
	case e.mute:
		return at, true
	case !e.retry.IsZero():
		return e.retry, true
	case len(e.lines) > 0:
		return now, true
	case e.takes(cfg), e.ends():
		return now.Add(-urgent), true
	case !e.wrote && (over || !e.held.IsZero()):
		return at, false // it has not waited
	case over:
		return e.closeAt(cfg), true
	case !e.held.IsZero():
		return at, true
	case e.writtenAt.IsZero():
		return e.began.Add(cfg.Delay), true
	case e.state.Reason != e.written.Reason:
		return e.writtenAt.Add(cfg.Delay), true
	case e.state.Place != e.written.Place:
		return e.writtenAt.Add(cfg.Interval), true
	case cfg.Ask != nil:
		return later(e.writtenAt, e.asked).Add(cfg.Interval), true
	default:
		return at, true
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// takes reports whether the line about the delegate is due.
func (e *entry) takes(cfg *Config) bool {
	return !e.held.IsZero() && !e.taken && (e.wrote || e.held.Sub(e.runner.Since) >= cfg.Delay)
}

// ends reports whether the line about the end of a queued stage is due.
func (e *entry) ends() bool {
	return !e.ended.IsZero() && e.held.IsZero() && e.wrote && e.written.Status == Queued
}

// closeAt returns the time at which to close the log of a stage that has ended. If no
// delegate has taken the stage, the log has no other writer.
func (e *entry) closeAt(cfg *Config) time.Time {
	if e.held.IsZero() {
		return e.ended
	}
	return e.ended.Add(cfg.CloseDelay)
}

// compose creates the line that is due.
func (e *entry) compose(cfg *Config, now time.Time) {
	if len(e.lines) > 0 || e.mute {
		return // Send these first: the state may change until then.
	}
	text := ""
	switch {
	case e.takes(cfg):
		text, e.taken = takenText(e.runner, e.held), true
	case e.ends():
		text = endedText(e.state, e.ended)
	case e.state.Status == Queued && (e.writtenAt.IsZero() || e.state.Reason != e.written.Reason || e.state.Place != e.written.Place):
		text = queuedText(e.state, e.again && e.writtenAt.IsZero(), now)
	default:
		return
	}
	e.written, e.writtenAt = e.state, now
	if !e.log.TrimNewLineSuffix {
		text += "\n"
	}
	e.lines = append(e.lines, logger.Line{Level: "info", Pos: e.pos, Out: text, Time: now.UTC()})
	e.pos++
}

// closes reports whether to close the log now, with all lines.
func (e *entry) closes(cfg *Config, now time.Time) bool {
	return !e.ended.IsZero() && !e.closed && !e.mute && !now.Before(e.closeAt(cfg))
}

// schedule is a heap of entries in the order of their due time.
type schedule []*entry

func (s schedule) Len() int { return len(s) }

func (s schedule) Less(i, j int) bool {
	return cmp.Or(s[i].due.Compare(s[j].due), cmp.Compare(s[i].order, s[j].order)) < 0
}

func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

func (s *schedule) Push(x any) {
	e := x.(*entry)
	e.index = len(*s)
	*s = append(*s, e)
}

func (s *schedule) Pop() any {
	last := len(*s) - 1
	e := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	e.index = -1
	return e
}
