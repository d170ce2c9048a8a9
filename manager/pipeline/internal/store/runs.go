package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Run is a run of a pipeline as the database has it.
type Run struct {
	Account, ID string
	// Number counts the runs of the pipeline from 1, see [Tx.Number].
	Number   int64
	Pipeline string
	Status   string
	Branch   string
	// Cause is the kind of what started the run: MANUAL, WEBHOOK, ...
	Cause string
	// Search is the text in which the filter Text searches.
	Search string
	// Labels can be searched by name and value. Create writes them.
	Labels  map[string]string
	Created time.Time
	Ended   time.Time // zero while the run is active
	// Version counts the changes of the run.
	Version int64
	// Definition is constant. Create writes it, and only [Tx.Definition] and [Store.Definition] read
	// it: it may be large, and most changes of a run do not need it.
	Definition []byte
	// State is the state of the run without its nodes.
	State json.RawMessage

	counted outcome // as the row is counted in the outcomes
	sized   sized   // as the row is counted in the sums of sizes
	size    int64   // of the row and its nodes, when the run ended last
}

// Node is the state of one node of a run.
type Node struct {
	Path string
	Data json.RawMessage
}

// Number returns the next number of a pipeline, from 1.
func (tx *Tx) Number(account, pipeline string) (n int64, err error) {
	err = tx.tx.QueryRowContext(tx.ctx, tx.store.rebind(
		`INSERT INTO numbers (account, pipeline, number) VALUES (?, ?, 1)
		 ON CONFLICT (account, pipeline) DO UPDATE SET number = numbers.number + 1 RETURNING number`),
		account, pipeline).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("numbering a run: %w", err)
	}
	return n, nil
}

// Active returns the number of runs of an account that have not ended, and at most a bound.
func (tx *Tx) Active(account string, most int) (n int, err error) {
	err = tx.tx.QueryRowContext(tx.ctx, tx.store.rebind(
		`SELECT COUNT(*) FROM (SELECT 1 FROM runs WHERE account = ? AND ended = 0 LIMIT ?) AS active`), account, most).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("counting the active runs: %w", err)
	}
	return n, nil
}

