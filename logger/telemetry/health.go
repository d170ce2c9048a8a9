package telemetry

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// checkTimeout is the time after which a check has failed.
const checkTimeout = 2 * time.Second

// Check is a health check.
type Check struct {
	// Name describes the check to people.
	Name string
	// Run returns nil, or the reason of the failure. The answer is public: the reason
	// must not contain parts of a task or of the configuration. A check that takes
	// longer than 2 s has failed, and does not run again until it has returned. Run
	// must be safe for concurrent use.
	Run func(context.Context) error
}

// Checks are health checks that must all succeed.
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

// handler answers 200 if all checks succeed, otherwise 503. The body has the result
// of each check.
func (c Checks) handler() http.Handler {
	runners := make([]*checkRunner, len(c))
	for i, check := range c {
		runners[i] = &checkRunner{check: check}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := report{Status: "ok", Checks: make([]result, len(runners))}
		var wg sync.WaitGroup
		for i, g := range runners {
			wg.Go(func() { out.Checks[i] = g.run(r.Context()) })
		}
		wg.Wait()
		status := http.StatusOK
		for _, res := range out.Checks {
			if !res.OK {
				out.Status, status = "failing", http.StatusServiceUnavailable
			}
		}
		b, _ := json.Marshal(out) // these types always encode
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		_, _ = w.Write(append(b, '\n')) // a failed write has no recipient for an error
	})
}

// checkRunner runs a check. A check that hangs blocks no request, and hangs only
// once.
type checkRunner struct {
	check Check

	mu      sync.Mutex
	current *checkRun // in progress, or nil
}

// checkRun is one run of a check.
type checkRun struct {
	done chan struct{}
	err  error // set before done is closed
}

// run waits for the run in progress, or starts a run.
func (g *checkRunner) run(ctx context.Context) result {
	g.mu.Lock()
	a := g.current
	if a == nil {
		a = &checkRun{done: make(chan struct{})}
		g.current = a
		go g.runCheck(context.WithoutCancel(ctx), a)
	}
	g.mu.Unlock()
	timeout := time.NewTimer(checkTimeout)
	defer timeout.Stop()
	select {
	case <-a.done:
		if a.err != nil {
			return result{Name: g.check.Name, Reason: a.err.Error()}
		}
		return result{Name: g.check.Name, OK: true}
	case <-timeout.C:
		return result{Name: g.check.Name, Reason: fmt.Sprintf("the check did not answer within %s", checkTimeout)}
	}
}

// runCheck returns when the check returns. Its context ends after checkTimeout.
func (g *checkRunner) runCheck(ctx context.Context, a *checkRun) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	a.err = g.check.Run(ctx)
	g.mu.Lock()
	g.current = nil
	g.mu.Unlock()
	close(a.done)
}
