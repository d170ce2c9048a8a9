package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Message is a message of a topic. It concerns one run.
type Message struct {
	ID      int64
	Topic   string
	Account string
	Run     string
	// Name is unique among the waiting messages: a second message with the name is dropped.
	Name string
	// Lane, if it is not empty, orders the messages of a topic: a message is delivered when those
	// that were sent before it in the lane are done or dead.
	Lane string
	// Due is the earliest time of its delivery. Zero is at once.
	Due time.Time
	// Tries counts the claims of the message, with the present one.
	Tries int
	Data  []byte

	owner string
}

// By returns the message as one that an owner has claimed.
func (m Message) By(owner string) Message {
	m.owner = owner
	return m
}

// channel is the channel of PostgreSQL's notifications.
const channel = "dlite_pipelines"

// deadTopic is put before the topic of a message that has failed too often.
const deadTopic = "dead/"

// Taker takes messages for this process in the transaction that sends them, so that they need no claim later. A message
// that is due later, or that waits for another one of its lane, is not taken.
type Taker struct {
	Owner string        // is different in each process
	Claim time.Duration // see [Store.Claim]
	// Room returns how many messages the process can take. Transactions at the same time may exceed it.
	Room func() int
	// Take gets messages after the commit. It must not block.
	Take func([]Message)
}

// SetTaker sets the taker of a topic. It must not be called after messages were sent.
func (s *Store) SetTaker(topic string, t Taker) { s.takers[topic] = &t }

// Send adds messages.
func (tx *Tx) Send(messages ...Message) error {
	for chunk := range slices.Chunk(messages, maxRows) {
		if err := tx.send(chunk); err != nil {
			return fmt.Errorf("sending message %s: %w", chunk[0].Name, err)
		}
	}
	return nil
}

// laneTaken is true if a message of a topic and a lane exists.
const laneTaken = `EXISTS (SELECT 1 FROM messages WHERE topic = ? AND lane = ? AND lane <> '')`

func (tx *Tx) send(messages []Message) error {
	var parts []string
	var args []any
	now := time.Now()
	waiting := map[string]*Message{} // by name, until the database has accepted it
	for i := range messages {
		m := &messages[i]
		if waiting[m.Name] != nil { // some databases refuse a conflict within one statement
			continue
		}
		waiting[m.Name] = m
		lane := m.Topic + "/" + m.Lane
		if t := tx.store.takers[m.Topic]; t != nil && m.Due.IsZero() && (m.Lane == "" || !tx.lanes[lane]) && t.Room() > len(tx.taken) {
			// If the lane is taken, the message is ready but waits for its turn.
			parts = append(parts, `(?, ?, ?, ?, ?, CASE WHEN `+laneTaken+` THEN 0 ELSE CAST(? AS BIGINT) END, 1, ?, '', ?)`)
			args = append(args, m.Topic, m.Account, m.Run, m.Name, m.Lane, m.Topic, m.Lane, millis(now.Add(t.Claim)), t.Owner, notNull(m.Data))
		} else {
			parts = append(parts, `(?, ?, ?, ?, ?, ?, 0, '', '', ?)`)
			args = append(args, m.Topic, m.Account, m.Run, m.Name, m.Lane, millis(m.Due), notNull(m.Data))
		}
		tx.lanes[lane] = true
	}
	return each(tx.ctx, tx.tx, tx.store.rebind(`INSERT INTO messages (topic, account, run, name, lane, ready, tries, owner, problem, data) VALUES `+
		strings.Join(parts, ", ")+` ON CONFLICT (name) DO NOTHING RETURNING id, name, owner, ready`), args, func(scan func(...any) error) error {
		var id, ready int64
		var name, owner string
		if err := scan(&id, &name, &owner, &ready); err != nil {
			return err
		}
		m := *waiting[name]
		switch {
		case owner != "" && ready > 0:
			m.ID, m.owner, m.Tries = id, owner, 1
			tx.taken = append(tx.taken, m)
		case ready == 0 && owner != "": // the process that ends its lane's earlier message also looks for it
			tx.due[m.Topic] = true
		case ready == 0:
			tx.sent[m.Topic] = true
		case ready < millis(now.Add(soon)): // other processes look for due messages in any case
			tx.due[m.Topic] = true
		}
		return nil
	})
}

