package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// EndedStage is a stage of a manager that has ended.
type EndedStage struct {
	Account, ID string
	// Run is the id of the run that the stage may belong to, or empty. The stage is kept if the
	// database has no such run.
	Run                      string
	Pipeline, Status, Branch string
	// Delegate, Labels and the words of Search can be searched.
	Delegate string
	Labels   map[string]string
	Search   string
	// Started is zero if no delegate took the stage.
	Started, Ended time.Time
	// Head has the members of the stage that a list shows, Detail the others.
	Head, Detail []byte
}

// Position returns the number of the last stage of a manager's list that was written. Known reports
// whether a section of the list was written before. Epoch identifies the list.
func (s *Store) Position(ctx context.Context, account, epoch string) (position uint64, known bool, err error) {
	var n int64
	err = s.db.QueryRowContext(ctx, s.rebind(`SELECT position FROM cursors WHERE account = ? AND epoch = ?`), account, epoch).Scan(&n)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("reading the position in the list of ended stages: %w", err)
	}
	return uint64(n), true, nil //nolint:gosec // it was written as such
}

// Section is a section of a manager's list of ended stages.
type Section struct {
	Account, Epoch string
	// First marks the first section of the list that is written. Its After is 0.
	First bool
	// After is the number of the last stage before the section. To is the number of its last stage.
	After, To uint64
	// Lost is the number of stages of the section that the manager has forgotten.
	Lost   uint64
	Stages []EndedStage
}

// Record writes ended stages that belong to no run, once each, and marks the runs of the others
// with their delegates. It fails with [ErrStale] if another process has written a part of the
// section, or if the section does not follow the last one.
func (s *Store) Record(ctx context.Context, sec Section, now time.Time) error {
	err := s.Update(ctx, func(tx *Tx) error {
		if err := tx.advance(sec, now); err != nil {
			return err
		}
		runs, err := tx.created(sec)
		if err != nil {
			return err
		}
		var stages, marks, runMarks [][]any
		byKey, bytes := map[Key]*EndedStage{}, map[Key]int64{}
		for i := range sec.Stages {
			st := &sec.Stages[i]
			if created, ok := runs[st.Run]; ok && st.Run != "" {
				if st.Delegate != "" {
					runMarks = append(runMarks, Mark{delegateMark, "", st.Delegate}.row(st.Account, Key{fromMillis(created), st.Run}))
				}
				continue
			}
			found := words(st.Search)
			key := Key{fromMillis(millis(st.Ended)), st.ID}
			search, detail := searchable(found), s.pack(st.Detail)
			size := len(st.Head) + len(detail) + len(search)
			stages = append(stages, []any{
				st.Account, st.ID, st.Pipeline, st.Status, st.Branch, search, millis(st.Ended), size, notNull(st.Head), detail,
			})
			byKey[key], bytes[key] = st, int64(size)
			for name, value := range st.Labels {
				marks = append(marks, Mark{labelMark, name, value}.row(st.Account, key))
			}
			if st.Delegate != "" {
				marks = append(marks, Mark{delegateMark, "", st.Delegate}.row(st.Account, key))
			}
			for _, word := range found {
				marks = append(marks, Mark{wordMark, "", word}.row(st.Account, key))
			}
		}
		counts, sizes := map[outcome]int{}, sizes{}
		// A store that was restored from an older copy tells of stages again that are written.
		err = tx.insert(`INSERT INTO ended (account, id, pipeline, status, branch, search, ended, size, head, detail)`, stages, `ON CONFLICT DO NOTHING RETURNING ended, id`,
			func(scan func(...any) error) error {
				var ended int64
				var id string
				if err := scan(&ended, &id); err != nil {
					return err
				}
				key := Key{fromMillis(ended), id}
				counts[byKey[key].outcome()]++
				sizes.add(ended, ended, bytes[key])
				return nil
			})
		return errors.Join(err, tx.insertMarks(endedList, marks), tx.insertMarks(runList, runMarks), tx.count(counts), tx.resize(sizes))
	})
	if err != nil && !errors.Is(err, ErrStale) {
		return fmt.Errorf("writing ended stages: %w", err)
	}
	return err
}

