package queue

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/task"
)

// replicas are two queues that carry out the same operations. They must stay the same,
// also when one of them is saved and loaded (rules Q4 and Q7). Their maps have different
// orders, so that a dependence on the order of a map shows.
type replicas struct {
	*bench
	twin *Queue
}

func newReplicas(t require.TestingT, cfg Config) *replicas {
	cfg.Epoch = "epoch"
	p := &replicas{bench: newBench(t, cfg)}
	p.twin = New(p.cfg)
	return p
}

// both carries out an operation on both replicas and returns the common result.
func both[R any](p *replicas, op func(q *Queue) (R, error)) (R, error) {
	got, err := op(p.Queue)
	other, otherErr := op(p.twin)
	require.Equal(p.t, got, other)
	require.Equal(p.t, fmt.Sprint(err), fmt.Sprint(otherErr))
	return got, err
}

func (p *replicas) each(op func(q *Queue) error) error {
	_, err := both(p, func(q *Queue) (bool, error) { return true, op(q) })
	return err
}

func (p *replicas) Register(account string, r Registration) string {
	id, _ := both(p, func(q *Queue) (string, error) { return q.Register(account, r), nil })
	return id
}

func (p *replicas) Heartbeat(account string, r Registration) error {
	return p.each(func(q *Queue) error { return q.Heartbeat(account, r) })
}

func (p *replicas) SetCapacity(account, id string, n int) error {
	return p.each(func(q *Queue) error { return q.SetCapacity(account, id, n) })
}

func (p *replicas) SetDraining(account, id string, draining bool) error {
	return p.each(func(q *Queue) error { return q.SetDraining(account, id, draining) })
}

func (p *replicas) SetUnaware(account, id string, unaware bool) error {
	return p.each(func(q *Queue) error { return q.SetUnaware(account, id, unaware) })
}

func (p *replicas) Pause(account string, paused bool) {
	_ = p.each(func(q *Queue) error { q.Pause(account, paused, ""); return nil })
}

func (p *replicas) SetLimit(account, group string, most int) {
	_ = p.each(func(q *Queue) error { q.SetLimit(account, group, most); return nil })
}

func (p *replicas) Unregister(account, id string) error {
	return p.each(func(q *Queue) error { return q.Unregister(account, id) })
}

func (p *replicas) Submit(account string, w *Work) error {
	return p.each(func(q *Queue) error { return q.Submit(account, w) })
}

func (p *replicas) Acquire(account, delegate, id string) (*task.Task, error) {
	return both(p, func(q *Queue) (*task.Task, error) { return q.Acquire(account, delegate, id) })
}

func (p *replicas) Complete(account, delegate, id string, a Answer) error {
	return p.each(func(q *Queue) error { return q.Complete(account, delegate, id, a) })
}

func (p *replicas) Append(account, work string, t *task.Task) error {
	return p.each(func(q *Queue) error { return q.Append(account, work, t) })
}

func (p *replicas) AppendDetached(account, work string, t *task.Task) error {
	return p.each(func(q *Queue) error { return q.AppendDetached(account, work, t) })
}

func (p *replicas) Release(account, id string) error {
	return p.each(func(q *Queue) error { return q.Release(account, id) })
}

func (p *replicas) Retry(account, id string, v []Variant, at time.Time) error {
	return p.each(func(q *Queue) error { return q.Retry(account, id, v, at) })
}

func (p *replicas) Abort(account, id, reason string) error {
	return p.each(func(q *Queue) error { return q.Abort(account, id, reason) })
}

func (p *replicas) advance(d time.Duration) {
	p.now = p.now.Add(d)
	_ = p.each(func(q *Queue) error { q.Tick(p.now); return nil })
}

// events takes the events of both.
func (p *replicas) events() []Event {
	events, _ := both(p, func(q *Queue) ([]Event, error) { return append([]Event(nil), q.Events()...), nil })
	return events
}

