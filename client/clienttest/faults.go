package clienttest

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Faults spoils requests on their way to a handler. [Server] has one built in;
// in front of another handler it goes outermost:
//
//	faults := clienttest.NewFaults(1)
//	defer faults.Release()
//	srv := httptest.NewServer(faults.Wrap(manager))
//
// It cuts connections by panicking with [http.ErrAbortHandler], so nothing
// outside of it may recover. It works with HTTP/1.1 and HTTP/2. Safe for
// concurrent use.
type Faults struct {
	calls *classifier

	mu       sync.Mutex
	rand     *rand.Rand
	active   []*Injection
	counts   [faultKinds]int
	changed  signal        // a fault happened
	released chan struct{} // closed: nothing is held any longer
}

// NewFaults makes one that injects nothing yet. Faults with a probability draw
// from a source that the seed determines. Which request gets which draw depends
// on their order, so only requests one after the other fail the same way twice.
func NewFaults(seed uint64) *Faults {
	return &Faults{
		calls:    newClassifier(),
		rand:     rand.New(rand.NewPCG(seed, seed)),
		released: make(chan struct{}),
	}
}

// Inject adds a fault. It panics when the fault makes no sense.
func (f *Faults) Inject(fault Fault) *Injection {
	fault.check()
	i := &Injection{faults: f, fault: fault}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active = append(f.active, i)
	return i
}

// Clear removes all faults. Requests that are held stay held.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active = nil
}

// Release removes all faults and lets go of what they hold: hanging requests are
// cut, slow ones go on at once. Call it before the server is closed, or that
// waits for them. Faults that are injected later hold nothing.
func (f *Faults) Release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active = nil
	select {
	case <-f.released:
	default:
		close(f.released)
	}
}

// Count is how many faults of a kind have happened.
func (f *Faults) Count(kind FaultKind) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[kind]
}

// Wrap puts the faults in front of a handler. Several handlers can share one
// Faults.
func (f *Faults) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fault, ok := f.pick(f.calls.classify(r))
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		if e, ok := r.Context().Value(entryKey{}).(*entry); ok {
			e.fault = fault.Kind.String()
		}
		f.spoil(fault, next, w, r)
	})
}

// pick finds the fault that a request meets, and counts it.
func (f *Faults) pick(t target) (Fault, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range f.active {
		if !i.fault.matches(t) {
			continue
		}
		if i.skipped < i.fault.Skip {
			i.skipped++
			continue
		}
		if p := i.fault.Probability; p > 0 && f.rand.Float64() >= p {
			continue
		}
		i.count++
		f.counts[i.fault.Kind]++
		if i.count == i.fault.Times {
			f.remove(i)
		}
		f.changed.raise()
		return i.fault, true
	}
	return Fault{}, false
}

// remove takes an injection off the list. The caller holds mu.
func (f *Faults) remove(i *Injection) {
	f.active = slices.DeleteFunc(slices.Clone(f.active), func(a *Injection) bool { return a == i })
}

// hold waits for d, or for ever when d is 0. It is false when the client went
// away.
func (f *Faults) hold(ctx context.Context, d time.Duration) bool {
	var over <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-over:
	case <-f.released:
	case <-ctx.Done():
		return false
	}
	return true
}

// readAhead takes in what the client sends and gives it back to the request.
// Only when a body has been read to its end does the server notice that the
// client goes away, and the client has written all before it is cut off.
func readAhead(r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	b, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(b), broken{err}))
}

// broken reads as an error, or as the end when there is none.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, cmp.Or(b.err, io.EOF) }
