package store

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
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
type list struct {
	table, time, marks string
	// index has the columns by which rows are found, in the order of the list. Without a hint, SQLite finds a run by its
	// id, and reads its row.
	index string
}

var (
	runList   = list{table: "runs", time: "created", marks: "marks", index: "runs_time"}
	endedList = list{table: "ended", time: "ended", marks: "ended_marks", index: "sqlite_autoindex_ended_1"}
)

// pageBounds bound the work for a page.
type pageBounds struct {
	// first are the keys of each part of a filter that are counted to find the rarest part. They
	// are also the first keys that a page looks at.
	first int
	// keys bounds the keys that a page looks at.
	keys int
	// rows bounds the rows that a page reads, if no index has a part of the filter.
	rows int
}

var defaultPageBounds = pageBounds{first: 1000, keys: 5000, rows: 2000}

// mostBeginnings bounds the words that begin with a word of a text. Above it, the index of words
// does not help, and the rows are compared.
const mostBeginnings = 8

// search calls row with the rows that a filter selects, in the order of the list, up to f.Limit.
// Row returns the key of its row. Next is where the following page begins, or nil at the end of
// the list.
//
// The keys come from the index of the rarest part of the filter. Each key is compared with the other
// parts in their indexes, and only rows of the page are read. After a number of keys the page ends, also
// if it is not full: a combination of filters that are common, but seldom together, must not read the
// whole table.
func (s *Store) search(ctx context.Context, l list, f Filter, columns string, row func(scan func(...any) error) (Key, error)) (next *Key, err error) {
	parts, none, err := s.parts(ctx, l, f)
	if err != nil || none {
		return nil, err
	}
	found := 0
	read := func(keysOf part, last *Key, most int) (full bool, err error) {
		keys, args := keysOf.query(f, last, most)
		query, args := s.matching(l, f, parts, keysOf, keys, args, columns, f.Limit+1-found)
		err = each(ctx, s.db, s.rebind(query), args, func(scan func(...any) error) error {
			if found == f.Limit {
				full = true
				return nil
			}
			key, err := row(scan)
			next, found = &key, found+1
			return err
		})
		return full, err
	}
	if all := append(parts, l.all()); len(parts) == 0 || len(parts) == 1 && parts[0].table != "" {
		if full, err := read(all[0], nil, f.Limit+1); err != nil || full {
			return next, err
		}
		return nil, nil
	}
	most := s.pages.keys
	if slices.ContainsFunc(parts, func(p part) bool { return p.table == "" }) {
		most = s.pages.rows
	}
	rarest, sec, err := s.rarest(ctx, l, f, parts)
	for looked := 0; err == nil && sec.size > 0; {
		// There is no number as a bound, because there may be further keys now.
		full, err := read(rarest, sec.last, 0)
		switch looked += sec.size; {
		case err != nil, full:
			return next, err
		case sec.last == nil:
			return nil, nil
		case found == f.Limit:
			return next, nil
		case looked >= most:
			return sec.last, nil
		}
		f.Before, f.BeforeID = sec.last.Time, sec.last.ID
		if sec, err = s.section(ctx, rarest, f, most-looked); err != nil {
			return nil, err
		}
	}
	return nil, err
}

// part is a part of a filter: the value of a column, or a mark.
type part struct {
	// The table and its columns in which the part finds keys in the order of the list. There is no table if no index helps.
	table, time, id string
	column          string // of the list, or empty
	kind, name      string // of the mark
	values          []string
}

// parts returns the parts of a filter. None reports that nothing can be found.
func (s *Store) parts(ctx context.Context, l list, f Filter) (parts []part, none bool, err error) {
	for column, value := range map[string]string{"pipeline": f.Pipeline, "status": f.Status, "branch": f.Branch} {
		if value != "" {
			p := l.all()
			p.column, p.values = column, []string{value}
			parts = append(parts, p)
		}
	}
	// The order of the parts does not change the rows, but databases keep the prepared query.
	slices.SortFunc(parts, func(p, q part) int { return strings.Compare(p.column, q.column) })
	marked := func(m Mark, values ...string) {
		parts = append(parts, part{table: l.marks, time: "created", id: "run", kind: m.Kind, name: m.Name, values: values})
	}
	for _, m := range f.Marks {
		marked(m, m.Value)
	}
	for _, w := range words(f.Text) {
		all, err := s.beginnings(ctx, l, f.Account, w)
		switch {
		case err != nil:
			return nil, false, err
		case len(all) == 0:
			return nil, true, nil
		case len(all) > mostBeginnings:
			parts = append(parts, part{values: []string{"% " + w + "%"}})
		default:
			marked(Mark{Kind: wordMark}, all...)
		}
	}
	return parts, false, nil
}

// all is the part of an empty filter.
func (l list) all() part { return part{table: l.table, time: l.time, id: "id"} }

// section is a number of the first keys that a part of a filter selects. Last is the last one of
// them, or nil if there are no others.
type section struct {
	size int
	last *Key
}

