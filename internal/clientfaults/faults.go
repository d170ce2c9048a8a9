package clientfaults

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

	"github.com/delegate-io/dlite/client/clienttest"
)

// Faults makes requests fail on their way to a handler. It must be the outermost
// middleware:
//
//	faults := clientfaults.New(1)
//	defer faults.Release()
//	srv := httptest.NewServer(faults.Wrap(manager))
//
// It closes connections by panicking with [http.ErrAbortHandler], so no outer
// handler may recover. It supports HTTP/1.1 and HTTP/2, and is safe for
// concurrent use.
type Faults struct {
	mu       sync.Mutex
	rand     *rand.Rand
	active   []*Injection
	counts   [kindCount]int
	changed  chan struct{} // closed at the next fault, then replaced
	released chan struct{} // closed by Release
}

// New returns Faults without a fault. The seed determines the draws of faults
// with a probability. The order of requests assigns the draws to requests, so
// only sequential requests fail the same way twice.
func New(seed uint64) *Faults {
	return &Faults{
		rand:    rand.New(rand.NewPCG(seed, seed)),
		changed: make(chan struct{}), released: make(chan struct{}),
	}
}

// Inject adds a fault. It panics if the fault is invalid.
func (f *Faults) Inject(fault Fault) *Injection {
	fault.validate()
	i := &Injection{faults: f, fault: fault}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active = append(f.active, i)
	return i
}

// Clear removes all faults. Held requests stay held.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active = nil
}

// Release removes all faults and ends the held requests: hanging requests lose
// their connection, slow requests continue at once. Call it before the server's
// Close, which waits for held requests. Faults that are injected later hold no
// request.
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

// Injected returns the number of faults of a kind that have happened.
func (f *Faults) Injected(kind Kind) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[kind]
}

// Wrap returns a handler that puts the faults in front of next. Several handlers
// can share one Faults.
func (f *Faults) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fault, ok := f.pick(clienttest.CallOf(r)); ok {
			f.serveFault(fault, next, w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// pick finds the fault that a request meets, and counts it.
func (f *Faults) pick(call string, delegateID, taskID string) (Fault, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range f.active {
		if !i.fault.matches(call, delegateID, taskID) {
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
		close(f.changed)
		f.changed = make(chan struct{})
		return i.fault, true
	}
	return Fault{}, false
}

// remove takes an injection off the list. The caller holds mu.
func (f *Faults) remove(i *Injection) {
	f.active = slices.DeleteFunc(slices.Clone(f.active), func(a *Injection) bool { return a == i })
}

// hold waits for d, or without a limit if d is zero. It returns false if the
// client disconnected.
func (f *Faults) hold(ctx context.Context, d time.Duration) bool {
	var expired <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-expired:
	case <-f.released:
	case <-ctx.Done():
		return false
	}
	return true
}

// bufferBody reads the whole body and gives it back to the request. The server
// notices a disconnect only after the body has been read to its end, and the
// client has then written everything before its connection is closed.
func bufferBody(r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	b, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(b), errorReader{err}))
}

// errorReader returns its error, or io.EOF if that is nil.
type errorReader struct{ err error }

func (b errorReader) Read([]byte) (int, error) { return 0, cmp.Or(b.err, io.EOF) }
