package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// ErrFull means that the account has as many objects of the kind, or bytes of them, as it may have.
var ErrFull = errors.New("the account has no room")

// Object is a named thing that an account keeps, for example a pipeline or a trigger.
type Object struct {
	Account, Kind, ID string
	// Version counts the changes, from 1.
	Version int64
	Updated time.Time
	// Due is when the object must be looked at; zero is never.
	Due  time.Time
	Data []byte
}

// Room bounds the objects of one kind that an account may have.
type Room struct {
	Count int
	Bytes int64
}

// Object returns an object, and keeps other transactions from changing it until this one ends. It fails with
// [ErrNotFound].
func (tx *Tx) Object(account, kind, id string) (*Object, error) {
	query := objectQuery + ` WHERE account = ? AND kind = ? AND id = ?`
	if tx.store.postgres {
		query += ` FOR UPDATE`
	}
	return scanObject(tx.tx.QueryRowContext(tx.ctx, tx.store.rebind(query), account, kind, id).Scan)
}

// Object returns an object. It fails with [ErrNotFound].
func (s *Store) Object(ctx context.Context, account, kind, id string) (*Object, error) {
	query := objectQuery + ` WHERE account = ? AND kind = ? AND id = ?`
	return scanObject(s.db.QueryRowContext(ctx, s.rebind(query), account, kind, id).Scan)
}

const objectQuery = `SELECT account, kind, id, version, updated, due, data FROM objects`

func scanObject(scan func(...any) error) (*Object, error) {
	var o Object
	var updated, due int64
	err := scan(&o.Account, &o.Kind, &o.ID, &o.Version, &updated, &due, &o.Data)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("reading an object: %w", err)
	}
	o.Updated, o.Due = fromMillis(updated), fromMillis(due)
	return &o, nil
}

// Put adds an object, or replaces the one with its id. It sets the version. It fails with [ErrFull].
func (tx *Tx) Put(o *Object, room Room) error {
	if tx.store.postgres { // another process could use the same room
		if err := tx.exec(`SELECT pg_advisory_xact_lock(715203350, hashtext(?))`, o.Account); err != nil {
			return fmt.Errorf("locking the objects of an account: %w", err)
		}
	}
	var count, bytes int64
	err := tx.tx.QueryRowContext(tx.ctx, tx.store.rebind(`SELECT COUNT(*), COALESCE(SUM(size), 0) FROM objects WHERE account = ? AND kind = ? AND id <> ?`),
		o.Account, o.Kind, o.ID).Scan(&count, &bytes)
	if err != nil {
		return fmt.Errorf("counting objects: %w", err)
	}
	if count >= int64(room.Count) || bytes+int64(len(o.Data)) > room.Bytes {
		return ErrFull
	}
	err = tx.tx.QueryRowContext(tx.ctx, tx.store.rebind(
		`INSERT INTO objects (account, kind, id, version, size, due, updated, data) VALUES (?, ?, ?, 1, ?, ?, ?, ?)
		 ON CONFLICT (account, kind, id) DO UPDATE SET version = objects.version + 1, size = excluded.size, due = excluded.due,
		 updated = excluded.updated, data = excluded.data RETURNING version`),
		o.Account, o.Kind, o.ID, len(o.Data), millis(o.Due), millis(o.Updated), notNull(o.Data)).Scan(&o.Version)
	if err != nil {
		return fmt.Errorf("saving an object: %w", err)
	}
	return nil
}

// Note writes the data and the due time of a locked object. The version stays, and room is not checked.
func (tx *Tx) Note(o *Object) error {
	err := tx.exec(`UPDATE objects SET due = ?, size = ?, data = ? WHERE account = ? AND kind = ? AND id = ?`,
		millis(o.Due), len(o.Data), notNull(o.Data), o.Account, o.Kind, o.ID)
	if err != nil {
		return fmt.Errorf("saving an object: %w", err)
	}
	return nil
}

// Delete removes an object. It fails with [ErrNotFound].
func (tx *Tx) Delete(account, kind, id string) error {
	n, err := tx.execCount(`DELETE FROM objects WHERE account = ? AND kind = ? AND id = ?`, account, kind, id)
	if err != nil {
		return fmt.Errorf("removing an object: %w", err)
	}
	if n == 0 {
		return ErrNotFound
	}
	return nil
}

// Objects lists objects by their ids, after an id.
func (s *Store) Objects(ctx context.Context, account, kind, after string, limit int) ([]Object, error) {
	return s.objects(ctx, objectQuery+` WHERE account = ? AND kind = ? AND id > ? ORDER BY id LIMIT ?`, account, kind, after, limit)
}

// Heads lists objects without their data, as Objects does.
func (s *Store) Heads(ctx context.Context, account, kind, after string, limit int) ([]Object, error) {
	return s.objects(ctx, `SELECT account, kind, id, version, updated, due, NULL FROM objects WHERE account = ? AND kind = ? AND id > ? ORDER BY id LIMIT ?`,
		account, kind, after, limit)
}

// DueObjects returns objects of all accounts that are due, the earliest first.
func (s *Store) DueObjects(ctx context.Context, kind string, now time.Time, limit int) ([]Object, error) {
	return s.objects(ctx, objectQuery+` WHERE kind = ? AND due > 0 AND due <= ? ORDER BY due LIMIT ?`, kind, millis(now), limit)
}

func (s *Store) objects(ctx context.Context, query string, args ...any) (all []Object, err error) {
	err = each(ctx, s.db, s.rebind(query), args, func(scan func(...any) error) error {
		o, err := scanObject(scan)
		if err == nil {
			all = append(all, *o)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing objects: %w", err)
	}
	return all, nil
}

// Delivery is a call of a webhook that starts a run.
type Delivery struct {
	Account, Hook string
	// Names identify the delivery. A name that was seen before makes it a repetition.
	Names []string
	Run   string
	At    time.Time
}

// Deliver notes a delivery. If it is a repetition, Deliver returns the run of the first delivery, and notes nothing. The
// caller has locked the object of the webhook.
func (tx *Tx) Deliver(d Delivery) (run string, repeated bool, err error) {
	for _, name := range d.Names {
		err := tx.tx.QueryRowContext(tx.ctx, tx.store.rebind(`SELECT run FROM deliveries WHERE account = ? AND hook = ? AND name = ?`),
			d.Account, d.Hook, name).Scan(&run)
		if err == nil {
			return run, true, nil
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return "", false, fmt.Errorf("reading a delivery: %w", err)
		}
	}
	for _, name := range d.Names {
		err := tx.exec(`INSERT INTO deliveries (account, hook, name, run, at) VALUES (?, ?, ?, ?, ?)`, d.Account, d.Hook, name, d.Run, millis(d.At))
		if err != nil {
			return "", false, fmt.Errorf("noting a delivery: %w", err)
		}
	}
	return d.Run, false, nil
}

// Deliveries counts the runs that a webhook has started since a time.
func (tx *Tx) Deliveries(account, hook string, since time.Time) (n int, err error) {
	err = tx.tx.QueryRowContext(tx.ctx, tx.store.rebind(`SELECT COUNT(DISTINCT run) FROM deliveries WHERE account = ? AND hook = ? AND at > ?`),
		account, hook, millis(since)).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("counting deliveries: %w", err)
	}
	return n, nil
}

// ForgetDeliveries removes old deliveries.
func (s *Store) ForgetDeliveries(ctx context.Context, before time.Time) error {
	return s.Update(ctx, func(tx *Tx) error { return tx.exec(`DELETE FROM deliveries WHERE at < ?`, millis(before)) })
}
