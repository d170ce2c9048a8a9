package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Filter selects runs, or ended stages, of an account. Zero fields select all.
type Filter struct {
	Account  string
	Pipeline string
	Status   string
	Branch   string
	// Marks are kinds, names and values, see [Tx.Mark].
	Marks []Mark
	// Text is a number of words. Each must be a word of the Search of a run or stage, or the
	// beginning of one, without regard to case.
	Text string
	// After and Before bound the time of creation, or of the end for stages.
	After, Before time.Time
	// BeforeID continues after the key of a previous page, whose time is Before.
	BeforeID string
	Limit    int
}

// Mark is a kind, a name and a value by which runs and ended stages can be found.
type Mark struct{ Kind, Name, Value string }

// Key is the place of a run or a stage in a list. The next page continues after it.
type Key struct {
	Time time.Time
	ID   string
}

// list is a table of runs or stages, its column of the time, and the table of its marks. The
// newest comes first. Each part of a filter has an index in this order.
type list struct{ table, time, marks string }

var (
	runList   = list{"runs", "created", "marks"}
	endedList = list{"ended", "ended", "ended_marks"}
)

const (
	// mostKeys bounds the keys that a page looks at, and so its time.
	mostKeys = 5000
	// mostBeginnings bounds the words that begin with a word of a text. Above it, the index of words
	// does not help, and the rows are compared.
	mostBeginnings = 8
	// mostCounted bounds the keys that are counted to find the rarest part of a filter.
	mostCounted = 1000
)

// search calls row with the rows that a filter selects, in the order of the list, up to f.Limit.
// Row returns the key of its row. Next is where the following page begins, or nil at the end of
// the list.
//
// The keys come from the index of the rarest part of the filter, and each row is compared with the
// whole filter. After mostKeys keys the page ends, also if it is not full: a combination of
// filters that are common, but seldom together, must not read the whole table.
func (s *Store) search(ctx context.Context, l list, f Filter, columns string, row func(scan func(...any) error) (Key, error)) (next *Key, err error) {
	parts, none, err := s.parts(ctx, l, f)
	if err != nil || none {
		return nil, err
	}
	rarest, err := s.rarest(ctx, l, f, parts)
	if err != nil {
		return nil, err
	}
	condition := ""
	var values []any
	for _, p := range parts {
		condition += " AND " + p.condition
		values = append(values, p.values...)
	}
	full := errors.New("the page is full")
	found := 0
	for looked, size := 0, f.Limit+1; ; size = min(max(4*size, 400), mostKeys-looked) {
		keys, err := s.keys(ctx, rarest, f, size)
		if err != nil || len(keys) == 0 {
			return nil, err
		}
		among, ids := s.inList(idsOf(keys))
		query := `SELECT ` + columns + ` FROM ` + l.table + ` WHERE account = ? AND id ` + among + ` AND (` + l.time + `, id) >= (?, ?) AND (` + l.time + `, id) <= (?, ?)` +
			condition + ` ORDER BY ` + l.time + ` DESC, id DESC`
		args := append([]any{f.Account, ids, millis(keys[len(keys)-1].Time), keys[len(keys)-1].ID, millis(keys[0].Time), keys[0].ID}, values...)
		err = each(ctx, s.db, s.rebind(query), args, func(scan func(...any) error) error {
			if found == f.Limit {
				return full
			}
			key, err := row(scan)
			next, found = &key, found+1
			return err
		})
		looked += len(keys)
		switch {
		case errors.Is(err, full):
			return next, nil
		case err != nil:
			return nil, err
		case len(keys) < size:
			return nil, nil
		case found == f.Limit:
			return next, nil
		}
		last := keys[len(keys)-1]
		if looked >= mostKeys {
			return &last, nil
		}
		f.Before, f.BeforeID = last.Time, last.ID
	}
}

// part is a part of a filter.
type part struct {
	// The table and its columns in which the part finds keys in the order of the list, and the
	// conditions for them: alternatives, each with its values. There are none if no index helps.
	table, time, id string
	alternatives    []string
	values          []any // of each alternative, and of condition
	perAlternative  [][]any
	condition       string // for a row of the list
}

