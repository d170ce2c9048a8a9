package logger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/internal/sealed"
)

// DelivererConfig configures a [Deliverer]. Dir is required.
type DelivererConfig struct {
	// Dir is the directory of the logs that wait. Only one process at a time can use
	// it. OpenDeliverer creates it.
	Dir string
	// Memory is a directory in memory, for the targets of the logs: they have tokens,
	// which must not be written to a disk. Empty means /dev/shm. If the directory is not
	// in memory, as on systems other than Linux, no log outlives the process.
	Memory string
	// MaxBytes limits the kept logs together, in bytes on the disk. A log that has no
	// space displaces a larger one whose step has ended. If there is none, it ends with
	// its step, as without a deliverer. Zero means 1 GiB.
	MaxBytes int64
	// MaxAge is the time after the end of a log for which the deliverer tries. Log
	// services may refuse the token of the log earlier, see Token. Zero means 24 h.
	MaxAge time.Duration
	// Token returns another token for the log service at a URL. The deliverer uses it for
	// logs whose own token the service has refused, which may have expired. An empty result
	// means none. The default is none.
	Token func(url string) string
	// HTTPClient makes the requests, see [StreamConfig].
	HTTPClient *http.Client
	// Log receives an event for each log that is delivered late or dropped. The zero
	// value discards.
	Log zerolog.Logger
}

// Deliverer delivers logs whose log service is away when they end (rule L2). It keeps
// them in files, tries again until the service has them, and continues with the logs of an
// earlier process that was killed. A log that it gives up is logged with its size and the
// reason. It is safe for concurrent use, and must be closed.
//
//	logs, err := logger.OpenDeliverer(logger.DelivererConfig{Dir: "/var/lib/delegate/logs"})
//	stages := transaction.New(driver, transaction.WithLog(logs.Open))
type Deliverer struct {
	cfg     DelivererConfig
	log     zerolog.Logger
	lock    *flock.Flock
	memory  string // the directory of this deliverer in Memory
	cipher  sealed.Cipher
	durable bool // a later process can read the targets
	start   func(url string, q *deliveryQueue)
	// completes is the URL of the latest log service that completed a log with its last lines.
	completes atomic.Pointer[string]
	stop      context.CancelFunc
	workers   sync.WaitGroup

	mu      sync.Mutex
	bytes   int64
	kept    map[*keptLog]struct{}
	queues  map[string]*deliveryQueue // by the URL of the log service
	byID    map[logID]*keptLog        // logs that wait
	dropped int64
	closing bool
}

// DelivererStats describes the logs of a [Deliverer] at one moment.
type DelivererStats struct {
	// Waiting is the number of kept logs, also those whose steps run, and Bytes their
	// size on the disk.
	Waiting int
	Bytes   int64
	// Dropped is the number of logs that were given up since the start.
	Dropped int64
}

// Stats returns the counts. It may be called at any time.
func (d *Deliverer) Stats() DelivererStats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return DelivererStats{Waiting: len(d.kept), Bytes: d.bytes, Dropped: d.dropped}
}

// logID identifies a log at all log services.
type logID struct{ url, account, key string }

// The limits of a deliverer.
const (
	defaultMaxKept = 1 << 30
	defaultMaxAge  = 24 * time.Hour
	maxKeptLogs    = 10_000
	// holdTime is how long a log waits whose writer was killed before its end. A
	// delegate that resumes the step sends its whole output again.
	holdTime = 15 * time.Minute
	// delivererLockWait is how long OpenDeliverer waits for the lock. A process that is
	// killed while it starts another one leaves the lock to the other one until that has
	// started.
	delivererLockWait = 2 * time.Second
)

var (
	errNoSpace  = errors.New("the kept logs use all of their space")
	errReplaced = errors.New("the log has begun again")
)

