package clienttest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/delegate-io/dlite/internal/perpetual"
	"github.com/delegate-io/dlite/task"
)

// perpetualTask is a perpetual task that runs once.
type perpetualTask struct {
	perpetual.Assignment
	delegate string // that has it
	results  chan perpetual.Result
}

// RunPerpetual gives a perpetual task to a delegate with a handler of the type
// (poller.WithPerpetual), and waits for the end of a run. It returns the result of the
// run, or the error of a failed one. Config and state may be nil. Each call makes a task
// with a new id and a new token.
func (s *Server) RunPerpetual(ctx context.Context, taskType string, config, state json.RawMessage) (*task.PerpetualResult, error) {
	s.mu.Lock()
	id := s.nextID("perpetual")
	t := &perpetualTask{results: make(chan perpetual.Result, 1), Assignment: perpetual.Assignment{
		Claim: perpetual.Claim{ID: id, Token: uint64(s.lastID)}, Account: s.Account, Type: taskType, Config: config, State: state, //nolint:gosec // it is not negative
		IntervalMS: time.Hour.Milliseconds(), TimeoutMS: time.Hour.Milliseconds(),
	}}
	s.perpetual[id] = t
	s.movePerpetual()
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.perpetual, id)
		s.movePerpetual()
	}()
	select {
	case r := <-t.results:
		if r.Error != "" {
			return nil, errors.New(r.Error)
		}
		return &task.PerpetualResult{State: r.State, Events: r.Events}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.done:
		return nil, errClosed
	}
}

// movePerpetual makes waiting calls look again. The caller holds mu.
func (s *Server) movePerpetual() {
	s.perpetualCursor++
	s.perpetualMoved.send()
}

const (
	perpetualLease = 30 * time.Second
	perpetualHold  = 5 * time.Second
)

// reconcilePerpetual serves the call of a delegate about its perpetual tasks. It does not end
// leases.
func (s *Server) reconcilePerpetual(w http.ResponseWriter, r *http.Request) {
	var in perpetual.Report
	id := arrivalOf(r).delegateID
	if s.plain {
		http.NotFound(w, r)
		return
	}
	if !decode(w, r, &in) || !s.update(w, id, func(*delegate) {}) {
		return
	}
	out := &perpetual.Answer{LeaseMS: perpetualLease.Milliseconds()}
	s.mu.Lock()
	for _, res := range in.Results {
		if t := s.perpetual[res.ID]; t != nil && t.Token == res.Token && t.delegate == id {
			select {
			case t.results <- res:
			default:
			}
		} else {
			out.Refused = append(out.Refused, perpetual.Refusal{Claim: res.Claim, Run: res.Run, Error: "the delegate does not have the task"})
		}
	}
	for _, c := range in.Released {
		if t := s.perpetual[c.ID]; t != nil && t.Token == c.Token && t.delegate == id {
			t.delegate = ""
			s.movePerpetual()
		}
	}
	s.mu.Unlock()
	timer := time.NewTimer(perpetualHold)
	defer timer.Stop()
	for wait := r.URL.Query().Get("wait") != "" && !in.Only; ; {
		s.mu.Lock()
		moved := s.perpetualMoved.wait()
		cursor := strconv.FormatUint(s.perpetualCursor, 10)
		if !in.Only && cursor != in.Since {
			s.assignPerpetual(out, id, &in)
			out.Cursor, wait = cursor, false
		}
		s.mu.Unlock()
		if !wait {
			if !in.Only && out.Cursor == "" {
				out.Cursor = in.Since
			}
			encode(w, out)
			return
		}
		select {
		case <-moved:
		case <-timer.C:
			wait = false
		case <-r.Context().Done():
			return
		case <-s.done:
			wait = false
		}
	}
}

// assignPerpetual answers with all tasks of a delegate. The caller holds mu.
func (s *Server) assignPerpetual(out *perpetual.Answer, id string, in *perpetual.Report) {
	out.HeldGiven = true
	for _, t := range s.perpetual {
		if t.delegate == "" && !in.Leaving && slices.Contains(in.Types, t.Type) {
			t.delegate = id
		}
		if t.delegate == id {
			out.Assigned = append(out.Assigned, t.Assignment)
			out.Held = append(out.Held, t.Claim)
		}
	}
}
