package queue

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/task"
)

// Rule Q2: a stage goes to the delegate with the most free slots, then the fewest stages,
// then the longest idle. Unbounded is the most.
func TestAStageGoesToTheFreestDelegate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		max  []int    // of the delegates d0, d1, ...
		busy []string // the delegates of stages that run already
		want string
	}{
		"more slots":                          {[]int{1, 3, 2}, nil, "d1"},
		"free ones count":                     {[]int{2, 4}, []string{"d1", "d1", "d1"}, "d0"},
		"unbounded is the most":               {[]int{9, 0}, []string{"d1", "d1"}, "d1"},
		"unbounded ones by stages":            {[]int{0, 0}, []string{"d0", "d0", "d1"}, "d1"},
		"the same free, fewest stages":        {[]int{3, 2}, []string{"d0"}, "d1"},
		"all the same, the first to register": {[]int{2, 2}, nil, "d0"},
		"none free":                           {[]int{1}, []string{"d0"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, Config{})
			names := map[string]string{}
			for i, n := range c.max {
				d := fmt.Sprintf("d%d", i)
				names[b.add(d, n)] = d
			}
			for i, d := range c.busy {
				b.stage(fmt.Sprintf("busy%d", i), Normal, d)
			}
			b.stage("new", Normal)
			assert.Equal(t, c.want, names[b.holder("new")])
		})
	}
}

// Rule Q2: ties go to the delegate that has been idle for longest.
func TestTheLongestIdleDelegateWinsATie(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	d0, d1 := b.add("d0", 1), b.add("d1", 1)
	for i, want := range []string{d0, d1, d0, d1} {
		b.now = b.now.Add(time.Second)
		id := fmt.Sprint("s", i)
		b.stage(id, Normal)
		require.Equal(t, want, b.holder(id))
		b.acquire(want, id)
		b.complete(want, id)
		require.NoError(t, b.Release(acc, id))
	}
}

// Rule Q2: a freed slot goes to HIGH before NORMAL, then to the oldest, among the works
// that the delegate is eligible for.
func TestAFreedSlotGoesToTheFirstWork(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	d := b.add("d", 1, "linux")
	b.stage("now", Normal)
	b.stage("n1", Normal)
	b.stage("gpu", High, "gpu")
	b.stage("n2", Normal, "Linux")
	b.stage("h1", High, " LINUX ")
	b.stage("h2", High)
	got := []string{}
	for range 5 {
		id := b.offers(d)[0]
		got = append(got, id)
		b.acquire(d, id)
		b.complete(d, id)
		require.NoError(t, b.Release(acc, id))
	}
	assert.Equal(t, []string{"now", "h1", "h2", "n1", "n2"}, got)
	assert.Empty(t, b.offers(d))
	p, err := b.Place(acc, "gpu")
	require.NoError(t, err)
	assert.Equal(t, Place{1, `no delegate has the tags "gpu": give them to one, or change the selectors`}, p)
}

// Rule Q3: the delegates that may have a task.
func TestTagsAndTypesDecideWhichTasksADelegateMayHave(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		r         Registration
		selectors []string
		want      bool
	}{
		"no selectors":           {Registration{}, nil, true},
		"all tags":               {Registration{Tags: []string{"a", "b", "c"}}, []string{"b", "a"}, true},
		"one tag is missing":     {Registration{Tags: []string{"a"}}, []string{"a", "b"}, false},
		"the name is a tag":      {Registration{Name: "Mac 1"}, []string{"mac 1"}, true},
		"case and space":         {Registration{Tags: []string{" Linux"}}, []string{"linux "}, true},
		"the type is supported":  {Registration{Types: []string{"x", "custom"}}, nil, true},
		"the type is not":        {Registration{Types: []string{"x"}}, nil, false},
		"types have their case":  {Registration{Types: []string{"Custom"}}, nil, false},
		"draining":               {Registration{Draining: true}, nil, false},
		"a part of a tag is not": {Registration{Tags: []string{"linux-arm"}}, []string{"linux"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, Config{})
			b.Register(acc, c.r)
			b.single("t", c.selectors...)
			assert.Equal(t, c.want, b.holder("t") != "")
			b.Register("another account", Registration{Name: "x", Tags: c.selectors})
		})
	}
}

