package journal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// replica is a machine with its position in the log.
type replica[C any] struct {
	machine Machine[C]
	rules   int // highest known version
	seal    *sealer
	aside   *asides // nil if a panic is not recovered
	broken  bool    // a command panicked: the state is incomplete until it is read again

	pos  Position
	at   time.Time
	seen map[string]mark // last entry of each origin
	base Snapshot        // the state from which it began

	entries, bytes int64 // since the base
}

// mark identifies the last entry of an origin.
type mark struct {
	counter uint64
	at      time.Time
}

// errGap means that an entry does not follow the last one: entries between them are
// missing, or this replica has entries that the log lost.
var errGap = errors.New("an entry is missing")

func newReplica[C any](machine Machine[C], rules int, seal *sealer, aside *asides) *replica[C] {
	return &replica[C]{machine: machine, rules: rules, seal: seal, aside: aside, seen: map[string]mark{}}
}

func checkRules(rules, known int) error {
	if rules > known {
		return fmt.Errorf("%w: it was written by rules %d, this program knows rules up to %d: use a newer program", ErrNewer, rules, known)
	}
	return nil
}

// open returns the encoded commands of an entry if it is the next one.
func (r *replica[C]) open(e Entry) ([][]byte, error) {
	if r.broken {
		return nil, errPanicked
	}
	if e.Seq != r.pos.Seq+1 || e.Prev != r.pos.Token {
		return nil, fmt.Errorf("%w: after %d comes %d", errGap, r.pos.Seq, e.Seq)
	}
	if err := checkRules(e.Rules, r.rules); err != nil {
		return nil, err
	}
	if e.Counter <= r.seen[e.Origin].counter {
		return nil, fmt.Errorf("%w: entry %d is there twice, or not in its place", ErrDamaged, e.Seq)
	}
	body, err := r.seal.open(entryPlace(e.Batch), e.Body)
	if err != nil {
		return nil, fmt.Errorf("entry %d: %w", e.Seq, err)
	}
	encoded, err := splitCommands(body)
	if err != nil {
		return nil, fmt.Errorf("entry %d: %w", e.Seq, err)
	}
	return encoded, nil
}

// apply applies an entry. If it fails with errPanicked, the state is incomplete until
// restore has read it again. Any other error means that nothing has changed.
func (r *replica[C]) apply(e Entry, own bool, result func(i int, result any)) error {
	commands, err := r.open(e)
	if err != nil {
		return err
	}
	r.at = e.At
	for i, c := range commands {
		x, err := r.execute(e, i, c, own)
		if err != nil {
			return err
		}
		result(i, x)
	}
	r.pos, r.seen[e.Origin] = e.Position, mark{e.Counter, r.at}
	r.entries++
	r.bytes += int64(len(e.Body))
	return nil
}

// attempts bounds how often restore starts again because another process dropped
// entries or a saved state during the read. More repetitions indicate damage.
const attempts = 10

// restore brings the machine from any state to entry until. It passes the results of
// the entries that are still in the log to result.
func (r *replica[C]) restore(ctx context.Context, log Log, until uint64, blank func() Machine[C], result func(Entry, int, any)) error {
	if err := r.aside.read(ctx); err != nil {
		return err
	}
	var err error
	for failed := 0; failed < attempts; {
		if err = r.load(ctx, log, blank); err == nil {
			err = r.catchUp(ctx, log, until, result)
		}
		if errors.Is(err, errPanicked) { // each command panics at most twice
			continue
		}
		failed++
		if !errors.Is(err, ErrMoved) && !errors.Is(err, errGap) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}

// load sets the machine to the saved state.
func (r *replica[C]) load(ctx context.Context, log Log, blank func() Machine[C]) error {
	s, err := retry(ctx, func() (Snapshot, error) { return log.Snapshot(ctx) })
	if err != nil {
		return fmt.Errorf("finding the saved state: %w", err)
	}
	if s.ID == "" {
		if r.pos.Seq > 0 || r.broken {
			err = r.takeOver(newReplica(blank(), r.rules, r.seal, nil))
		}
		return err
	}
	if err := checkRules(s.Rules, r.rules); err != nil {
		return err
	}
	from := &snapshotReader{ctx: ctx, log: log, seal: r.seal, snapshot: s}
	err = func() error {
		buffered := bufio.NewReaderSize(from, chunkSize)
		seen, err := readSeen(buffered)
		if err != nil {
			return err
		}
		if err := r.machine.Load(buffered); err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, buffered); err != nil { // verifies the rest of the saved state
			return err
		}
		r.pos, r.at, r.seen, r.base, r.entries, r.bytes = s.Position, s.At, seen, s, 0, 0
		r.broken = false
		return nil
	}()
	if err != nil {
		// A failed read is the cause, whichever error the machine returned.
		if from.err != nil && !errors.Is(from.err, io.EOF) {
			err = from.err
		}
		return fmt.Errorf("reading the saved state: %w", err)
	}
	return nil
}

// catchUp applies the entries of the log up to entry until.
func (r *replica[C]) catchUp(ctx context.Context, log Log, until uint64, result func(Entry, int, any)) error {
	for r.pos.Seq < until {
		entries, err := retry(ctx, func() ([]Entry, error) { return log.Read(ctx, r.pos.Seq) })
		if err != nil {
			return fmt.Errorf("reading the log: %w", err)
		}
		if len(entries) == 0 {
			return fmt.Errorf("%w: the log ends after %d, before %d", errGap, r.pos.Seq, until)
		}
		for _, e := range entries {
			if e.Seq > until {
				break
			}
			if err := r.apply(e, false, func(i int, x any) { result(e, i, x) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeOver sets the machine to the state of another one.
func (r *replica[C]) takeOver(other *replica[C]) error {
	from, to := io.Pipe()
	saved := make(chan error, 1)
	go func() {
		w := bufio.NewWriterSize(to, chunkSize)
		err := errors.Join(other.machine.Save(w), w.Flush())
		_ = to.CloseWithError(err) // always nil
		saved <- err
	}()
	err := r.machine.Load(bufio.NewReaderSize(from, chunkSize))
	if err == nil {
		_, err = io.Copy(io.Discard, from)
	}
	_ = from.CloseWithError(errors.New("this text is not used")) // always nil
	if err := errors.Join(<-saved, err); err != nil {
		return fmt.Errorf("taking over a state: %w", err)
	}
	r.pos, r.at, r.seen, r.base, r.entries, r.bytes = other.pos, other.at, other.seen, other.base, other.entries, other.bytes
	r.broken = false
	return nil
}

// ignore discards results.
func ignore(Entry, int, any) {}
