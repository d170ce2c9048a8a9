package journaltest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/delegate-io/dlite/manager/internal/journal"
)

// history runs commands on journals of one log and compares the journals with the
// acknowledged results.
type history struct {
	open     Opener
	shared   bool
	journals []Journal
	acked    map[string]Receipt // acknowledged commands
	unclear  map[string]bool    // commands that may have been applied
	n        int
}

// flaky loses requests and answers.
type flaky struct {
	journal.Log
	mu  sync.Mutex
	rnd *rand.Rand
}

func (f *flaky) luck(of int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rnd.IntN(of) == 0
}

func (f *flaky) Append(ctx context.Context, log string, b journal.Batch) (journal.Entry, error) {
	if f.luck(15) {
		return journal.Entry{}, fmt.Errorf("%w: the request is lost", journal.ErrRetry)
	}
	e, err := f.Log.Append(ctx, log, b)
	if err == nil && f.luck(15) {
		return journal.Entry{}, fmt.Errorf("%w: the answer is lost", journal.ErrRetry)
	}
	return e, err
}

func (f *flaky) Read(ctx context.Context, after uint64) ([]journal.Entry, error) {
	if f.luck(15) {
		return nil, fmt.Errorf("%w: nothing is read", journal.ErrRetry)
	}
	return f.Log.Read(ctx, after)
}

// histories runs random histories. If lose is not nil, it makes the log lose its last
// entries.
func histories(t *testing.T, fresh func(testing.TB) (open Opener, lose func(int))) {
	rapid.Check(t, func(rt *rapid.T) {
		open, lose := fresh(t)
		h := &history{open: open, acked: map[string]Receipt{}, unclear: map[string]bool{}}
		defer func() {
			for _, j := range h.journals {
				_ = j.Close() // the second Close returns nil
			}
		}()
		h.start(rt)
		actions := map[string]func(*rapid.T){
			"do": h.do, "give up": h.giveUp, "reopen": h.reopen, "compact": h.compact, "start": h.start, "stop": h.stop, "": h.check,
		}
		if lose != nil {
			actions["lose"] = func(t *rapid.T) { h.lose(t, lose) }
		}
		rt.Repeat(actions)
	})
}

// lose makes the log lose its end, while the journals are idle or busy.
func (h *history) lose(t *rapid.T, lose func(int)) {
	before := h.journals[0].IDs() // complete, because check ran before
	lose(rapid.IntRange(0, 5).Draw(t, "entries"))
	if rapid.Bool().Draw(t, "and write at once") {
		h.do(t)
	}
	h.awaitDecisions(t)
	places := map[string]int{}
	for i, id := range h.journals[0].IDs() {
		places[id] = i
	}
	for _, id := range before {
		if place, kept := places[id]; !kept || place != h.acked[id].Place {
			delete(h.acked, id)
			h.unclear[id] = true
		}
	}
}

// awaitDecisions waits until abandoned commands are decided: a later command of each journal
// has been applied in all journals.
func (h *history) awaitDecisions(t *rapid.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, j := range h.journals {
		h.n++
		id := fmt.Sprint(h.n)
		r, err := j.Do(ctx, Command{ID: id, Account: "marker"})
		h.note(t, id, r, err)
	}
	for _, j := range h.journals {
		if err := j.Sync(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

func (h *history) start(t *rapid.T) {
	if len(h.journals) > 0 && (!h.shared || len(h.journals) == 3) {
		return
	}
	log, err := h.open()
	if err != nil {
		t.Fatal(err)
	}
	h.shared = log.Shared()
	cfg := Config(&flaky{Log: log, rnd: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))})
	cfg.MaxBatch = rapid.SampledFrom([]int{0, 1, 200}).Draw(t, "batch")
	cfg.CompactAfter = rapid.SampledFrom([]int64{0, 1, 2000}).Draw(t, "compact after")
	j, err := openJournal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h.journals = append(h.journals, j)
}

func (h *history) pick(t *rapid.T) int {
	return rapid.IntRange(0, len(h.journals)-1).Draw(t, "journal")
}

func (h *history) stop(t *rapid.T) {
	if len(h.journals) == 1 {
		return
	}
	i := h.pick(t)
	if err := h.journals[i].Close(); err != nil {
		t.Fatal(err)
	}
	h.journals = append(h.journals[:i], h.journals[i+1:]...)
}

func (h *history) reopen(t *rapid.T) {
	i := h.pick(t)
	if err := h.journals[i].Close(); err != nil {
		t.Fatal(err)
	}
	h.journals = append(h.journals[:i], h.journals[i+1:]...)
	h.start(t)
}

func (h *history) compact(t *rapid.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := h.journals[h.pick(t)].Compact(ctx); err != nil {
		t.Log(err) // another journal may be saving the state
	}
}

// do applies commands on several journals at the same time, with several callers each.
func (h *history) do(t *rapid.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range rapid.IntRange(1, 20).Draw(t, "commands") {
		j := h.journals[h.pick(t)]
		h.n++
		c := Command{ID: fmt.Sprint(h.n), Account: fmt.Sprint(h.n % 3), Add: int64(h.n), Pad: make([]byte, h.n%100)}
		wg.Go(func() {
			r, err := j.Do(ctx, c)
			mu.Lock()
			defer mu.Unlock()
			h.note(t, c.ID, r, err)
		})
	}
	wg.Wait()
}

// note records an answer. If the saved state of another process covers an entry, a
// process may not know its result.
func (h *history) note(t *rapid.T, id string, result any, err error) {
	switch {
	case err == nil:
		h.acked[id] = result.(Receipt)
	case h.shared && strings.Contains(err.Error(), "the log lost its end"):
		h.unclear[id] = true
	default:
		t.Errorf("%s: %v", id, err)
	}
}

// giveUp sends commands with a short time limit and ignores the answers.
func (h *history) giveUp(t *rapid.T) {
	j := h.journals[h.pick(t)]
	var wg sync.WaitGroup
	for range rapid.IntRange(1, 5).Draw(t, "commands") {
		h.n++
		id := fmt.Sprint(h.n)
		h.unclear[id] = true
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rapid.IntRange(0, 2000).Draw(t, "µs"))*time.Microsecond)
		wg.Go(func() {
			defer cancel()
			_, _ = j.Do(ctx, Command{ID: id, Account: "unclear"})
		})
	}
	wg.Wait()
}

func (h *history) check(t *rapid.T) {
	h.awaitDecisions(t)
	var first string
	for i, j := range h.journals {
		if f := j.Faults(); len(f) > 0 {
			t.Fatal(f)
		}
		switch saved := j.Saved(); {
		case i == 0:
			first = saved
		case saved != first:
			t.Fatalf("journal %d has\n%s\nand the first\n%s", i, saved, first)
		}
	}
	places := map[string]int{}
	for i, id := range h.journals[0].IDs() {
		places[id] = i
		if _, ok := h.acked[id]; !ok && !h.unclear[id] {
			t.Fatalf("no caller received the result of %s", id)
		}
	}
	for id, r := range h.acked {
		if place, ok := places[id]; !ok || place != r.Place {
			t.Fatalf("%s was applied as number %d; found: %v, as number %d", id, r.Place, ok, place)
		}
	}
}
