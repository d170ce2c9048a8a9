package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/delegate-io/dlite/manager/api"
)

// order is a stage to submit.
type order struct {
	api.StageRequest
	abort time.Duration // time from its submission; 0 is never
}

// makeOrders draws the stages.
func makeOrders(r *rand.Rand, n int) []order {
	orders := make([]order, n)
	for i := range orders {
		o := &orders[i]
		o.ID, o.Init = fmt.Sprintf("s%05d", i), json.RawMessage(`{"envs":{}}`) // the API refuses an empty stage
		for s := range r.IntN(4) {
			o.Steps = append(o.Steps, api.StepRequest{ID: fmt.Sprint("step", s)})
		}
		switch r.IntN(10) {
		case 0, 1:
			o.Selectors = []string{"even"}
		case 2, 3:
			o.Selectors = []string{"odd"}
		}
		if r.IntN(10) == 0 {
			o.Priority = "HIGH"
		}
		if r.IntN(2) == 0 {
			o.Retry = &api.Retry{MaxAttempts: 3, On: []string{"lost"}, BackoffMS: 200}
		}
		if r.IntN(12) == 0 {
			o.abort = time.Millisecond + upTo(r, 300*time.Millisecond)
		}
	}
	return orders
}

// submitters submit stages in parallel and abort some of them.
type submitters struct {
	t        *testing.T
	api      *apiCalls
	maxLive  int // largest number of stages that have not ended
	progress *watchers

	submitted, repeated, found, aborts atomic.Int64
}

const parallelSubmitters = 8

// run returns when all stages are submitted.
func (s *submitters) run(ctx context.Context, orders []order) {
	next := make(chan order)
	var all sync.WaitGroup
	defer all.Wait()
	for range parallelSubmitters {
		all.Go(func() {
			for o := range next {
				s.submit(ctx, o)
			}
		})
	}
	defer close(next)
	for i, o := range orders {
		for i-s.progress.ended() >= s.maxLive {
			if !pause(ctx, 5*time.Millisecond) {
				return
			}
		}
		select {
		case next <- o:
		case <-ctx.Done():
			return
		}
	}
}

// submit repeats the submission of a stage until a manager confirms it.
func (s *submitters) submit(ctx context.Context, o order) {
	status, calls, err := s.api.insist(ctx, http.MethodPost, "/api/stages", o.StageRequest, nil)
	if err != nil {
		s.t.Errorf("submitting %s: %v", o.ID, err)
		return
	}
	s.submitted.Add(1)
	s.repeated.Add(int64(calls - 1))
	if status == http.StatusOK {
		s.found.Add(1)
		if calls == 1 {
			s.t.Errorf("%s existed before its submission", o.ID)
		}
	}
	if o.abort == 0 || !pause(ctx, o.abort) {
		return
	}
	s.aborts.Add(1)
	if _, _, err := s.api.insist(ctx, http.MethodPost, "/api/stages/"+o.ID+"/abort", nil, nil); err != nil {
		s.t.Errorf("aborting %s: %v", o.ID, err)
	}
}

// upTo draws a duration below d.
func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
