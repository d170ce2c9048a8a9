package store

import (
	"context"
	"fmt"
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
			SELECT id FROM messages AS m WHERE topic = ? AND ready <= ? AND (lane = '' OR NOT EXISTS (
				SELECT 1 FROM messages AS earlier WHERE earlier.topic = m.topic AND earlier.lane = m.lane AND earlier.lane <> '' AND earlier.id < m.id))
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

// Next returns when the next message of a topic is due, or zero if there is none.
func (s *Store) Next(ctx context.Context, topic string) (time.Time, error) {
	var ready *int64
	err := s.db.QueryRowContext(ctx, s.rebind(`SELECT MIN(ready) FROM messages WHERE topic = ?`), topic).Scan(&ready)
	if err != nil {
		return time.Time{}, fmt.Errorf("looking for messages: %w", err)
	}
	if ready == nil {
		return time.Time{}, nil
	}
	return time.UnixMilli(*ready), nil
}

// Fail returns a claimed message to its topic for a later time, or makes it a dead letter if
// retry is zero.
func (s *Store) Fail(ctx context.Context, m Message, retry time.Time, problem error) error {
	topic := m.Topic
	if retry.IsZero() {
		topic = deadTopic + topic
	}
	return s.Update(ctx, func(tx *Tx) error {
		tx.sent[m.Topic] = true
		return tx.exec(`UPDATE messages SET owner = '', ready = ?, topic = ?, problem = ? WHERE id = ? AND owner = ?`,
			millis(retry), topic, problem.Error(), m.ID, m.owner)
	})
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
			d.Topic = d.Topic[len(deadTopic):]
			dead = append(dead, d)
			return nil
		})
	return dead, err
}

// Wake returns a channel that is closed when a message is added to a topic.
func (s *Store) Wake(topic string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.wake[topic]
	if c == nil {
		c = make(chan struct{})
		s.wake[topic] = c
	}
	return c
}

func (s *Store) notify(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.wake[topic]; c != nil {
		close(c)
		delete(s.wake, topic)
	}
}

// notNull returns b, or an empty slice for nil, which a driver would store as NULL.
func notNull(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