// soon is the time in which each process looks for messages that are due, without a notification.
const soon = 2 * time.Second

// Cancel removes a message by its name. A message that is being handled stays claimed by its
// process, which notices at its end.
func (tx *Tx) Cancel(name string) error {
	if err := tx.exec(`DELETE FROM messages WHERE name = ?`, name); err != nil {
		return fmt.Errorf("removing message %s: %w", name, err)
	}
	return nil
}

// Done removes claimed messages. It fails with [ErrStale] if another process has claimed one of them.
func (tx *Tx) Done(messages ...Message) error {
	n, err := tx.remove(messages)
	if err == nil && n < len(messages) {
		return ErrStale
	}
	return err
}

// remove removes the messages that this process has claimed, and returns their number.
func (tx *Tx) remove(messages []Message) (removed int, err error) {
	byOwner := map[string][]Message{} // a process has one owner
	for _, m := range messages {
		byOwner[m.owner] = append(byOwner[m.owner], m)
		if m.Lane != "" {
			tx.due[m.Topic] = true // the next message of the lane can be delivered
		}
	}
	for owner, all := range byOwner {
		for chunk := range slices.Chunk(all, maxRows) {
			args := []any{owner}
			for _, m := range chunk {
				args = append(args, m.ID)
			}
			n, err := tx.execCount(`DELETE FROM messages WHERE owner = ? AND id IN (`+rows("?", len(chunk))+`)`, args...)
			if err != nil {
				return 0, fmt.Errorf("removing message %s: %w", chunk[0].Name, err)
			}
			removed += int(n)
		}
	}
	return removed, nil
}

// Holds fails with [ErrStale] if another process has claimed the message, or if it was removed.
func (tx *Tx) Holds(m Message) error {
	var n int
	err := tx.tx.QueryRowContext(tx.ctx, tx.store.rebind(`SELECT COUNT(*) FROM messages WHERE id = ? AND owner = ?`), m.ID, m.owner).Scan(&n)
	if err == nil && n == 0 {
		return ErrStale
	}
	return err
}

// Finish removes the claimed messages that no other process has claimed in the meantime. If the database crashes at
// once, they may come back.
func (s *Store) Finish(ctx context.Context, messages []Message) error {
	return s.Update(ctx, func(tx *Tx) error {
		if err := tx.relax(); err != nil {
			return err
		}
		_, err := tx.remove(messages)
		return err
	})
}

// relax lets the commit return before PostgreSQL has written it to its disk. It is for changes that may be lost together with
// all that follow from them.
func (tx *Tx) relax() error {
	if !tx.store.postgres {
		return nil
	}
	return tx.exec(`SET LOCAL synchronous_commit TO OFF`)
}

// firstOfLane is the condition that a message m waits for no other message of its lane.
const firstOfLane = `(lane = '' OR NOT EXISTS (
	SELECT 1 FROM messages AS earlier WHERE earlier.topic = m.topic AND earlier.lane = m.lane AND earlier.lane <> '' AND earlier.id < m.id))`

