package pipeline

import (
	"cmp"
	"context"
	"io"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/manager/pipeline/internal/engine"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// Logs reads the logs of stages and steps. [logservice.Server] implements it.
//
// [logservice.Server]: https://pkg.go.dev/github.com/delegate-io/dlite/manager/logservice#Server
type Logs interface {
	// Lines iterates over the lines of a log from the line with the number from; 0 is the first line. The Pos of a
	// line is its number. With follow it waits for the log and for its lines, and ends when the log is complete or
	// ctx ends. Without follow it ends with the last line that exists. An error is the last item; a later call may
	// continue.
	Lines(ctx context.Context, account, key string, from int64, follow bool) iter.Seq2[logger.Line, error]
}

// logPart is a part of the log of one attempt of a step, or of the init of a stage.
type logPart struct {
	// Node is the path of the node, and Kind is step or stage.
	Node    string        `json:"node"`
	Kind    string        `json:"kind"`
	Attempt int           `json:"attempt"`
	LogKey  string        `json:"log_key"`
	Lines   []logger.Line `json:"lines"`
}

// logEnd is the end of the logs of a run.
type logEnd struct {
	Status string `json:"status"`
	// Unfinished are the keys of logs that had no end when their step or init had ended, with the reasons. Their lines
	// may be incomplete.
	Unfinished map[string]string `json:"unfinished,omitempty"`
}

const (
	// mostFollowed bounds the logs that one stream reads at the same time. The others follow when one of them ends.
	mostFollowed = 64
	// mostBuffered bounds the lines of a log that wait for the client, in bytes.
	mostBuffered = 16 << 10
	// mostLogStreams bounds the streams of an account at the same time.
	mostLogStreams = 50
	// lastLines bounds the wait for the end of a log after the end of its step. Delegates end a log before they report the
	// end of the step, but a step that a delegate never ran may have no log.
	lastLines = 5 * time.Second
	// mostSilence bounds the wait for the log service to answer about a log of the past.
	mostSilence = 30 * time.Second
	// mostReads bounds the reads of a log in sequence that return no line.
	mostReads = 5
)

// logFollower merges the logs of a run. Its caller calls next until it fails, and then close.
type logFollower struct {
	service *Service
	key     runKey
	end     logEnd
	turn    int // of the log in active that next asks first

	ctx  context.Context //nolint:containedctx // of the goroutines, which close ends
	stop context.CancelFunc
	work sync.WaitGroup
	wake chan struct{} // something has changed

	mu     sync.Mutex // guards the rest
	cursor *logCursor
	known  map[int]*runLog // logs that were not read to their end
	last   int             // the largest number of a log
	queue  []*runLog       // logs without a reader, by number
	active []*runLog       // logs with a reader, by number
	ended  bool            // the run, and all attempts
	failed error
}

// runLog is the log of an attempt.
type runLog struct {
	logPart

	number int
	// settled reports that the attempt had ended before the stream began: the log needs no wait.
	settled bool
	cancel  context.CancelFunc
	space   chan struct{} // the client has taken the lines

	// The mutex of the follower guards the rest, and logPart.Lines: those that wait for the client.
	size     int
	quiet    time.Time // since when no line has come; zero until the attempt has ended
	complete bool
	problem  string
}

// openLogs begins to follow the logs of a run.
func (s *Service) openLogs(ctx context.Context, account, id string, cursor *logCursor) (*logFollower, error) {
	head, err := s.head(ctx, account, id)
	if err != nil {
		return nil, err
	}
	f := &logFollower{service: s, key: runKey{account, id}, cursor: cursor, wake: make(chan struct{}, 1), known: map[int]*runLog{}}
	if err := f.load(ctx, head, 0); err != nil {
		return nil, err
	}
	f.ctx, f.stop = context.WithCancel(context.WithoutCancel(ctx))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.startReaders()
	if !f.ended {
		f.work.Go(func() { f.watch(head.Version) })
	}
	return f, nil
}

func (f *logFollower) close() {
	f.stop()
	f.work.Wait()
}

// watch follows the run until it has ended.
func (f *logFollower) watch(since int64) {
	for {
		head, err := f.service.await(f.ctx, f.key.account, f.key.id, func(run *store.Run) bool { return run.Version > since })
		if err == nil {
			err = f.load(f.ctx, head, since)
		}
		f.mu.Lock()
		f.failed = err
		f.startReaders()
		stop := f.ended || err != nil
		f.mu.Unlock()
		signal(f.wake)
		if stop {
			return
		}
		since = head.Version
	}
}

// load takes the nodes that have changed since a version.
func (f *logFollower) load(ctx context.Context, head *store.Run, since int64) error {
	rows, err := f.service.store.Changes(ctx, head.Account, head.ID, since)
	if err != nil {
		return err
	}
	ended := !head.Ended.IsZero()
	if ended { // the nodes may already belong to a retry of the run
		now, err := f.service.head(ctx, head.Account, head.ID)
		if err != nil {
			return err
		}
		ended = now.Version == head.Version
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.last
	for _, row := range rows {
		n, err := decodeNode(head.ID, row)
		if err != nil {
			return err
		}
		for _, p := range n.Past {
			f.take(n, p.Number, p.Attempt, p.StageAttempt, true, since == 0)
		}
		f.take(n, n.Number, n.Attempt, n.StageAttempt, ended || n.Status.Ended() || n.Opened, since == 0)
	}
	for number := before + 1; number <= f.last; number++ {
		if f.known[number] == nil { // read before, or too old: a node remembers its last attempts
			f.cursor.finish(number, number)
		}
	}
	slices.SortFunc(f.queue, func(a, b *runLog) int { return cmp.Compare(a.number, b.number) })
	f.ended = ended
	return nil
}

// empty reports whether all logs were read before the stream began.
func (f *logFollower) empty() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended && len(f.active) == 0
}

// take adds a log, or notes that its attempt has ended.
func (f *logFollower) take(n *engine.Node, number, attempt, stageAttempt int, over, first bool) {
	l := f.known[number]
	f.last = max(f.last, number)
	if l == nil {
		if number == 0 || f.cursor.finished(number) {
			return
		}
		l = &runLog{number: number, settled: over && first, space: make(chan struct{}, 1), logPart: logPart{
			Node: n.Path, Kind: string(n.Kind), Attempt: attempt, LogKey: logKey(f.key.id, n, number, attempt, stageAttempt),
		}}
		f.known[number] = l
		f.queue = append(f.queue, l)
	}
	if over && l.quiet.IsZero() {
		l.quiet = time.Now()
	}
}

// startReaders starts readers of the next logs. The caller holds the mutex.
func (f *logFollower) startReaders() {
	for len(f.queue) > 0 && len(f.active) < mostFollowed && f.failed == nil {
		l := f.queue[0]
		f.queue = f.queue[1:]
		f.active = append(f.active, l)
		from := f.cursor.next[l.number]
		if !l.quiet.IsZero() { // the reader has its time from now on
			l.settled = l.settled || time.Since(l.quiet) > lastLines
			l.quiet = time.Now()
		}
		var ctx context.Context
		ctx, l.cancel = context.WithCancel(f.ctx)
		f.work.Go(func() { f.read(ctx, l, from) })
	}
}

// read reads a log to its end. It repeats failed reads as long as the attempt has not ended or lines come, and then a few
// times.
func (f *logFollower) read(ctx context.Context, l *runLog, from int64) {
	for tries := 1; ; tries++ {
		start := from
		err := f.readFrom(ctx, l, &from)
		if ctx.Err() != nil {
			return
		}
		f.mu.Lock()
		if l.quiet.IsZero() || from > start {
			tries = 0
		}
		l.complete = err == nil || tries >= mostReads
		if l.complete && err != nil {
			l.problem = "the log service does not answer: " + err.Error()
		}
		complete := l.complete
		f.mu.Unlock()
		if complete {
			signal(f.wake)
			return
		}
		pause(ctx, time.Second)
	}
}

// readFrom passes the lines of a log on from a number, which it advances.
func (f *logFollower) readFrom(ctx context.Context, l *runLog, from *int64) error {
	for line, err := range f.service.cfg.Logs.Lines(ctx, f.key.account, l.LogKey, *from, !l.settled) {
		if err != nil {
			return err
		}
		for !f.buffer(l, line) {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-l.space:
			}
		}
		*from = line.Pos + 1
	}
	return nil
}

