package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"
)

// Stage connects a stage of the manager with the node of a run.
type Stage struct {
	Account, ID string
	Run         string
	Node        string
	Attempt     int
	// Target is kept for the caller.
	Target []byte
}

// Step connects a step of a tracked stage with the node of a run.
type Step struct {
	Stage   string
	Run     string // set by [Store.Step] only
	ID      string
	Node    string
	Attempt int
}

// unopened is the time of the last renewal of a stage that the manager may not have yet. It is
// later than every other time, so that [Store.Renewable] leaves the stage out.
const unopened = math.MaxInt64

// Track remembers a stage, which is about to be opened, until Untrack. Repeated calls change
// nothing.
func (tx *Tx) Track(st Stage) error {
	err := tx.exec(`INSERT INTO stages (account, stage, run, node, attempt, renewed, target) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		st.Account, st.ID, st.Run, st.Node, st.Attempt, int64(unopened), notNull(st.Target))
	if err != nil {
		return fmt.Errorf("tracking a stage: %w", err)
	}
	return nil
}

// Opened notes that the manager has a tracked stage: its lease is renewed from now on.
func (tx *Tx) Opened(account, id string, now time.Time) error {
	if err := tx.exec(`UPDATE stages SET renewed = ? WHERE account = ? AND stage = ?`, millis(now), account, id); err != nil {
		return fmt.Errorf("noting the start of a stage: %w", err)
	}
	return nil
}

// TrackSteps remembers steps of a stage until it is untracked.
func (tx *Tx) TrackSteps(account string, steps []Step) error {
	for _, st := range steps {
		err := tx.exec(`INSERT INTO steps (account, stage, step, node, attempt, reported) VALUES (?, ?, ?, ?, ?, 0) ON CONFLICT DO NOTHING`,
			account, st.Stage, st.ID, st.Node, st.Attempt)
		if err != nil {
			return fmt.Errorf("tracking a step: %w", err)
		}
	}
	return nil
}

// Report notes that the end of a tracked step is sent to its run, and returns whether this call is
// the first one: each of several processes sees the end.
func (tx *Tx) Report(account, stage, step string) (bool, error) {
	n, err := tx.execCount(`UPDATE steps SET reported = 1 WHERE account = ? AND stage = ? AND step = ? AND reported = 0`, account, stage, step)
	if err != nil {
		return false, fmt.Errorf("noting the end of a step: %w", err)
	}
	return n > 0, nil
}

// Untrack forgets a stage and its steps.
func (tx *Tx) Untrack(account, id string) error {
	for _, table := range []string{"stages", "steps"} {
		if err := tx.exec(`DELETE FROM `+table+` WHERE account = ? AND stage = ?`, account, id); err != nil {
			return fmt.Errorf("forgetting a stage: %w", err)
		}
	}
	return nil
}

// Steps returns the tracked steps of a stage by their ids.
func (s *Store) Steps(ctx context.Context, account, stage string) (map[string]Step, error) {
	all := map[string]Step{}
	err := each(ctx, s.db, s.rebind(`SELECT step, node, attempt FROM steps WHERE account = ? AND stage = ?`), []any{account, stage}, func(scan func(...any) error) error {
		st := Step{Stage: stage}
		err := scan(&st.ID, &st.Node, &st.Attempt)
		all[st.ID] = st
		return err
	})
	return all, err
}

// Step returns a tracked step with its run. It fails with [ErrNotFound].
func (s *Store) Step(ctx context.Context, account, stage, id string) (Step, error) {
	st := Step{Stage: stage, ID: id}
	err := s.db.QueryRowContext(ctx, s.rebind(`SELECT stages.run, steps.node, steps.attempt FROM steps
		JOIN stages ON stages.account = steps.account AND stages.stage = steps.stage
		WHERE steps.account = ? AND steps.stage = ? AND step = ?`), account, stage, id).Scan(&st.Run, &st.Node, &st.Attempt)
	if errors.Is(err, sql.ErrNoRows) {
		return st, ErrNotFound
	}
	return st, err
}

const stageColumns = `account, stage, run, node, attempt, target`

func scanStage(scan func(...any) error) (st Stage, err error) {
	err = scan(&st.Account, &st.ID, &st.Run, &st.Node, &st.Attempt, &st.Target)
	return st, err
}

// Stage returns a tracked stage. It fails with [ErrNotFound].
func (s *Store) Stage(ctx context.Context, account, id string) (Stage, error) {
	st, err := scanStage(s.db.QueryRowContext(ctx, s.rebind(`SELECT `+stageColumns+` FROM stages WHERE account = ? AND stage = ?`), account, id).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return st, ErrNotFound
	}
	return st, err
}

// Stages returns all tracked stages of an account.
func (s *Store) Stages(ctx context.Context, account string) ([]Stage, error) {
	var all []Stage
	err := each(ctx, s.db, s.rebind(`SELECT `+stageColumns+` FROM stages WHERE account = ?`), []any{account}, func(scan func(...any) error) error {
		st, err := scanStage(scan)
		all = append(all, st)
		return err
	})
	return all, err
}

// Renewable returns up to limit stages that were last returned before a time, and counts them
// as returned now, so that only one of several processes gets each.
func (s *Store) Renewable(ctx context.Context, before, now time.Time, limit int) ([]Stage, error) {
	lock := ""
	if s.postgres {
		lock = " FOR UPDATE SKIP LOCKED"
	}
	var due []Stage
	err := s.Update(ctx, func(tx *Tx) error {
		due = nil
		return each(ctx, tx.tx, s.rebind(`UPDATE stages SET renewed = ? WHERE (account, stage) IN (
			SELECT account, stage FROM stages WHERE renewed < ? ORDER BY renewed LIMIT ?`+lock+`) RETURNING `+stageColumns),
			[]any{millis(now), millis(before), limit}, func(scan func(...any) error) error {
				st, err := scanStage(scan)
				due = append(due, st)
				return err
			})
	})
	return due, err
}
