package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// maxSection is the number of ended stages that are written in one transaction.
const maxSection = 200

// recordPause is the least time between two looks for ended stages: those that end meanwhile share a transaction.
const recordPause = 100 * time.Millisecond

// recorder writes the ended stages of an account to the database. Several services may do so: the
// position in the list of the manager moves with each section, and lets only one of them write it.
type recorder struct {
	service *Service
	account string
	// epoch and position are the list of the manager and the number of the last stage that was
	// written, as far as this process knows. If stale is set, it must look.
	epoch    string
	position uint64
	stale    bool
	// known reports whether the database has a position in the list.
	known bool
	// since is the number of the last ended stage when this process began to read the list from its
	// start. The manager forgot earlier stages before the history began, or after they were written.
	since uint64
}

// record writes the ended stages of an account until ctx ends.
func (s *Service) record(ctx context.Context, account string) {
	r := &recorder{service: s, account: account}
	log := s.cfg.Logger.With().Str("account", account).Logger()
	for seen, look := uint64(0), true; ; {
		feed := s.cfg.Manager.Events(account, seen)
		seen = feed.Last
		look = look || feed.Missed || slices.ContainsFunc(feed.Events, func(e api.Event) bool { return e.Step == "" && e.Stage != "" && e.Status.Ended() })
		for look && ctx.Err() == nil {
			repeat(ctx, &log, "pipelines: ended stages could not be written to the database and will be again", func(ctx context.Context) (err error) {
				look, err = r.section(ctx)
				return err
			})
		}
		pause := time.NewTimer(recordPause)
		select {
		case <-ctx.Done():
		case <-feed.Changed:
			select {
			case <-ctx.Done():
			case <-pause.C:
			}
		}
		pause.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// section writes the next ended stages, and reports whether there are more.
func (r *recorder) section(ctx context.Context) (more bool, err error) {
	s := r.service
	ended, err := s.cfg.Manager.EndedStages(ctx, r.account, r.position, maxSection)
	if err != nil {
		return false, err
	}
	if ended.Epoch != r.epoch || r.stale {
		position, known, err := s.store.Position(ctx, r.account, ended.Epoch)
		if err != nil {
			return false, err
		}
		if ended.Epoch != r.epoch {
			r.since = 0
		}
		r.epoch, r.position, r.known, r.stale = ended.Epoch, position, known, false
		return true, nil
	}
	switch {
	case ended.Last < r.position: // its store was restored from an older copy, and counts on from there
		s.cfg.Logger.Warn().Str("account", r.account).Uint64("position", r.position).Uint64("last", ended.Last).
			Msg("pipelines: the manager knows fewer ended stages than the history has: its list is read from the start")
		ended, err = s.cfg.Manager.EndedStages(ctx, r.account, 0, maxSection)
		if err != nil || ended.Epoch != r.epoch {
			return true, err
		}
		r.since = ended.Last
	case !r.known: // the position is 0
		r.since = ended.Last
	case ended.Next == r.position:
		return false, nil
	}
	sec := store.Section{Account: r.account, Epoch: ended.Epoch, First: !r.known, After: r.position, To: ended.Next, Lost: ended.Missed}
	if from := ended.Next - uint64(len(ended.Stages)) - ended.Missed; from < r.since && sec.Lost > 0 {
		s.cfg.Logger.Info().Str("account", r.account).Uint64("stages", sec.Lost).
			Msg("pipelines: the list of ended stages is read from its start, and the manager has forgotten some of the oldest ones")
		sec.Lost = 0
	}
	for i := range ended.Stages {
		row, err := endedRow(r.account, &ended.Stages[i])
		if err != nil {
			return false, err
		}
		sec.Stages = append(sec.Stages, row)
	}
	if err := s.store.Record(ctx, sec, time.Now()); err != nil {
		r.stale = true // another service was faster, or it is not known whether the section is written
		if errors.Is(err, store.ErrStale) {
			err = nil
		}
		return true, err
	}
	r.position, r.known = sec.To, true
	if sec.Lost > 0 {
		s.cfg.Logger.Error().Str("account", r.account).Uint64("lost", sec.Lost).
			Msg("pipelines: the manager has forgotten ended stages before they could be written to the database: they are missing in the history. " +
				"If the database can be away for so long, raise RETENTION, MAX_FINISHED and MAX_FINISHED_BYTES of the manager")
	}
	return sec.To < ended.Last, nil
}

// runLabel is the label that the stages of runs have: the id of the run.
const runLabel = "run"

// endedRow returns the database's form of an ended stage.
func endedRow(account string, e *api.NumberedStage) (store.EndedStage, error) {
	st := &e.Stage
	labels := map[string]string{}
	search := []string{st.ID, st.Name, st.Pipeline}
	for name, value := range st.Labels {
		labels[cleaned(name)] = cleaned(value)
		search = append(search, value)
	}
	slices.Sort(search[3:])
	head := api.EndedStage{
		ID: st.ID, Name: st.Name, Pipeline: st.Pipeline, Status: st.Status, Branch: st.Labels["branch"], Labels: st.Labels, Infra: st.Infra,
		Delegate: e.Delegate, DelegateID: st.DelegateID, Error: st.Error, FailureKind: st.FailureKind, Retries: len(st.Attempts),
		SubmittedAt: st.SubmittedAt, StartedAt: st.StartedAt, EndedAt: st.EndedAt,
	}
	if !st.StartedAt.IsZero() {
		head.Duration = max(st.EndedAt.Sub(st.StartedAt).Milliseconds(), 0)
	}
	row := store.EndedStage{
		Account: account, ID: cleaned(st.ID), Run: cleaned(st.Labels[runLabel]), Pipeline: cleaned(st.Pipeline), Status: string(st.Status), Branch: cleaned(head.Branch),
		Delegate: cleaned(e.Delegate), Labels: labels, Search: cleaned(strings.Join(append(search, st.Error), "\n")), Started: st.StartedAt, Ended: st.EndedAt,
	}
	detail := *st
	detail.Steps = slices.Clone(st.Steps)
	for i := range detail.Steps {
		detail.Steps[i].Artifact = nil // it may be large, and belongs to the step after it
	}
	var err error
	if row.Head, err = json.Marshal(head); err != nil {
		return row, fmt.Errorf("encoding ended stage %s: %w", st.ID, err)
	}
	if row.Detail, err = json.Marshal(detail); err != nil {
		return row, fmt.Errorf("encoding ended stage %s: %w", st.ID, err)
	}
	return row, nil
}

// cleaned returns a text in a form that both databases take: PostgreSQL refuses other bytes.
func cleaned(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "?")
}