// section returns the first keys that a part selects, up to a number.
func (s *Store) section(ctx context.Context, p part, f Filter, most int) (sec section, err error) {
	query, args := p.query(f, nil, most)
	query = `SELECT t, i, COUNT(*) OVER () FROM (` + query + `) AS keys ORDER BY t, i LIMIT 1`
	err = each(ctx, s.db, s.rebind(query), args, func(scan func(...any) error) error {
		var ms int64
		var last Key
		err := scan(&ms, &last.ID, &sec.size)
		if last.Time = time.UnixMilli(ms).UTC(); sec.size == most {
			sec.last = &last
		}
		return err
	})
	return sec, err
}

// rarest returns the part of a filter that selects the fewest keys, and the first section of them.
// Of parts that select many, it is the one whose first keys reach back longest.
func (s *Store) rarest(ctx context.Context, l list, f Filter, parts []part) (best part, fewest section, err error) {
	for _, p := range append(parts, l.all()) {
		if p.table == "" || p.values == nil && best.table != "" {
			continue
		}
		sec, err := s.section(ctx, p, f, s.pages.first)
		if err != nil {
			return part{}, section{}, err
		}
		if best.table == "" || sec.size < fewest.size || sec.last != nil && fewest.last != nil && sec.last.Time.Before(fewest.last.Time) {
			best, fewest = p, sec
		}
	}
	return best, fewest, nil
}

// matching returns the query for the rows that all parts select, up to a number, among keys of one part.
func (s *Store) matching(l list, f Filter, parts []part, keysOf part, keys string, args []any, columns string, limit int) (string, []any) {
	indexed := l.table
	if !s.postgres {
		indexed += ` INDEXED BY ` + l.index
	}
	compared := ""
	// As a value, a subquery is executed for each key. As EXISTS, PostgreSQL could read all keys of its part instead.
	compare := func(table, where string, values ...any) {
		compared += ` AND (SELECT 1 FROM ` + table + ` WHERE account = ? AND ` + where + ` LIMIT 1) = 1`
		args = append(append(args, f.Account), values...)
	}
	ownRow := l.time + ` = k.t AND id = k.i`
	inIndex, inRow := ownRow, ownRow
	var indexValues, rowValues []any
	for _, p := range parts {
		switch {
		case reflect.DeepEqual(p, keysOf):
		case p.column != "":
			inIndex += ` AND ` + p.column + ` = ?`
			indexValues = append(indexValues, p.values[0])
		case p.table == "":
			inRow += ` AND search LIKE ?`
			rowValues = append(rowValues, p.values[0])
		case len(p.values) == 1:
			compare(l.marks, `kind = ? AND name = ? AND value = ? AND created = k.t AND run = k.i`, p.kind, p.name, p.values[0])
		default:
			among, values := s.inList(p.values)
			compare(l.marks, `kind = ? AND name = ? AND value `+among+` AND created = k.t AND run = k.i`, p.kind, p.name, values)
		}
	}
	if len(indexValues) > 0 {
		compare(indexed, inIndex, indexValues...)
	}
	if len(rowValues) > 0 {
		compare(indexed, inRow, rowValues...)
	}
	return `WITH k AS (` + keys + `), found AS (SELECT t, i FROM k WHERE 1 = 1` + compared + ` ORDER BY t DESC, i DESC LIMIT ?)
		SELECT ` + columns + ` FROM found CROSS JOIN ` + l.table + ` WHERE account = ? AND ` + l.time + ` = t AND id = i ORDER BY t DESC, i DESC`,
		append(args, limit, f.Account)
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

// query returns the query for the keys of a part in the order of the list, up to a last key and a number, if they are not
// nil and 0.
func (p part) query(f Filter, last *Key, most int) (string, []any) {
	alternatives := make([][]any, max(len(p.values), 1))
	where := ""
	switch {
	case p.column != "":
		where = ` AND ` + p.column + ` = ?`
		alternatives[0] = []any{p.values[0]}
	case p.values != nil:
		where = ` AND kind = ? AND name = ? AND value = ?`
		for i, value := range p.values {
			alternatives[i] = []any{p.kind, p.name, value}
		}
	}
	var bounds []any
	bound := func(condition string, values ...any) {
		where += ` AND ` + condition
		bounds = append(bounds, values...)
	}
	if !f.After.IsZero() {
		bound(p.time+` >= ?`, millis(f.After))
	}
	key := `(` + p.time + `, ` + p.id + `)`
	switch {
	case !f.Before.IsZero() && f.BeforeID != "":
		bound(key+` < (?, ?)`, millis(f.Before), f.BeforeID)
	case !f.Before.IsZero():
		bound(p.time+` < ?`, millis(f.Before))
	}
	if last != nil {
		bound(key+` >= (?, ?)`, millis(last.Time), last.ID)
	}
	limit := ""
	if most > 0 {
		limit = ` ORDER BY t DESC, i DESC LIMIT ?`
		bounds = append(bounds, most)
	}
	one := `SELECT ` + p.time + ` AS t, ` + p.id + ` AS i FROM ` + p.table + ` WHERE account = ?` + where + limit
	if len(alternatives) == 1 {
		return one, slices.Concat([]any{f.Account}, alternatives[0], bounds)
	}
	selects := make([]string, len(alternatives))
	var args []any
	for i, values := range alternatives {
		selects[i] = `SELECT t, i FROM (` + one + `) AS keys`
		args = append(append(append(args, f.Account), values...), bounds...)
	}
	query := strings.Join(selects, ` UNION `)
	if most > 0 {
		query, args = query+limit, append(args, most)
	}
	return query, args
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