// Create adds a run with its nodes. It fails with [ErrExists].
func (tx *Tx) Create(run *Run, nodes []Node) error {
	definition := tx.store.pack(run.Definition)
	found := words(run.Search)
	run.Search = searchable(found)
	run.Version, run.counted, run.sized, run.size = 1, outcome{}, sized{}, int64(len(definition)+len(run.State))
	for _, n := range nodes {
		run.size += int64(len(n.Data))
	}
	n, err := tx.execCount(`INSERT INTO runs (account, id, number, pipeline, status, branch, cause, search, created, ended, size, version, definition, state)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		run.Account, run.ID, run.Number, run.Pipeline, run.Status, run.Branch, run.Cause, run.Search,
		millis(run.Created), millis(run.Ended), run.size, run.Version, notNull(definition), notNull(run.State))
	if err != nil {
		return fmt.Errorf("adding a run: %w", err)
	}
	if n == 0 {
		return ErrExists
	}
	marks := make([]Mark, 0, len(run.Labels)+len(found))
	for name, value := range run.Labels {
		marks = append(marks, Mark{labelMark, name, value})
	}
	for _, word := range found {
		marks = append(marks, Mark{wordMark, "", word})
	}
	rows := make([][]any, len(marks))
	for i, m := range marks {
		rows[i] = m.row(run.Account, Key{run.Created, run.ID})
	}
	if err := tx.insertMarks(runList, rows); err != nil {
		return fmt.Errorf("marking a run: %w", err)
	}
	if err := tx.saveNodes(run, nodes); err != nil {
		return err
	}
	return tx.sumUp(run)
}

// Mark makes a run searchable by a name and a value, for example kind "label", or kind
// "delegate" with the delegate's name. Repeated marks change nothing.
func (tx *Tx) Mark(run *Run, kind, name, value string) error {
	m := Mark{kind, name, value}
	if err := tx.insertMarks(runList, [][]any{m.row(run.Account, Key{run.Created, run.ID})}); err != nil {
		return fmt.Errorf("marking a run: %w", err)
	}
	return nil
}

// row returns the mark's row for a run or a stage.
func (m Mark) row(account string, of Key) []any {
	return []any{account, m.Kind, m.Name, m.Value, millis(of.Time), of.ID}
}

func (tx *Tx) insertMarks(l list, rows [][]any) error {
	return tx.insert(`INSERT INTO `+l.marks+` (account, kind, name, value, created, run)`, rows, `ON CONFLICT DO NOTHING`, nil)
}

// Lock returns a run without its definition and its nodes, and keeps other transactions from
// changing it until this one ends. It fails with [ErrNotFound].
func (tx *Tx) Lock(account, id string) (*Run, error) {
	query := headQuery + ` WHERE account = ? AND id = ?`
	if tx.store.postgres {
		query += ` FOR UPDATE`
	}
	return scanOne(tx.tx.QueryRowContext(tx.ctx, tx.store.rebind(query), account, id).Scan)
}

// Definition returns the definition of a locked run.
func (tx *Tx) Definition(run *Run) ([]byte, error) {
	return definition(tx.ctx, tx.tx, tx.store, run)
}

// Definition returns the definition of a run. It fails with [ErrNotFound].
func (s *Store) Definition(ctx context.Context, run *Run) ([]byte, error) {
	return definition(ctx, s.db, s, run)
}

type rowQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) row
}

func definition(ctx context.Context, db rowQuerier, s *Store, run *Run) ([]byte, error) {
	var packed []byte
	err := db.QueryRowContext(ctx, s.rebind(`SELECT definition FROM runs WHERE account = ? AND id = ?`), run.Account, run.ID).Scan(&packed)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("reading the definition of run %s: %w", run.ID, err)
	}
	// The definition of a damaged row is empty: the caller finds that it cannot be decoded, and can
	// still end the run.
	text, _ := s.unpack(packed)
	return text, nil
}

// Nodes returns the nodes of a run that were saved after a version, in the order of their paths; 0 returns all.
func (tx *Tx) Nodes(run *Run, after int64) ([]Node, error) {
	return nodes(tx.ctx, tx.tx, tx.store, run.Account, run.ID, after)
}

// Save writes the changed state and nodes of a locked run.
func (tx *Tx) Save(run *Run, changed []Node) error {
	run.Version++
	if err := tx.saveNodes(run, changed); err != nil {
		return err
	}
	if err := tx.measure(run); err != nil {
		return err
	}
	err := tx.exec(`UPDATE runs SET status = ?, ended = ?, search = ?, state = ?, version = ?, size = ? WHERE account = ? AND id = ?`,
		run.Status, millis(run.Ended), run.Search, notNull(run.State), run.Version, run.size, run.Account, run.ID)
	if err != nil {
		return fmt.Errorf("saving a run: %w", err)
	}
	return tx.sumUp(run)
}

// measure computes the size of a run that has ended, from the rows. Nodes are written again and again while a run is
// active, and its size counts only after its end.
func (tx *Tx) measure(run *Run) error {
	if run.Ended.IsZero() {
		return nil
	}
	var stored int64
	err := tx.tx.QueryRowContext(tx.ctx, tx.store.rebind(
		`SELECT LENGTH(definition) + (SELECT CAST(COALESCE(SUM(LENGTH(data)), 0) AS BIGINT) FROM nodes WHERE account = ? AND run = ?)
		 FROM runs WHERE account = ? AND id = ?`), run.Account, run.ID, run.Account, run.ID).Scan(&stored)
	if err != nil {
		return fmt.Errorf("measuring run %s: %w", run.ID, err)
	}
	run.size = stored + int64(len(run.State))
	return nil
}

func (tx *Tx) saveNodes(run *Run, nodes []Node) error {
	for chunk := range slices.Chunk(nodes, maxRows) {
		args := make([]any, 0, 5*len(chunk))
		for _, n := range chunk {
			args = append(args, run.Account, run.ID, n.Path, run.Version, notNull(n.Data))
		}
		err := tx.exec(`INSERT INTO nodes (account, run, path, version, data) VALUES `+rows("(?, ?, ?, ?, ?)", len(chunk))+`
			ON CONFLICT (account, run, path) DO UPDATE SET data = excluded.data, version = excluded.version`, args...)
		if err != nil {
			return fmt.Errorf("saving nodes of run %s: %w", run.ID, err)
		}
	}
	return nil
}

// pack compresses a definition or an ended stage.
func (s *Store) pack(b []byte) []byte { return s.packer.EncodeAll(b, nil) }

func (s *Store) unpack(b []byte) ([]byte, error) {
	if len(b) == 0 {
		return nil, nil
	}
	return s.unpacker.DecodeAll(b, nil)
}