// Rule Q4: a work that was not acquired in time goes back to its old place, before later
// works. Another delegate is preferred for it.
func TestAMissedOfferKeepsItsPlace(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{AcquireTimeout: 10 * time.Second, HeartbeatTimeout: time.Hour})
	deaf := b.add("deaf", 1)
	b.stage("old", Normal)
	b.stage("young", Normal)
	b.advance(10 * time.Second)
	assert.Equal(t, []string{"old"}, b.offers(deaf), "there is no other delegate, and it is the first work")
	other := b.add("other", 0)
	assert.Equal(t, []string{"young"}, b.offers(other))
	b.advance(10 * time.Second)
	assert.ElementsMatch(t, []string{"old"}, b.offers(other), "each delegate has missed the offer that the other has now")
	assert.ElementsMatch(t, []string{"young"}, b.offers(deaf))
}

// Rules Q2 and Q4: a work that goes back keeps its age and its priority. The slot that it
// leaves goes to the first work.
func TestARequeuedWorkIsNotServedBeforeItsTurn(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{AcquireTimeout: 10 * time.Second, HeartbeatTimeout: time.Hour})
	d := b.add("d", 1)
	b.stage("old", Normal)
	b.stage("young", Normal)
	require.Equal(t, []string{"old"}, b.offers(d))
	require.NoError(t, b.Heartbeat(acc, Registration{ID: d, Draining: true}))
	p, err := b.Place(acc, "old")
	require.NoError(t, err)
	assert.Equal(t, 1, p.Number)
	require.NoError(t, b.Heartbeat(acc, Registration{ID: d}))
	assert.Equal(t, []string{"old"}, b.offers(d), "it is still the older one")
	b.stage("urgent", High)
	assert.Equal(t, []string{"old"}, b.offers(d), "an offer stays")
	b.advance(10 * time.Second)
	assert.Equal(t, []string{"urgent"}, b.offers(d))
}

// Rule Q4: the slot of a work that goes back is given away before the work itself. Tasks
// that end at the same time show it: they end in the order of their offers.
func TestASlotIsGivenAwayBeforeTheWorkThatLeftIt(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{AcquireTimeout: 10 * time.Second, HeartbeatTimeout: time.Hour})
	d := b.add("d", 1, "only")
	b.stage("old", Normal)
	other := b.add("other", 1)
	b.stage("urgent", High, "only")
	b.advance(10 * time.Second)
	require.Equal(t, []string{"urgent"}, b.offers(d))
	require.Equal(t, []string{"old"}, b.offers(other))
	b.acquire(other, "old")
	b.acquire(d, "urgent")
	b.Events()
	b.advance(time.Hour - 10*time.Second)
	assert.Equal(t, []string{"ended urgent TIMEOUT", "ended old TIMEOUT"}, b.happened()[:2])
}

// A delegate reports its capacity after it has registered. Offers that do not fit go
// back, the youngest first.
func TestALoweredCapacityTakesOffersBack(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	for _, id := range []string{"a", "b", "c", "d"} {
		b.stage(id, Normal)
	}
	b.single("t")
	d := b.Register(acc, Registration{Name: "d"})
	assert.Equal(t, []string{"a", "b", "c", "d", "t"}, b.offers(d))
	b.acquire(d, "d")
	require.NoError(t, b.SetCapacity(acc, d, 2))
	assert.Equal(t, []string{"a", "t"}, b.offers(d))
	require.NoError(t, b.SetCapacity(acc, d, 1))
	assert.Equal(t, []string{"t"}, b.offers(d), "an acquired stage stays")
	require.NoError(t, b.SetCapacity(acc, d, -1))
	assert.ElementsMatch(t, []string{"a", "b", "c", "t"}, b.offers(d))
}