// alike checks that no method shows a difference between the two.
func (p *replicas) alike() {
	require.Equal(p.t, save(p.t, p.Queue), save(p.t, p.twin))
	require.Equal(p.t, p.facts(), p.twin.facts())
	at, ok := p.NextDeadline()
	twinAt, twinOK := p.twin.NextDeadline()
	require.Equal(p.t, at, twinAt)
	require.Equal(p.t, ok, twinOK)
	for name, a := range p.accounts {
		require.Equal(p.t, p.Delegates(name), p.twin.Delegates(name))
		require.Equal(p.t, p.Limits(name), p.twin.Limits(name))
		require.Equal(p.t, paused(p.Queue, name), paused(p.twin, name))
		require.Equal(p.t, p.Places(name), p.twin.Places(name))
		require.ElementsMatch(p.t, p.Waiting(name), p.twin.Waiting(name))
		for id := range a.delegates {
			_, _ = both(p, func(q *Queue) (List, error) {
				l, err := q.List(name, id, "")
				l.Changed = nil
				return l, err
			})
		}
		for id := range a.tasks {
			_, _ = both(p, func(q *Queue) (TaskState, error) {
				s, err := q.Task(name, id)
				s.Done = nil
				return s, err
			})
		}
	}
}

// facts returns the state of each delegate, work and task, without references to others.
func (q *Queue) facts() map[string]any {
	all := map[string]any{"counts": []int{q.finished.size, q.ends, q.bytes, q.present, q.awaited}}
	for name, a := range q.accounts {
		for id, d := range a.delegates {
			all["delegate "+name+id] = []any{d.delegateFacts, d.info, d.has}
		}
		for id, w := range a.works {
			v := *w
			v.account, v.delegate, v.first, v.more, v.requirement = nil, nil, nil, nil, nil
			if len(v.Was) == 0 {
				v.Was = nil
			}
			all["work "+name+id] = v
		}
		for id, r := range a.tasks {
			v := *r
			v.work, v.owner, v.over = nil, nil, nil
			all["task "+name+id] = v
		}
	}
	return all
}

// reload saves and loads a replica.
func (p *replicas) reload(q **Queue) {
	fresh := New((*q).cfg)
	require.NoError(p.t, fresh.Load(bytes.NewReader(save(p.t, *q))))
	*q = fresh
}

// save returns the bytes that a queue saves.
func save(t require.TestingT, q *Queue) []byte {
	var b bytes.Buffer
	require.NoError(t, q.Save(&b))
	return b.Bytes()
}

// everything returns a queue with works and tasks in all states.
func everything(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, Config{Epoch: "epoch", HeartbeatTimeout: time.Minute, AbortGrace: 10 * time.Second})
	d, gone, lost := b.add("d", 3, "a"), b.add("gone", 1, "gone"), b.add("lost", 1, "lost")
	for _, id := range []string{"running", "offered", "aborted"} {
		b.stage(id, High, "a")
	}
	b.stage("was gone", Normal, "gone")
	b.stage("was lost", Normal, "lost")
	for id, d := range map[string]string{"running": d, "aborted": d, "was gone": gone, "was lost": lost} {
		b.acquire(d, id)
	}
	b.complete(d, "running")
	require.NoError(t, b.Append(acc, "running", &task.Task{
		ID: "step", Type: "execute", Timeout: 60_000, Data: json.RawMessage(`{"a": "<b>"}`),
		Config: json.RawMessage(`{"c":1}`), Secrets: []*task.Task{{ID: "secret", Data: json.RawMessage(`1`)}},
	}))
	b.complete(gone, "was gone")
	require.NoError(t, b.Unregister(acc, gone))
	b.advance(30 * time.Second)
	require.NoError(t, b.Heartbeat(acc, Registration{ID: d}))
	b.advance(30 * time.Second)
	require.NoError(t, b.AppendDetached(acc, "was lost", &task.Task{ID: "clean", Type: "cleanup"}))
	require.NoError(t, b.Abort(acc, "aborted", "because"))
	require.NoError(t, b.Submit(acc, &Work{
		ID: "waits", Stage: true, Selectors: []string{"a", " B"}, QueueTimeout: 2 * time.Minute, RunTimeout: time.Hour,
		Variants: append(one("w", "init"), one("w", "other")...),
	}))
	b.stage("not taken", Normal, "a")
	b.single("answered", "a")
	b.acquire(d, "answered")
	b.complete(d, "answered")
	require.NoError(t, b.Submit("other account", &Work{ID: "running", Variants: one("running", "custom")}))
	b.Events()
	return b
}