// OpenDeliverer opens a deliverer, and continues with the logs that an earlier process
// left in Dir. It fails if the directory cannot be used.
func OpenDeliverer(cfg DelivererConfig) (*Deliverer, error) {
	if cfg.Memory == "" {
		cfg.Memory = sealed.DefaultMemory
	}
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = defaultMaxKept
	}
	if cfg.MaxAge <= 0 {
		cfg.MaxAge = defaultMaxAge
	}
	d := &Deliverer{
		cfg: cfg, log: cfg.Log, kept: map[*keptLog]struct{}{}, queues: map[string]*deliveryQueue{}, byID: map[logID]*keptLog{},
	}
	if err := d.open(); err != nil {
		return nil, fmt.Errorf("opening the directory of waiting logs %s: %w", cfg.Dir, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	d.stop = stop
	d.start = func(url string, q *deliveryQueue) { d.workers.Go(func() { d.work(ctx, url, q) }) }
	d.findEarlier()
	return d, nil
}

func (k *keptLog) id() logID { return logID{k.target.URL, k.target.Account, k.target.Key} }

// Open starts a stream, like [OpenStream]. Its Close leaves the log to the deliverer if
// the log service is away. If target names no log service, the output is dropped.
//
// If an earlier process wrote to the same log and was killed, a target with
// SkipOpeningStream and no Writer continues the log. A target with the Writer of that
// process continues it too, and repeats its lines from the first one on: the stream skips as
// many as the deliverer has. A target without SkipOpeningStream replaces the log.
func (d *Deliverer) Open(ctx context.Context, target StreamConfig) TaskLog {
	if target.URL == "" || target.Key == "" {
		return discarded{}
	}
	if target.HTTPClient == nil {
		target.HTTPClient = d.cfg.HTTPClient
	}
	target.setDefaults()
	lines, repeated := d.continued(&target)
	if target.Writer == "" {
		target.Writer = rand.Text()
	}
	if lines == nil {
		lines = newSpool(&target)
		d.newLog(&target, rand.Text()).attach(lines)
	}
	known := d.completes.Load()
	s := startStream(ctx, target, lines, sender{batch: maxBatch, oneCall: known != nil && *known == target.URL})
	s.repeated = repeated
	return s
}

// continued returns the lines of an earlier process that the stream continues, nil if
// there are none. The stream repeats a number of them.
func (d *Deliverer) continued(target *StreamConfig) (lines *spool, repeated int64) {
	k := d.claim(target)
	if k == nil {
		return nil, 0
	}
	repeats := target.Writer == k.target.Writer
	if !repeats && !target.SkipOpeningStream {
		d.drop(k, errReplaced)
		return nil, 0
	}
	lines, err := k.load(target)
	if err != nil {
		d.drop(k, err)
		return nil, 0
	}
	target.Writer = k.target.Writer
	k.target = d.newLog(target, "").target // it has no end
	if err := k.save(); err != nil {
		d.log.Warn().Err(err).Str("log", target.Key).Msg("cannot record that a log continues")
	}
	if repeats {
		repeated = lines.pos
	}
	return lines, repeated
}

// claim takes the log that target repeats, continues or replaces out of its queue. It ends
// an attempt to deliver the log.
func (d *Deliverer) claim(target *StreamConfig) *keptLog {
	for {
		k, running := d.tryClaim(target)
		if running == nil {
			return k
		}
		running.cancel()
		<-running.ended
	}
}

// tryClaim returns the attempt that claim must end before.
func (d *Deliverer) tryClaim(target *StreamConfig) (*keptLog, *attempt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := d.byID[logID{target.URL, target.Account, target.Key}]
	if k == nil {
		return nil, nil
	}
	if k.busy {
		return nil, k.attempt
	}
	repeats := target.Writer == k.target.Writer
	continues := target.Writer == "" && target.SkipOpeningStream && k.target.Ended.IsZero()
	if !repeats && !continues && target.SkipOpeningStream {
		return nil, nil // several writers write to the log
	}
	d.dequeue(k)
	return k, nil
}

// noteCompletion records whether the log service at a URL has completed a log with its last
// lines.
func (d *Deliverer) noteCompletion(url string, completed bool) {
	known := d.completes.Load()
	switch same := known != nil && *known == url; {
	case completed && !same:
		d.completes.Store(&url)
	case !completed && same:
		d.completes.CompareAndSwap(known, nil)
	}
}

// Close delivers until ctx ends, and leaves the rest to the next process. If the logs
// cannot outlive this process, the rest is dropped.
func (d *Deliverer) Close(ctx context.Context) error {
	d.mu.Lock()
	d.closing = true
	for _, q := range d.queues {
		q.signal()
	}
	d.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.workers.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	d.stop()
	<-done
	d.leaveRest()
	return d.lock.Close()
}

// leaveRest ends with the logs that were not delivered.
func (d *Deliverer) leaveRest() {
	d.mu.Lock()
	var rest []*keptLog
	var bytes int64
	for k := range d.kept {
		if k.waiting {
			rest = append(rest, k)
			bytes += k.size
		}
	}
	d.mu.Unlock()
	switch {
	case len(rest) == 0:
	case d.durable:
		d.log.Warn().Int("logs", len(rest)).Int64("bytes", bytes).
			Msg("ending before the log service has all logs: the next process with the same ledger delivers them")
	default:
		for _, k := range rest {
			d.drop(k, errors.New("the delegate ends, and this system has no directory in memory"))
		}
	}
	if d.durable {
		_ = os.Remove(d.memory) // fails if it is not empty
	}
}

// discarded is the log of a task that names no log service.
type discarded struct{}

func (discarded) Write(b []byte) (int, error) { return len(b), nil }

func (discarded) Close(context.Context) error { return nil }
