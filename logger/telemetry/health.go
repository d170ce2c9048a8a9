package telemetry

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// checkTimeout is how long a check may take before it has failed.
const checkTimeout = 2 * time.Second

// Check looks at one thing.
type Check struct {
	// Name is for people.
	Name string
	// Run returns nil when all is well, otherwise why not. The reason is shown to
	// whoever asks: it must not hold what came from a task or a configuration. One
	// that takes longer than 2 s has failed, and is not started again until it has
	// returned. It must be safe for concurrent use.
	Run func(context.Context) error
}

// Checks are all that must be well.
type Checks []Check

// report is the body of the answer.
type report struct {
	Status string   `json:"status"` // "ok" or "failing"
	Checks []result `json:"checks"`
}

type result struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitempty"`
}

// handler answers 200 when all checks are well, otherwise 503; the body says
// why.
func (c Checks) handler() http.Handler {
	guards := make([]*guard, len(c))
	for i, check := range c {
		guards[i] = &guard{check: check}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := report{Status: "ok", Checks: make([]result, len(guards))}
		var wg sync.WaitGroup
		for i, g := range guards {
			wg.Go(func() { out.Checks[i] = g.run(r.Context()) })
		}
		wg.Wait()
		status := http.StatusOK
		for _, res := range out.Checks {
			if !res.OK {
				out.Status, status = "failing", http.StatusServiceUnavailable
			}
		}
		b, _ := json.Marshal(out) // strings and booleans always encode
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		_, _ = w.Write(append(b, '\n')) // who has gone asks again
	})
}

// guard keeps a check that hangs from holding who asks, and from hanging more
// than once.
type guard struct {
	check Check

	mu      sync.Mutex
	current *attempt // under way, or nil
}

type attempt struct {
	done chan struct{}
	err  error // set before done is closed
}

// run joins the attempt that is under way, or begins one.
func (g *guard) run(ctx context.Context) result {
	g.mu.Lock()
	a := g.current
	if a == nil {
		a = &attempt{done: make(chan struct{})}
		g.current = a
		go g.do(context.WithoutCancel(ctx), a)
	}
	g.mu.Unlock()
	late := time.NewTimer(checkTimeout)
	defer late.Stop()
	select {
	case <-a.done:
		if a.err != nil {
			return result{Name: g.check.Name, Reason: a.err.Error()}
		}
		return result{Name: g.check.Name, OK: true}
	case <-late.C:
		return result{Name: g.check.Name, Reason: fmt.Sprintf("the check did not answer within %s", checkTimeout)}
	}
}

// do ends with the check; its context ends when its time is up.
func (g *guard) do(ctx context.Context, a *attempt) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	a.err = g.check.Run(ctx)
	g.mu.Lock()
	g.current = nil
	g.mu.Unlock()
	close(a.done)
}