func TestALoadedQueueIsTheSavedOne(t *testing.T) {
	t.Parallel()
	b := everything(t)
	saved := save(t, b.Queue)
	p := &replicas{bench: b, twin: New(b.cfg)}
	require.NoError(t, p.twin.Load(iotest.OneByteReader(bytes.NewReader(saved))))
	p.alike()
	d := b.Delegates(acc)[0].ID
	_, err := p.Acquire(acc, d, "step")
	require.NoError(t, err)
	for range 40 { // until nothing is due any more
		p.advance(10 * time.Second)
		require.NotContains(t, p.events(), Event{})
		p.alike()
		_ = p.Heartbeat(acc, Registration{ID: d})
	}
}

// A queue that the first program with this format has saved is loaded as it was: after the
// same operations this program saves the same.
func TestAQueueOfAnEarlierProgramIsLoaded(t *testing.T) {
	t.Parallel()
	saved, err := os.ReadFile("testdata/saved-v1")
	require.NoError(t, err)
	q := New(Config{})
	require.NoError(t, q.Load(bytes.NewReader(saved)))
	now := everything(t).Queue
	for _, d := range withRemoved(now.accounts[acc], slices.Collect(maps.Values(now.accounts[acc].works))) {
		d.History = nil // the first program had none
	}
	assert.Equal(t, string(save(t, now)), string(save(t, q)))
	checkIndex(t, q.accounts[acc])
}

// Two queues that carry out the same operations with many delegates save the same bytes
// after each of them: no order depends on a map.
func TestReplicasAreTheSame(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(11, 11)) //nolint:gosec // the same each time
	p := newReplicas(t, Config{HeartbeatTimeout: time.Minute, Retention: time.Minute, Gap: 20 * time.Second, MaxFinished: 50})
	p.SetLimit(acc, "g", 5)
	p.SetLimit(acc, "h", 3)
	some := func(all ...string) []string { return all[:r.IntN(len(all)+1)] }
	delegates := map[int]string{}
	owner := func(id string) string {
		s, _ := p.Task(acc, id) // it may be forgotten
		return s.Delegate
	}
	for i := range 1500 {
		n := r.IntN(12)
		d, id := delegates[n], fmt.Sprint("w", max(0, i-1-r.IntN(60)))
		switch r.IntN(10) {
		case 0:
			if p.Heartbeat(acc, Registration{ID: d, Draining: r.IntN(9) == 0}) != nil {
				delegates[n] = p.Register(acc, Registration{Name: fmt.Sprint("d", n), Tags: some("a", "b")})
				_ = p.SetCapacity(acc, delegates[n], r.IntN(4))
			}
		case 1:
			p.advance(time.Duration(r.IntN(30)) * time.Second)
		case 2:
			_, _ = p.Acquire(acc, owner(id), id)
		case 3:
			_ = p.Complete(acc, owner(id), id, Answer{Outcome: Success, Retry: r.IntN(4) == 0})
		case 4:
			_ = p.Retry(acc, id, one(fmt.Sprint("r", i), "init"), p.now.Add(time.Duration(r.IntN(30))*time.Second))
		case 5:
			if p.Release(acc, id) != nil && r.IntN(3) == 0 {
				_ = p.Abort(acc, id, "because")
			}
		case 6:
			p.Pause(acc, r.IntN(3) == 0)
		default:
		}
		require.NoError(t, p.Submit(acc, &Work{
			ID: fmt.Sprint("w", i), Stage: r.IntN(4) > 0, Selectors: some("a", "b"), Groups: some("g", "h"),
			Priority: Priority(r.IntN(2)), QueueTimeout: time.Duration(r.IntN(3)) * time.Minute, Variants: one(fmt.Sprint("w", i), "init"),
		}))
		p.events()
		if i%20 == 0 {
			require.Equal(t, string(save(t, p.Queue)), string(save(t, p.twin)))
		}
		if i%500 == 0 {
			p.alike()
			p.reload(&p.twin)
			p.alike()
		}
	}
}