// The last work that ended is remembered, even if all earlier ones must stay: the caller
// that aborted it asks for its result.
func TestTheLastEndedWorkIsRemembered(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{MaxFinished: 1, HeartbeatTimeout: time.Minute})
	d := b.add("d", 0)
	b.stage("s", Normal)
	b.acquire(d, "s")
	b.advance(time.Minute)
	require.NoError(t, b.AppendDetached(acc, "s", &task.Task{ID: "clean", Type: "cleanup"}))
	require.NoError(t, b.Release(acc, "s"))
	for _, id := range []string{"one", "two"} {
		b.single(id)
		require.NoError(t, b.Abort(acc, id, "because"))
		_, err := b.Task(acc, id)
		require.NoError(t, err)
	}
	_, err := b.Task(acc, "one")
	require.ErrorIs(t, err, ErrUnknownTask, "it is not the last one any more")
	_, err = b.Task(acc, "clean")
	require.NoError(t, err)
}

// A detached task waits for a lost delegate, and is forgotten with it.
func TestADetachedTaskWaitsForItsDelegate(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{HeartbeatTimeout: time.Minute, ForgetLost: time.Hour, Retention: time.Minute})
	d := b.add("d", 1)
	b.stage("s", Normal)
	b.acquire(d, "s")
	b.advance(time.Minute)
	require.NoError(t, b.AppendDetached(acc, "s", &task.Task{ID: "clean", Type: "cleanup"}))
	require.NoError(t, b.Append(acc, "s", &task.Task{ID: "step", Type: "execute"}))
	s, err := b.Task(acc, "step")
	require.NoError(t, err)
	assert.Equal(t, Abandoned, s.Result.Outcome)
	require.NoError(t, b.Release(acc, "s"))
	require.ErrorIs(t, b.Append(acc, "s", &task.Task{ID: "more", Type: "execute"}), ErrFinished)
	b.advance(30 * time.Minute)
	assert.Equal(t, []string{"clean"}, b.offers(d), "longer than the retention")
	b.advance(30 * time.Minute)
	_, err = b.List(acc, d, "")
	require.ErrorIs(t, err, ErrUnknownDelegate)
	b.advance(time.Minute)
	_, err = b.Task(acc, "clean")
	require.ErrorIs(t, err, ErrUnknownTask)
	_, ok := b.NextDeadline()
	assert.False(t, ok, "the queue is empty")
	assert.Empty(t, b.accounts[acc].tasks)
	assert.Empty(t, b.accounts[acc].works)
}

// An aborted task is not given out again. It ends after the grace, also without a
// time-out.
func TestAnAbortEndsAfterItsGrace(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{AbortGrace: 5 * time.Second})
	d := b.add("d", 0)
	require.NoError(t, b.Submit(acc, &Work{ID: "t", Variants: []Variant{{Task: &task.Task{ID: "t", Type: "custom"}}}}))
	b.acquire(d, "t")
	require.NoError(t, b.Abort(acc, "t", "because"))
	got, err := b.Acquire(acc, d, "t")
	require.NoError(t, err)
	assert.Nil(t, got)
	b.advance(5 * time.Second)
	s, err := b.Task(acc, "t")
	require.NoError(t, err)
	assert.Equal(t, Result{Outcome: Aborted, Error: "because"}, s.Result)
	assert.Equal(t, []string{"t"}, b.stops(d), "it has not answered yet")
	b.single("never answered")
	b.acquire(d, "never answered")
	require.NoError(t, b.Abort(acc, "never answered", ""))
	b.advance(5 * time.Second)
	require.Len(t, b.stops(d), 2)
	require.NoError(t, b.Complete(acc, d, "t", Answer{Outcome: Success, Code: task.OK}))
	assert.Equal(t, []string{"never answered"}, b.stops(d))
	b.now = b.now.Add(time.Hour)
	require.NoError(t, b.Heartbeat(acc, Registration{ID: d}))
	b.Tick(b.now)
	assert.Empty(t, b.stops(d), "forgotten tasks are not listed")
}

