package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
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

// channel is the channel of PostgreSQL's notifications.
const channel = "dlite_pipelines"

// deadTopic is put before the topic of a message that has failed too often.
const deadTopic = "dead/"

// Send adds messages.
func (tx *Tx) Send(messages ...Message) error {
	for _, m := range messages {
		n, err := tx.execCount(`INSERT INTO messages (topic, account, run, name, lane, ready, tries, owner, problem, data)
			VALUES (?, ?, ?, ?, ?, ?, 0, '', '', ?) ON CONFLICT (name) DO NOTHING`, m.Topic, m.Account, m.Run, m.Name, m.Lane, millis(m.Due), notNull(m.Data))
		if err != nil {
			return fmt.Errorf("sending message %s: %w", m.Name, err)
		}
		if n > 0 {
			tx.sent[m.Topic] = true // also a message that is due later: it changes when to look next
		}
	}
	return nil
}

// Cancel removes a message by its name. A message that is being handled stays claimed by its
// process, which notices at its end.
func (tx *Tx) Cancel(name string) error {
	if err := tx.exec(`DELETE FROM messages WHERE name = ?`, name); err != nil {
		return fmt.Errorf("removing message %s: %w", name, err)
	}
	return nil
}

// Done removes a claimed message. It fails with [ErrStale] if another process has claimed it.
func (tx *Tx) Done(m Message) error {
	n, err := tx.execCount(`DELETE FROM messages WHERE id = ? AND owner = ?`, m.ID, m.owner)
	if err != nil {
		return fmt.Errorf("removing message %s: %w", m.Name, err)
	}
	if n == 0 {
		return ErrStale
	}
	if m.Lane != "" {
		tx.sent[m.Topic] = true // the next message of the lane can be delivered
	}
	return nil
}

// firstOfLane is the condition that a message m waits for no other message of its lane.
const firstOfLane = `(lane = '' OR NOT EXISTS (
	SELECT 1 FROM messages AS earlier WHERE earlier.topic = m.topic AND earlier.lane = m.lane AND earlier.lane <> '' AND earlier.id < m.id))`

// Claim returns up to limit messages of a topic that are due, the oldest first, and keeps
// them from other owners until the claim ends. Owner must be different in each call.
func (s *Store) Claim(ctx context.Context, topic, owner string, now time.Time, claim time.Duration, limit int) ([]Message, error) {
	lock := ""
	if s.postgres {
		lock = " FOR UPDATE SKIP LOCKED"
	}
	var claimed []Message
	err := s.Update(ctx, func(tx *Tx) error {
		claimed = nil
		return each(ctx, tx.tx, s.rebind(`UPDATE messages SET owner = ?, ready = ?, tries = tries + 1 WHERE id IN (
			SELECT id FROM messages AS m WHERE topic = ? AND ready <= ? AND `+firstOfLane+`
			ORDER BY ready, id LIMIT ?`+lock+`)
			RETURNING id, topic, account, run, name, lane, tries, data`),
			[]any{owner, millis(now.Add(claim)), topic, millis(now), limit}, func(scan func(...any) error) error {
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
		tx.sent[m.Topic] = true
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
	Account, Run, Name, Topic string
	Problem                   string
}

// DeadLetters returns up to limit dead letters of an account.
func (s *Store) DeadLetters(ctx context.Context, account string, limit int) ([]DeadLetter, error) {
	var dead []DeadLetter
	err := each(ctx, s.db, s.rebind(`SELECT account, run, name, topic, problem FROM messages WHERE account = ? AND topic LIKE '`+deadTopic+`%' ORDER BY id LIMIT ?`),
		[]any{account, limit}, func(scan func(...any) error) error {
			var d DeadLetter
			if err := scan(&d.Account, &d.Run, &d.Name, &d.Topic, &d.Problem); err != nil {
				return err
			}
			d.Topic = strings.TrimPrefix(d.Topic, deadTopic)
			d.Name = strings.TrimPrefix(d.Name[:strings.LastIndex(d.Name, "/")], deadTopic)
			dead = append(dead, d)
			return nil
		})
	return dead, err
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