// A payload keeps its white space when a queue is saved and loaded.
func TestALoadedPayloadIsTheSameText(t *testing.T) {
	t.Parallel()
	b := everything(t)
	p := &replicas{bench: b, twin: b.Queue}
	p.reload(&p.Queue)
	s, err := p.Task(acc, "step")
	require.NoError(t, err)
	assert.Equal(t, `{"a": "<b>"}`, string(s.Task.Data)) //nolint:testifylint // the text counts
	assert.JSONEq(t, `{"c":1}`, string(s.Task.Config))
	assert.Equal(t, "1", string(s.Task.Secrets[0].Data))
}

// Load wakes callers that wait for a change of the old state. Cursors and offers stay
// valid.
func TestLoadWakesAllCallers(t *testing.T) {
	t.Parallel()
	b := everything(t)
	saved := save(t, b.Queue)
	d := b.Delegates(acc)[0].ID
	list, err := b.List(acc, d, "")
	require.NoError(t, err)
	s, err := b.Task(acc, "step")
	require.NoError(t, err)
	ended, err := b.Task(acc, "answered")
	require.NoError(t, err)
	require.NoError(t, b.Load(bytes.NewReader(saved)))
	<-list.Changed
	<-s.Done
	<-ended.Done
	again, err := b.List(acc, d, list.Cursor)
	require.NoError(t, err)
	assert.False(t, again.Fresh, "a cursor means the same")
	assert.Equal(t, list.Events, again.Events)
	s, err = b.Task(acc, "step")
	require.NoError(t, err)
	select {
	case <-s.Done:
		t.Error("it has not ended")
	default:
	}
}

// A Load that fails changes nothing. A queue whose events are not taken cannot be saved.
func TestALoadThatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	b := everything(t)
	saved := save(t, b.Queue)
	list, err := b.List(acc, b.Delegates(acc)[0].ID, "")
	require.NoError(t, err)
	for i := range len(saved) {
		require.ErrorIs(t, b.Load(bytes.NewReader(saved[:i])), io.ErrUnexpectedEOF, "%d bytes", i)
	}
	newer := strings.Replace(string(saved), `{"version":1,`, `{"version":2,`, 1)
	require.ErrorIs(t, b.Load(strings.NewReader(newer)), ErrVersion)
	odd := strings.ReplaceAll(string(saved), `"stage":true`, `"variant":99`) // of the same length
	require.ErrorContains(t, b.Load(strings.NewReader(odd)), "is in no state")
	select {
	case <-list.Changed:
		t.Error("nothing has happened")
	default:
	}
	assert.Equal(t, saved, save(t, b.Queue))

	b.single("t")
	require.NoError(t, b.Abort(acc, "t", "because"))
	require.ErrorContains(t, b.Save(io.Discard), "events")
	b.Events()
	require.ErrorIs(t, b.Save(fullDisk{}), io.ErrShortWrite)
}

// Load does not panic on any input.
func FuzzLoad(f *testing.F) {
	b := newBench(f, Config{Epoch: "epoch"})
	d := b.add("d", 1, "a")
	b.stage("s", Normal, "a")
	b.stage("t", Normal, "a", "b")
	b.acquire(d, "s")
	b.Events()
	f.Add(save(f, b.Queue))
	f.Fuzz(func(t *testing.T, saved []byte) {
		q := New(Config{})
		if q.Load(bytes.NewReader(saved)) == nil {
			var b bytes.Buffer
			require.NoError(t, q.Save(&b))
		}
	})
}

// fullDisk fails to write.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, io.ErrShortWrite }