// Claim returns up to limit messages of a topic that are due, the oldest first, and keeps
// them from other owners until the claim ends. Owner must be different in each process. A claim of its owner again is no
// try.
func (s *Store) Claim(ctx context.Context, topic, owner string, now time.Time, claim time.Duration, limit int) ([]Message, error) {
	lock := ""
	if s.postgres {
		lock = " FOR UPDATE SKIP LOCKED"
	}
	var claimed []Message
	err := s.Update(ctx, func(tx *Tx) error {
		claimed = nil
		if err := tx.relax(); err != nil {
			return err
		}
		return each(ctx, tx.tx, s.rebind(`UPDATE messages SET tries = tries + CASE WHEN owner = ? THEN 0 ELSE 1 END, owner = ?, ready = ? WHERE id IN (
			SELECT id FROM messages AS m WHERE topic = ? AND ready <= ? AND `+firstOfLane+`
			ORDER BY ready, id LIMIT ?`+lock+`)
			RETURNING id, topic, account, run, name, lane, tries, data`),
			[]any{owner, owner, millis(now.Add(claim)), topic, millis(now), limit}, func(scan func(...any) error) error {
				m := Message{owner: owner}
				if err := scan(&m.ID, &m.Topic, &m.Account, &m.Run, &m.Name, &m.Lane, &m.Tries, &m.Data); err != nil {
					return err
				}
				claimed = append(claimed, m)
				return nil
			})
	})
	if err != nil {
		return nil, fmt.Errorf("claiming messages: %w", err)
	}
	return claimed, nil
}

// Next returns when the next message of a topic is due, or zero if there is none. A message
// that waits for an earlier one of its lane does not count: [Store.Wake] tells of its turn.
func (s *Store) Next(ctx context.Context, topic string) (time.Time, error) {
	var ready int64
	err := s.db.QueryRowContext(ctx, s.rebind(`SELECT ready FROM messages AS m WHERE topic = ? AND `+firstOfLane+` ORDER BY ready LIMIT 1`), topic).Scan(&ready)
	if errors.Is(err, sql.ErrNoRows) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("looking for messages: %w", err)
	}
	return time.UnixMilli(ready), nil
}

// Keep extends the claim of messages, so that no other owner gets them while they are handled.
func (s *Store) Keep(ctx context.Context, messages []Message, until time.Time) error {
	return s.Update(ctx, func(tx *Tx) error {
		for _, m := range messages {
			if err := tx.exec(`UPDATE messages SET ready = ? WHERE id = ? AND owner = ?`, millis(until), m.ID, m.owner); err != nil {
				return fmt.Errorf("keeping message %s: %w", m.Name, err)
			}
		}
		return nil
	})
}

// Release returns claimed messages that were not handled to their topic, as if they had not been
// claimed.
func (s *Store) Release(ctx context.Context, messages []Message) error {
	return s.Update(ctx, func(tx *Tx) error {
		for _, m := range messages {
			n, err := tx.execCount(`UPDATE messages SET owner = '', ready = 0, tries = tries - 1 WHERE id = ? AND owner = ?`, m.ID, m.owner)
			if err != nil {
				return fmt.Errorf("releasing message %s: %w", m.Name, err)
			}
			if n > 0 {
				tx.sent[m.Topic] = true
			}
		}
		return nil
	})
}

// Unclaim returns the messages of an owner to their topic.
func (s *Store) Unclaim(ctx context.Context, topic, owner string) error {
	return s.Update(ctx, func(tx *Tx) error {
		tx.due[topic] = true
		return tx.exec(`UPDATE messages SET ready = 0 WHERE topic = ? AND owner = ?`, topic, owner)
	})
}

// Following returns the messages that wait behind m in its lane.
func (s *Store) Following(ctx context.Context, m Message) ([]Message, error) {
	var all []Message
	err := each(ctx, s.db, s.rebind(`SELECT id, name, data FROM messages WHERE topic = ? AND lane = ? AND lane <> '' AND id > ? ORDER BY id`),
		[]any{m.Topic, m.Lane, m.ID}, func(scan func(...any) error) error {
			next := Message{Topic: m.Topic, Account: m.Account, Run: m.Run, Lane: m.Lane}
			err := scan(&next.ID, &next.Name, &next.Data)
			all = append(all, next)
			return err
		})
	return all, err
}

// Fail returns a claimed message to its topic for a later time.
func (s *Store) Fail(ctx context.Context, m Message, retry time.Time, problem error) error {
	return s.Update(ctx, func(tx *Tx) error {
		tx.due[m.Topic] = true
		return tx.exec(`UPDATE messages SET owner = '', ready = ?, problem = ? WHERE id = ? AND owner = ?`,
			millis(retry), clean(problem), m.ID, m.owner)
	})
}