// A task of a delegate that cannot learn of an abort ends at once, so that the cleanup
// follows. The delegate answers it later, without effect.
func TestAnAbortDoesNotWaitForADelegateThatCannotLearnOfIt(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	d := b.add("d", 0)
	require.ErrorIs(t, b.SetUnaware(acc, "nobody", true), ErrUnknownDelegate)
	require.NoError(t, b.SetUnaware(acc, d, true))
	b.stage("s", Normal)
	b.acquire(d, "s")
	require.NoError(t, b.Complete(acc, d, "s", Answer{Running: true}))
	require.NoError(t, b.Abort(acc, "s", "because"))
	s, err := b.Task(acc, "s")
	require.NoError(t, err)
	assert.Equal(t, Result{Outcome: Aborted, Error: "because"}, s.Result)
	require.NoError(t, b.Append(acc, "s", one("cleanup", "cleanup")[0].Task))
	assert.Equal(t, []string{"cleanup"}, b.offers(d))
	require.NoError(t, b.Complete(acc, d, "s", Answer{Outcome: Success}))
	assert.Equal(t, []string{"cleanup"}, b.offers(d))

	require.NoError(t, b.SetUnaware(acc, d, false))
	b.acquire(d, "cleanup")
	require.NoError(t, b.Abort(acc, "cleanup", ""))
	s, err = b.Task(acc, "cleanup")
	require.NoError(t, err)
	assert.Empty(t, s.Result.Outcome, "the delegate has its grace")
}

// The RunTimeout of a stage begins with its last start: it does not run while the stage
// waits again.
func TestARetriedStageStartsItsTimeAnew(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{HeartbeatTimeout: time.Hour})
	d0 := b.add("d0", 1)
	require.NoError(t, b.Submit(acc, &Work{ID: "s", Stage: true, RunTimeout: time.Minute, Variants: one("s", "init")}))
	b.acquire(d0, "s")
	require.NoError(t, b.Complete(acc, d0, "s", Answer{Outcome: Failure, Retry: true, Code: task.RetryOnOtherDelegate}))
	p, err := b.Place(acc, "s")
	require.NoError(t, err)
	assert.Equal(t, Place{1, "every delegate that could take it has asked for another one: start another"}, p)
	b.Events()
	b.advance(time.Minute)
	assert.Empty(t, b.Events())
	d1 := b.add("d1", 1)
	b.acquire(d1, "s")
	b.complete(d1, "s")
	b.Events()
	b.advance(time.Minute)
	events := b.Events()
	require.Len(t, events, 1)
	assert.Equal(t, Expired, events[0].Kind)
}

// A delegate that is lost during a detached task keeps the task.
func TestADetachedTaskSurvivesAnotherLoss(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{HeartbeatTimeout: time.Minute})
	d := b.add("d", 1)
	b.stage("s", Normal)
	b.acquire(d, "s")
	b.advance(time.Minute)
	require.NoError(t, b.AppendDetached(acc, "s", &task.Task{ID: "clean", Type: "cleanup"}))
	require.NoError(t, b.Release(acc, "s"))
	require.NoError(t, b.Heartbeat(acc, Registration{ID: d}))
	b.acquire(d, "clean")
	b.advance(time.Minute)
	assert.Equal(t, Gone, b.Delegates(acc)[0].State)
	b.complete(d, "clean")
	s, err := b.Task(acc, "clean")
	require.NoError(t, err)
	assert.Equal(t, Success, s.Result.Outcome)
}

func TestMisuseIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	require.Error(t, b.Submit(acc, &Work{}))
	require.Error(t, b.Submit(acc, &Work{ID: "x", Variants: []Variant{{}}}))
	require.Error(t, b.Submit(acc, &Work{ID: "x", Variants: append(one("x", "a"), one("y", "b")...)}))
	b.stage("s", Normal)
	require.ErrorIs(t, b.Submit(acc, &Work{ID: "s", Variants: one("other", "a")}), ErrExists)
	require.ErrorIs(t, b.Submit(acc, &Work{ID: "other", Variants: one("s", "a")}), ErrExists)
	require.ErrorIs(t, b.Append(acc, "s", &task.Task{ID: "step"}), ErrUnknownDelegate, "it has no delegate yet")
	b.single("single")
	require.ErrorIs(t, b.Append(acc, "single", &task.Task{ID: "step"}), ErrFinished)
	require.ErrorIs(t, b.Append(acc, "none", &task.Task{ID: "step"}), ErrUnknownWork)
	require.Error(t, b.Release(acc, "s"), "its init has not ended")
	d := b.add("d", 1)
	require.ErrorIs(t, b.Append(acc, "s", &task.Task{ID: "s"}), ErrExists)
	require.ErrorIs(t, b.Abort(acc, "none", ""), ErrUnknownTask)
	require.ErrorIs(t, b.Complete(acc, d, "none", Answer{}), ErrUnknownTask)
	require.ErrorIs(t, b.Complete("none", d, "s", Answer{}), ErrUnknownTask)
	require.ErrorIs(t, b.Release(acc, "none"), ErrUnknownWork)
	_, err := b.Place(acc, "none")
	require.ErrorIs(t, err, ErrUnknownWork)
	assert.Empty(t, b.Delegates("none"))
	assert.Empty(t, b.Places("none"))
}

// Wake reports an earlier deadline to the caller.
func TestWakeReportsAnEarlierDeadline(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.add("d", 1)
	<-b.Wake()
	at, ok := b.NextDeadline()
	require.True(t, ok)
	assert.Equal(t, b.now.Add(time.Minute), at)
	b.stage("s", Normal) // must be acquired within 30 seconds
	<-b.Wake()
	at, _ = b.NextDeadline()
	assert.Equal(t, b.now.Add(30*time.Second), at)
	b.add("later", 1)
	select {
	case <-b.Wake():
		t.Error("a later deadline does not wake the caller")
	default:
	}
}

// Rule Q4: under contention every single task is given out once.
func TestConcurrentDelegatesShareTheWork(t *testing.T) {
	t.Parallel()
	q := New(Config{})
	const tasks, workers = 400, 8
	var had sync.Map
	var wg sync.WaitGroup
	for w := range workers {
		id := q.Register(acc, Registration{Name: fmt.Sprint("d", w)})
		wg.Go(func() {
			cursor := ""
			for {
				l, err := q.List(acc, id, cursor)
				if err != nil {
					return // unregistered: the test ends
				}
				cursor = l.Cursor
				for _, e := range l.Events {
					if got, _ := q.Acquire(acc, id, e.TaskID); got == nil {
						continue
					}
					if other, twice := had.LoadOrStore(e.TaskID, id); twice {
						t.Errorf("%s and %s have %s", other, id, e.TaskID)
					}
					if err := q.Complete(acc, id, e.TaskID, Answer{Outcome: Success, Code: task.OK}); err != nil {
						t.Error(err)
					}
				}
				<-l.Changed
			}
		})
	}
	for i := range tasks {
		id := fmt.Sprint("t", i)
		require.NoError(t, q.Submit(acc, &Work{ID: id, Variants: one(id, "custom")}))
	}
	for i := range tasks {
		s, err := q.Task(acc, fmt.Sprint("t", i))
		require.NoError(t, err)
		<-s.Done
	}
	for _, d := range q.Delegates(acc) {
		require.NoError(t, q.Unregister(acc, d.ID))
	}
	wg.Wait()
	ended := 0
	for _, e := range q.Events() {
		if e.Kind == Ended {
			ended++
		}
	}
	assert.Equal(t, tasks, ended)
}