// parts returns the parts of a filter. None reports that nothing can be found.
func (s *Store) parts(ctx context.Context, l list, f Filter) (parts []part, none bool, err error) {
	column := func(name, value string) {
		if value != "" {
			parts = append(parts, part{
				table: l.table, time: l.time, id: "id", alternatives: []string{name + " = ?"}, perAlternative: [][]any{{value}},
				condition: name + " = ?", values: []any{value},
			})
		}
	}
	column("pipeline", f.Pipeline)
	column("status", f.Status)
	column("branch", f.Branch)
	marked := "kind = ? AND name = ? AND value = ?"
	for _, m := range f.Marks {
		values := []any{m.Kind, m.Name, m.Value}
		parts = append(parts, part{
			table: l.marks, time: "created", id: "run", alternatives: []string{marked}, perAlternative: [][]any{values}, values: append([]any{f.Account}, values...),
			condition: `EXISTS (SELECT 1 FROM ` + l.marks + ` AS m WHERE m.account = ? AND m.kind = ? AND m.name = ? AND m.value = ? AND m.created = ` + l.table + `.` + l.time + ` AND m.run = id)`,
		})
	}
	for _, w := range words(f.Text) {
		p := part{table: l.marks, time: "created", id: "run", condition: "search LIKE ?", values: []any{"% " + w + "%"}}
		all, err := s.beginnings(ctx, l, f.Account, w)
		if err != nil {
			return nil, false, err
		}
		if len(all) == 0 {
			return nil, true, nil
		}
		if len(all) > mostBeginnings {
			p.table, all = "", nil
		}
		for _, word := range all {
			p.alternatives = append(p.alternatives, marked)
			p.perAlternative = append(p.perAlternative, []any{wordMark, "", word})
		}
		parts = append(parts, p)
	}
	return parts, false, nil
}

// beginnings returns the words of a list that begin with a word, at most mostBeginnings and one.
func (s *Store) beginnings(ctx context.Context, l list, account, word string) (all []string, err error) {
	query := s.rebind(`SELECT value FROM ` + l.marks + ` WHERE account = ? AND kind = '` + wordMark + `' AND name = '' AND value >= ? AND value < ? ORDER BY value LIMIT 1`)
	for from := word; len(all) <= mostBeginnings; {
		next := ""
		err := each(ctx, s.db, query, []any{account, from, word + "\U0010FFFF"}, func(scan func(...any) error) error { return scan(&next) })
		if err != nil {
			return nil, err
		}
		if next == "" {
			break
		}
		all, from = append(all, next), next+"\x01" // no word has this character
	}
	return all, nil
}

// rarest returns the part of a filter that selects the fewest keys.
func (s *Store) rarest(ctx context.Context, l list, f Filter, parts []part) (part, error) {
	best, fewest := part{table: l.table, time: l.time, id: "id", alternatives: []string{"1 = 1"}, perAlternative: [][]any{nil}}, mostCounted+1
	for _, p := range parts {
		if p.table == "" {
			continue
		}
		n := mostCounted
		if len(parts) > 1 {
			query, args := p.query(f, mostCounted)
			if err := s.db.QueryRowContext(ctx, s.rebind(`SELECT COUNT(*) FROM (`+query+`) AS keys`), args...).Scan(&n); err != nil {
				return part{}, err
			}
		}
		if n < fewest {
			best, fewest = p, n
		}
	}
	return best, nil
}

// keys returns the first keys that a part selects.
func (s *Store) keys(ctx context.Context, p part, f Filter, limit int) (keys []Key, err error) {
	query, args := p.query(f, limit)
	err = each(ctx, s.db, s.rebind(query), args, func(scan func(...any) error) error {
		var ms int64
		var k Key
		err := scan(&ms, &k.ID)
		k.Time = time.UnixMilli(ms).UTC()
		keys = append(keys, k)
		return err
	})
	return keys, err
}

// query returns the query for the first keys that a part selects.
func (p part) query(f Filter, limit int) (string, []any) {
	var selects []string
	var args []any
	for i, where := range p.alternatives {
		query := `SELECT ` + p.time + ` AS t, ` + p.id + ` AS i FROM ` + p.table + ` WHERE account = ? AND ` + where
		args = append(append(args, f.Account), p.perAlternative[i]...)
		if !f.After.IsZero() {
			query += ` AND ` + p.time + ` >= ?`
			args = append(args, millis(f.After))
		}
		switch {
		case !f.Before.IsZero() && f.BeforeID != "":
			query += ` AND (` + p.time + `, ` + p.id + `) < (?, ?)`
			args = append(args, millis(f.Before), f.BeforeID)
		case !f.Before.IsZero():
			query += ` AND ` + p.time + ` < ?`
			args = append(args, millis(f.Before))
		}
		selects = append(selects, query+` ORDER BY `+p.time+` DESC, `+p.id+` DESC LIMIT ?`)
		args = append(args, limit)
	}
	if len(selects) == 1 {
		return selects[0], args
	}
	for i := range selects {
		selects[i] = `SELECT t, i FROM (` + selects[i] + `) AS keys`
	}
	return strings.Join(selects, ` UNION `) + ` ORDER BY t DESC, i DESC LIMIT ?`, append(args, limit)
}

func idsOf(keys []Key) []string {
	ids := make([]string, len(keys))
	for i, k := range keys {
		ids[i] = k.ID
	}
	return ids
}

// inList returns the condition that a text is in a list, and its value. The text of the condition
// is the same for lists of all lengths, so that databases can keep the prepared query.
func (s *Store) inList(ids []string) (text string, value any) {
	if s.postgres {
		return `= ANY (?)`, ids
	}
	b, err := json.Marshal(ids)
	if err != nil { // strings can always be encoded
		panic(fmt.Errorf("encoding ids: %w", err))
	}
	return `IN (SELECT value FROM json_each(?))`, string(b)
}
