package queue

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// testAlarm has a deadline and nothing else.
type testAlarm struct {
	number int
	at     instant
	fire   func(now time.Time)
}

func (a *testAlarm) deadline() *instant           { return &a.at }
func (a *testAlarm) age() uint64                  { return uint64(a.number) } //nolint:gosec // small
func (a *testAlarm) expire(_ *Queue, now instant) { a.fire(now.time()) }

// Deadlines at the same time come in the order of age, in any order of their setting.
func TestTiesAreBrokenByAge(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(9, 9)) //nolint:gosec // the same each time
	for _, wait := range []time.Duration{time.Minute, 2 * time.Hour} {
		b := newBench(t, Config{})
		var got, want []int
		for i := range 100 {
			want = append(want, i)
		}
		at := moment(b.now.Add(wait))
		for _, i := range r.Perm(100) {
			b.arm(&testAlarm{number: i, fire: func(time.Time) { got = append(got, i) }}, at)
		}
		b.advance(wait)
		assert.Equal(t, want, got)
	}
}

// Deadlines that are set, moved and removed at random come at their times.
func TestDeadlinesComeInTime(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 5)) //nolint:gosec // the same each time
	b := newBench(t, Config{})
	start := b.now
	due := map[int]time.Time{}
	fired, step := 0, 0
	var alarms [300]*testAlarm
	for i := range alarms {
		alarms[i] = &testAlarm{number: i, fire: func(now time.Time) {
			fired++
			assert.False(t, now.Before(due[i]), "%d is early", step)
			delete(due, i)
		}}
	}
	for step = range 3000 {
		switch i := r.IntN(len(alarms)); r.IntN(4) {
		case 0:
			b.disarm(alarms[i])
			delete(due, i)
		case 1:
			b.now = b.now.Add(time.Duration(r.IntN(60)) * time.Second)
			b.Tick(b.now)
		default:
			due[i] = b.now.Add(time.Duration(1 + r.Int64N(int64(time.Hour))))
			b.arm(alarms[i], moment(due[i]))
		}
		at, ok := b.NextDeadline()
		require.Equal(t, len(due) > 0, ok)
		for _, d := range due {
			require.False(t, at.After(d), "the deadline is known")
			require.True(t, d.After(b.now), "it has come")
		}
	}
	require.Greater(t, fired, 100)
	require.Greater(t, b.now.Sub(start), time.Hour)
	for len(due) > 0 { // one Tick at each deadline is enough
		at, _ := b.NextDeadline()
		require.True(t, at.After(b.now), "a caller would spin")
		b.now = at
		b.Tick(b.now)
	}
	assert.Empty(t, b.timers.chunks)
}