// buffer keeps a line for the client, if there is room.
func (f *logFollower) buffer(l *runLog, line logger.Line) bool {
	const lineSize = 64
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.size >= mostBuffered {
		return false
	}
	l.size += lineSize + len(line.Out)
	l.Lines = append(l.Lines, line)
	if !l.quiet.IsZero() {
		l.quiet = time.Now()
	}
	signal(f.wake)
	return true
}

// next returns the next lines, and the id of the place after them. It fails with [io.EOF] when the run has ended and
// all logs were read, and with the error of ctx.
func (f *logFollower) next(ctx context.Context) (logPart, string, error) {
	for {
		part, wait := f.poll(time.Now())
		if part != nil {
			return *part, f.place(), nil
		}
		if wait == 0 {
			f.mu.Lock()
			defer f.mu.Unlock()
			return logPart{}, "", cmp.Or(f.failed, io.EOF)
		}
		timer := time.NewTimer(wait)
		select {
		case <-f.wake:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return logPart{}, "", ctx.Err()
		}
		timer.Stop()
	}
}

// place returns the id of the present place.
func (f *logFollower) place() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cursor.String()
}

// poll returns lines that wait, or how long to wait for a change. 0 means that there is nothing to wait for.
func (f *logFollower) poll(now time.Time) (*logPart, time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed != nil {
		return nil, 0
	}
	wait := heartbeat
	for i := 0; i < len(f.active); {
		l := f.active[(f.turn+i)%len(f.active)]
		switch {
		case l.settled && l != f.firstSettled(): // logs of the past come one after the other
		case len(l.Lines) > 0:
			f.turn = (f.turn + i + 1) % len(f.active)
			return f.taken(l, now), 0
		case l.complete:
			f.finish(l)
			i = 0
			continue
		case !l.quiet.IsZero():
			left := lastLines - now.Sub(l.quiet)
			if l.settled {
				left += mostSilence - lastLines
			}
			if left <= 0 {
				l.problem = "the log has no end"
				f.finish(l)
				i = 0
				continue
			}
			wait = min(wait, left)
		}
		i++
	}
	if f.ended && len(f.active) == 0 {
		return nil, 0
	}
	return nil, wait
}

func (f *logFollower) firstSettled() *runLog {
	for _, l := range f.active {
		if l.settled {
			return l
		}
	}
	return nil
}

// taken returns the lines of a log that wait, and makes room for others.
func (f *logFollower) taken(l *runLog, now time.Time) *logPart {
	part := l.logPart
	l.Lines, l.size = nil, 0
	if !l.quiet.IsZero() {
		l.quiet = now
	}
	f.cursor.next[l.number] = part.Lines[len(part.Lines)-1].Pos + 1
	signal(l.space)
	return &part
}

// finish ends the reading of a log, and starts to read the next one.
func (f *logFollower) finish(l *runLog) {
	const mostProblems = 1000
	l.cancel()
	f.cursor.finish(l.number, l.number)
	delete(f.known, l.number)
	f.active = slices.DeleteFunc(f.active, func(other *runLog) bool { return other == l })
	if l.problem != "" && len(f.end.Unfinished) < mostProblems {
		if f.end.Unfinished == nil {
			f.end.Unfinished = map[string]string{}
		}
		f.end.Unfinished[l.LogKey] = l.problem
	}
	f.startReaders()
}