// Bury makes a claimed message a dead letter. It fails with [ErrStale] if another process has
// claimed it. The letter does not keep a later message with the same name from being sent.
func (tx *Tx) Bury(m Message, problem error) error {
	n, err := tx.execCount(`UPDATE messages SET owner = '', ready = 0, topic = ?, name = ?, problem = ? WHERE id = ? AND owner = ?`,
		deadTopic+m.Topic, deadTopic+m.Name+"/"+strconv.FormatInt(m.ID, 10), clean(problem), m.ID, m.owner)
	if err != nil {
		return fmt.Errorf("burying message %s: %w", m.Name, err)
	}
	if n == 0 {
		return ErrStale
	}
	tx.sent[m.Topic] = true
	return nil
}

// clean returns the text of a problem in a form that both databases take: PostgreSQL refuses
// other bytes.
func clean(problem error) string {
	const most = 4096
	text := problem.Error()
	return strings.ReplaceAll(strings.ToValidUTF8(text[:min(len(text), most)], "?"), "\x00", "?")
}

// DeadLetter is a message that has failed too often.
type DeadLetter struct {
	ID                  int64
	Account, Run, Topic string
	Tries               int
	Problem             string
	Data                []byte
}

// DeadLetters returns up to limit dead letters of an account, the oldest first, after an id.
func (s *Store) DeadLetters(ctx context.Context, account string, after int64, limit int) ([]DeadLetter, error) {
	var dead []DeadLetter
	err := each(ctx, s.db, s.rebind(`SELECT id, account, run, topic, tries, problem, data FROM messages
		WHERE account = ? AND topic LIKE '`+deadTopic+`%' AND id > ? ORDER BY id LIMIT ?`), []any{account, after, limit}, func(scan func(...any) error) error {
		var d DeadLetter
		err := scan(&d.ID, &d.Account, &d.Run, &d.Topic, &d.Tries, &d.Problem, &d.Data)
		d.Topic = strings.TrimPrefix(d.Topic, deadTopic)
		dead = append(dead, d)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing dead letters: %w", err)
	}
	return dead, nil
}

// Redeliver returns a dead letter to its topic, as if it had not been tried. It fails with [ErrNotFound].
func (tx *Tx) Redeliver(account string, id int64) error {
	var topic string
	err := tx.tx.QueryRowContext(tx.ctx, tx.store.rebind(`UPDATE messages SET topic = substr(topic, `+strconv.Itoa(len(deadTopic)+1)+`), ready = 0, tries = 0, owner = ''
		WHERE account = ? AND id = ? AND topic LIKE '`+deadTopic+`%' RETURNING topic`), account, id).Scan(&topic)
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("delivering a letter again: %w", err)
	}
	tx.sent[topic] = true
	return nil
}

// Drop removes a dead letter. It fails with [ErrNotFound].
func (tx *Tx) Drop(account string, id int64) error {
	n, err := tx.execCount(`DELETE FROM messages WHERE account = ? AND id = ? AND topic LIKE '`+deadTopic+`%'`, account, id)
	if err != nil {
		return fmt.Errorf("removing a letter: %w", err)
	}
	if n == 0 {
		return ErrNotFound
	}
	return nil
}

// Wake returns a channel that gets a value when messages were added to a topic. One receiver gets
// each value: it calls [Store.Notify] if it leaves messages to another one.
func (s *Store) Wake(topic string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.wake[topic]
	if c == nil {
		c = make(chan struct{}, 1)
		s.wake[topic] = c
	}
	return c
}

// Notify wakes a receiver of [Store.Wake].
func (s *Store) Notify(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.wake[topic] <- struct{}{}:
	default: // a receiver will look for messages in any case, or there is none
	}
}

// notNull returns b, or an empty slice for nil, which a driver would store as NULL.
func notNull(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