// advance moves the position to the end of a section.
func (tx *Tx) advance(sec Section, now time.Time) error {
	to, after, lost := int64(sec.To), int64(sec.After), int64(sec.Lost) //nolint:gosec // no manager counts so far
	var n int64
	var err error
	if sec.First {
		n, err = tx.execCount(`INSERT INTO cursors (account, epoch, position, lost, updated) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
			sec.Account, sec.Epoch, to, lost, millis(now))
	} else {
		n, err = tx.execCount(`UPDATE cursors SET position = ?, lost = lost + ?, updated = ? WHERE account = ? AND epoch = ? AND position = ?`,
			to, lost, millis(now), sec.Account, sec.Epoch, after)
	}
	if err == nil && n == 0 {
		return ErrStale
	}
	return err
}

// created returns the runs that the stages of a section may belong to, with the times of their
// creation.
func (tx *Tx) created(sec Section) (map[string]int64, error) {
	var ids []string
	for i := range sec.Stages {
		if run := sec.Stages[i].Run; run != "" {
			ids = append(ids, run)
		}
	}
	runs := map[string]int64{}
	if len(ids) == 0 {
		return runs, nil
	}
	among, value := tx.store.inList(ids)
	err := each(tx.ctx, tx.tx, tx.store.rebind(`SELECT id, created FROM runs WHERE account = ? AND id `+among), []any{sec.Account, value}, func(scan func(...any) error) error {
		var id string
		var created int64
		err := scan(&id, &created)
		runs[id] = created
		return err
	})
	return runs, err
}

// Ended returns the ended stages that a filter selects, the last one first, without their detail,
// and where the next page begins, or nil at the end. A page may be shorter than f.Limit before the
// end. Only Account, ID, Ended and Head are set.
func (s *Store) Ended(ctx context.Context, f Filter) (stages []EndedStage, next *Key, err error) {
	next, err = s.search(ctx, endedList, f, `id, ended, head`, func(scan func(...any) error) (Key, error) {
		st := EndedStage{Account: f.Account}
		var ended int64
		err := scan(&st.ID, &ended, &st.Head)
		st.Ended = fromMillis(ended)
		stages = append(stages, st)
		return Key{st.Ended, st.ID}, err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("listing ended stages: %w", err)
	}
	return stages, next, nil
}

// EndedDetail returns the last ended stage with an id, with its Head and Detail. It fails with
// [ErrNotFound].
func (s *Store) EndedDetail(ctx context.Context, account, id string) (EndedStage, error) {
	st := EndedStage{Account: account, ID: id}
	var ended int64
	err := s.db.QueryRowContext(ctx, s.rebind(`SELECT ended, head, detail FROM ended WHERE account = ? AND id = ? ORDER BY ended DESC LIMIT 1`), account, id).
		Scan(&ended, &st.Head, &st.Detail)
	if errors.Is(err, sql.ErrNoRows) {
		return st, ErrNotFound
	}
	if err != nil {
		return st, fmt.Errorf("reading ended stage %s: %w", id, err)
	}
	st.Ended = fromMillis(ended)
	if st.Detail, err = s.unpack(st.Detail); err != nil {
		return st, fmt.Errorf("reading ended stage %s: %w", id, err)
	}
	return st, nil
}

// Lost returns how many ended stages of an account the managers had forgotten before they could be
// written.
func (s *Store) Lost(ctx context.Context, account string) (lost uint64, err error) {
	var n int64
	if err := s.db.QueryRowContext(ctx, s.rebind(`SELECT COALESCE(SUM(lost), 0) FROM cursors WHERE account = ?`), account).Scan(&n); err != nil {
		return 0, fmt.Errorf("reading the number of lost stages: %w", err)
	}
	return uint64(n), nil //nolint:gosec // it was written as such
}
