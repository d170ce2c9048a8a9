package manager

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	wire "github.com/delegate-io/dlite/internal/perpetual"
	"github.com/delegate-io/dlite/manager/internal/perpetual"
)

// checkReport checks what a delegate reports about its perpetual tasks.
func checkReport(r *wire.Report) error {
	if r.Session == "" {
		return fmt.Errorf("%w: session is missing", ErrInvalid)
	}
	if err := firstError(
		checkID("session", r.Session),
		checkNames("types", r.Types),
		checkCount("results", len(r.Results), wire.MaxResults),
		checkCount("released", len(r.Released), wire.MaxReleased),
	); err != nil {
		return err
	}
	for i := range r.Results {
		if err := checkResult(fmt.Sprintf("results[%d]", i), &r.Results[i]); err != nil {
			return err
		}
	}
	for i := range r.Released {
		if err := checkID(fmt.Sprintf("released[%d].id", i), r.Released[i].ID); err != nil {
			return err
		}
	}
	return nil
}

func checkResult(path string, r *wire.Result) error {
	if err := firstError(
		checkID(path+".id", r.ID),
		checkNumber(path+".startedAgoMs", r.StartedAgoMS, wire.MaxAge.Milliseconds()),
		checkNumber(path+".durationMs", r.DurationMS, r.StartedAgoMS),
		checkSize(path+".error", len(r.Error), wire.MaxError),
	); err != nil {
		return err
	}
	if r.Error != "" && (len(r.State) > 0 || len(r.Events) > 0) {
		return fmt.Errorf("%w: %s has an error, and a state or events: a failed run has neither", ErrInvalid, path)
	}
	if err := r.Check(); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInvalid, path, err)
	}
	return nil
}

// reconcilePerpetual serves the call of a delegate about its perpetual tasks.
func (m *Manager) reconcilePerpetual(w http.ResponseWriter, r *http.Request) {
	wait, _, ok := m.waitParam(w, r)
	if !ok {
		return
	}
	var in wire.Report
	if _, ok := m.readAndDecode(w, r, &in, taskBounds); !ok {
		return
	}
	if err := checkReport(&in); err != nil {
		writeError(w, err)
		return
	}
	slices.Sort(in.Types)
	cmd := &perpetualReport{Delegate: pathParam(r, "delegate"), Report: in}
	cmd.Since, cmd.Only = "", false
	if m.knowsTypes(account(r), cmd) {
		cmd.Types = nil // keep the frequent command small
	}
	got, err := m.applyCommand(r.Context(), &command{Account: account(r), Perpetual: &perpetualCommand{Report: cmd}})
	if err != nil {
		writeError(w, perpetualError(err))
		return
	}
	out := &wire.Answer{}
	if !in.Only {
		if len(in.Results) > 0 || len(in.Released) > 0 {
			wait = 0 // the delegate learns of refused results at once
		}
		if out, ok = m.awaitPerpetual(r, &in, wait); !ok {
			writeError(w, perpetual.ErrUnknownDelegate)
			return
		}
	}
	m.core.mu.Lock()
	out.LeaseMS = m.core.perpetual.Lease().Milliseconds()
	m.core.mu.Unlock()
	out.Refused = got.refused
	writeJSON(w, http.StatusOK, out)
}

func (m *Manager) knowsTypes(account string, r *perpetualReport) bool {
	m.core.mu.Lock()
	defer m.core.mu.Unlock()
	return m.core.perpetual.Known(account, r.Delegate, &r.Report)
}

// awaitPerpetual waits for changes for a session, and returns them. The wait
// is not longer than a third of the lease, because the lease is not renewed in it. It
// reports false if the session has ended.
func (m *Manager) awaitPerpetual(r *http.Request, in *wire.Report, wait time.Duration) (*wire.Answer, bool) {
	var over <-chan time.Time
	for {
		m.core.mu.Lock()
		out, changed, ok := m.core.perpetual.Changes(account(r), in.Session, in.Since, m.journal.Now())
		wait = min(wait, m.core.perpetual.Lease()/3)
		m.core.mu.Unlock()
		if !ok || wait == 0 || len(out.Assigned) > 0 || out.HeldGiven {
			return out, ok
		}
		if over == nil {
			release, err := m.budgets.take(account(r), amounts{budgetHolds: 1})
			if err != nil { // the delegate pauses after an early answer without news
				return out, true
			}
			defer release()
			var stop func()
			over, stop = m.after(wait)
			defer stop()
		}
		select {
		case <-changed:
		case <-over:
			return out, true
		case <-r.Context().Done():
			return out, true
		case <-m.closing:
			return out, true
		}
	}
}
