package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
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
	Run     string // set by [Store.Find] only
	ID      string
	Node    string
	Attempt int
	// Reported is 1 if the end of the step was sent to its run.
	Reported int
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

// TrackSteps remembers steps of stages until their stage is untracked.
func (tx *Tx) TrackSteps(account string, steps []Step) error {
	for chunk := range slices.Chunk(steps, maxRows) {
		var args []any
		for _, st := range chunk {
			args = append(args, account, st.Stage, st.ID, st.Node, st.Attempt)
		}
		err := tx.exec(`INSERT INTO steps (account, stage, step, node, attempt, reported) VALUES `+rows("(?, ?, ?, ?, ?, 0)", len(chunk))+` ON CONFLICT DO NOTHING`, args...)
		if err != nil {
			return fmt.Errorf("tracking steps: %w", err)
		}
	}
	return nil
}

// Report notes that the ends of tracked steps are sent to their runs, and returns those for which this call is the first
// one: each of several processes may see an end.
func (tx *Tx) Report(account string, steps []Step) (first map[StepID]bool, err error) {
	first = map[StepID]bool{}
	for chunk := range slices.Chunk(steps, maxRows) {
		err := each(tx.ctx, tx.tx, tx.store.rebind(`UPDATE steps SET reported = 1 WHERE reported = 0 AND `+tx.store.rowOf(eachStep(`SELECT @row@ FROM steps`, len(chunk)))+` RETURNING stage, step`),
			stepArgs(account, chunk), func(scan func(...any) error) error {
				var id StepID
				err := scan(&id.Stage, &id.Step)
				first[id] = true
				return err
			})
		if err != nil {
			return nil, fmt.Errorf("noting the ends of steps: %w", err)
		}
	}
	return first, nil
}

// StepID names a step of an account.
type StepID struct{ Stage, Step string }

// eachStep returns the union of a query for each of n steps. The planner of PostgreSQL reads all steps of an account for
// alternatives in one condition while it takes the table for almost empty.
func eachStep(query string, n int) string {
	one := query + ` WHERE steps.account = ? AND steps.stage = ? AND step = ?`
	return strings.Repeat(one+` UNION ALL `, n-1) + one
}

// rowOf returns the condition that a row is one of those that a query names by @row@.
func (s *Store) rowOf(query string) string {
	if s.postgres {
		return `ctid = ANY (ARRAY(` + strings.ReplaceAll(query, "@row@", "ctid") + `))`
	}
	return `rowid IN (` + strings.ReplaceAll(query, "@row@", "rowid") + `)`
}

// stepArgs returns the arguments of eachStep.
func stepArgs(account string, steps []Step) []any {
	args := make([]any, 0, 3*len(steps))
	for _, st := range steps {
		args = append(args, account, st.Stage, st.ID)
	}
	return args
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

// Steps returns the tracked steps of a stage by their ids, without their run.
func (s *Store) Steps(ctx context.Context, account, stage string) (map[string]Step, error) {
	all := map[string]Step{}
	err := each(ctx, s.db, s.rebind(`SELECT step, node, attempt, reported FROM steps WHERE account = ? AND stage = ?`), []any{account, stage}, func(scan func(...any) error) error {
		st := Step{Stage: stage}
		err := scan(&st.ID, &st.Node, &st.Attempt, &st.Reported)
		all[st.ID] = st
		return err
	})
	return all, err
}

// Find returns the tracked steps among steps that are given by stage and id.
func (s *Store) Find(ctx context.Context, account string, steps []Step) (map[StepID]Step, error) {
	found := map[StepID]Step{}
	for chunk := range slices.Chunk(steps, maxRows) {
		err := each(ctx, s.db, s.rebind(eachStep(`SELECT steps.stage, step, stages.run, steps.node, steps.attempt, reported FROM steps
			JOIN stages ON stages.account = steps.account AND stages.stage = steps.stage`, len(chunk))),
			stepArgs(account, chunk), func(scan func(...any) error) error {
				var st Step
				err := scan(&st.Stage, &st.ID, &st.Run, &st.Node, &st.Attempt, &st.Reported)
				found[StepID{st.Stage, st.ID}] = st
				return err
			})
		if err != nil {
			return nil, fmt.Errorf("reading steps: %w", err)
		}
	}
	return found, nil
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

// Stages returns the tracked stages of an account, of the given ids or all.
func (s *Store) Stages(ctx context.Context, account string, ids ...string) ([]Stage, error) {
	var all []Stage
	read := func(condition string, args ...any) error {
		return each(ctx, s.db, s.rebind(`SELECT `+stageColumns+` FROM stages WHERE account = ?`+condition), args, func(scan func(...any) error) error {
			st, err := scanStage(scan)
			all = append(all, st)
			return err
		})
	}
	if len(ids) == 0 {
		err := read("", account)
		return all, err
	}
	for chunk := range slices.Chunk(ids, maxRows) {
		args := []any{account}
		for _, id := range chunk {
			args = append(args, id)
		}
		if err := read(` AND stage IN (`+rows("?", len(chunk))+`)`, args...); err != nil {
			return nil, err
		}
	}
	return all, nil
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
