package pipeline

import (
	"context"
	"sync"
	"time"

	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// queue holds the messages of a topic that this process has claimed, until they are handled.
type queue struct {
	mu     sync.Mutex
	groups [][]store.Message // that wait for a worker, see byRun
	count  int               // messages in groups
	held   map[int64]heldMessage
	ready  chan struct{} // holds a token while groups wait
	space  chan struct{} // gets a token when groups leave
}

type heldMessage struct {
	store.Message

	claimed time.Time
}

// queued is the number of messages that a process claims before they are handled. It is the
// backlog that another process gets late if this one dies.
const queued = 256

func newQueue() *queue {
	return &queue{held: map[int64]heldMessage{}, ready: make(chan struct{}, 1), space: make(chan struct{}, 1)}
}

// room returns how many messages the queue takes.
func (q *queue) room() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return queued - q.count
}

// add adds claimed messages. A message that this process holds already, because its claim ended, is left out.
func (q *queue) add(messages []store.Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	var fresh []store.Message
	for _, m := range messages {
		_, known := q.held[m.ID]
		if !known {
			fresh = append(fresh, m)
		}
		q.held[m.ID] = heldMessage{m, now}
	}
	if len(fresh) == 0 {
		return
	}
	q.groups = append(q.groups, byRun(fresh)...)
	q.count += len(fresh)
	signal(q.ready)
}

// next returns the messages of one run and lane. It returns nil when ctx ends.
func (q *queue) next(ctx context.Context) []store.Message {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-q.ready:
		}
		q.mu.Lock()
		if len(q.groups) == 0 {
			q.mu.Unlock()
			continue
		}
		group := q.groups[0]
		q.groups = q.groups[1:]
		q.count -= len(group)
		if len(q.groups) > 0 {
			signal(q.ready)
		}
		signal(q.space)
		q.mu.Unlock()
		return group
	}
}

// all returns up to most messages, and a few more of the last run. It returns nil when ctx ends.
func (q *queue) all(ctx context.Context, most int) []store.Message {
	messages := q.next(ctx)
	for messages != nil && len(messages) < most {
		select {
		case <-q.ready:
			signal(q.ready)
			messages = append(messages, q.next(ctx)...)
		default:
			return messages
		}
	}
	return messages
}

// release forgets messages that were handled, or whose claim has ended.
func (q *queue) release(messages []store.Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range messages {
		delete(q.held, m.ID)
	}
}

// claimedBefore returns the messages that were claimed before a time, and counts them as claimed now.
func (q *queue) claimedBefore(before time.Time) (old []store.Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for id, m := range q.held {
		if m.claimed.Before(before) {
			q.held[id] = heldMessage{m.Message, now}
			old = append(old, m.Message)
		}
	}
	return old
}

// signal puts a token into a channel that holds one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// byRun groups messages by their run and lane, in their order.
func byRun(messages []store.Message) [][]store.Message {
	index := map[[3]string]int{}
	var groups [][]store.Message
	for _, m := range messages {
		key := [3]string{m.Account, m.Run, m.Lane}
		i, ok := index[key]
		if !ok {
			i = len(groups)
			index[key] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], m)
	}
	return groups
}
