package capacity_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegate-io/dlite/task/capacity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func measured(cpu, memory float64) func(context.Context) (capacity.Load, error) {
	return func(context.Context) (capacity.Load, error) { return capacity.Load{CPU: cpu, Memory: memory}, nil }
}

// Rule P6.
func TestExceededNamesTheLoadAboveItsThreshold(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		limits capacity.Load
		load   capacity.Load
		want   string
	}{
		"both below":       {capacity.Load{CPU: 80, Memory: 80}, capacity.Load{CPU: 10, Memory: 20}, ""},
		"exactly at it":    {capacity.Load{CPU: 80, Memory: 80}, capacity.Load{CPU: 80, Memory: 80}, ""},
		"CPU above":        {capacity.Load{CPU: 80, Memory: 80}, capacity.Load{CPU: 93.2, Memory: 1}, "CPU is at 93 %, the threshold is 80 %"},
		"memory above":     {capacity.Load{CPU: 80, Memory: 80}, capacity.Load{CPU: 1, Memory: 99}, "memory is at 99 %, the threshold is 80 %"},
		"CPU not checked":  {capacity.Load{Memory: 80}, capacity.Load{CPU: 100, Memory: 1}, ""},
		"memory unchecked": {capacity.Load{CPU: 80}, capacity.Load{CPU: 1, Memory: 100}, ""},
	} {
		limits := capacity.Thresholds{CPU: tc.limits.CPU, Memory: tc.limits.Memory, Measure: measured(tc.load.CPU, tc.load.Memory)}
		reason, problem := limits.Exceeded(t.Context())
		assert.NoError(t, problem, name)
		if tc.want == "" {
			assert.NoError(t, reason, name)
		} else {
			assert.EqualError(t, reason, tc.want, name)
		}
	}
}

// Rule P6: thresholds are off by default, and then nothing is measured.
func TestWithoutThresholdsNothingIsMeasured(t *testing.T) {
	t.Parallel()
	var none *capacity.Thresholds
	for _, limits := range []*capacity.Thresholds{none, {}, {Measure: func(context.Context) (capacity.Load, error) {
		t.Error("measured")
		return capacity.Load{}, nil
	}}} {
		reason, problem := limits.Exceeded(t.Context())
		assert.NoError(t, reason)
		assert.NoError(t, problem)
	}
}

// Rule P6: if the host cannot be measured, stages are accepted and the caller gets
// the error.
func TestAHostThatCannotBeMeasuredRefusesNothing(t *testing.T) {
	t.Parallel()
	broken := errors.New("no /proc")
	limits := capacity.Thresholds{CPU: 1, Measure: func(context.Context) (capacity.Load, error) {
		return capacity.Load{CPU: 100}, broken
	}}
	for range 2 {
		reason, problem := limits.Exceeded(t.Context())
		assert.NoError(t, reason)
		assert.ErrorIs(t, problem, broken)
	}
}

func TestAMeasurementIsReusedUntilItIsTooOld(t *testing.T) {
	t.Parallel()
	for every, age := range map[time.Duration]time.Duration{0: time.Second, time.Minute: time.Minute} {
		now, count := time.Unix(1_700_000_000, 0), 0
		limits := capacity.Thresholds{CPU: 80, Measure: func(context.Context) (capacity.Load, error) {
			count++
			return capacity.Load{CPU: []float64{0, 90, 10}[count]}, nil
		}}
		limits.SetClock(func() time.Time { return now }, every)
		exceeded := func() bool {
			reason, problem := limits.Exceeded(t.Context())
			require.NoError(t, problem)
			return reason != nil
		}
		assert.True(t, exceeded())
		now = now.Add(age - 1)
		assert.True(t, exceeded())
		assert.Equal(t, 1, count, "the measurement is not too old")
		now = now.Add(1)
		assert.False(t, exceeded())
		assert.Equal(t, 2, count)
	}
}

// A measurement that its caller cancelled is not reused for other callers.
func TestACancelledMeasurementIsNotReused(t *testing.T) {
	t.Parallel()
	limits := capacity.Thresholds{CPU: 80, Measure: func(ctx context.Context) (capacity.Load, error) {
		return capacity.Load{CPU: 95}, ctx.Err()
	}}
	limits.SetClock(nil, time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	reason, problem := limits.Exceeded(ctx)
	assert.NoError(t, reason)
	assert.ErrorIs(t, problem, context.Canceled)

	reason, problem = limits.Exceeded(t.Context())
	assert.Error(t, reason)
	assert.NoError(t, problem)
}

// Concurrent callers share one measurement.
func TestThresholdsAreSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	var count atomic.Int32
	limits := capacity.Thresholds{Memory: 80, Measure: func(context.Context) (capacity.Load, error) {
		count.Add(1)
		return capacity.Load{Memory: 90}, nil
	}}
	limits.SetClock(nil, time.Hour)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			reason, problem := limits.Exceeded(t.Context())
			assert.Error(t, reason)
			assert.NoError(t, problem)
		})
	}
	wg.Wait()
	assert.EqualValues(t, 1, count.Load())
}

// Rule P6, on this machine.
func TestThresholdsMeasureThisMachine(t *testing.T) {
	t.Parallel()
	limits := capacity.Thresholds{CPU: 100, Memory: 0.001}
	reason, problem := limits.Exceeded(t.Context())
	require.NoError(t, problem)
	require.ErrorContains(t, reason, "memory is at", "every machine uses some memory, and no CPU is over 100 %")
}

// Rule P6: the CPU load is the average of the last 5 seconds. Another delegate in the process that
// asks in between does not change it.
func TestTheCPULoadIsAnAverage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		// Busy for 10 seconds, then idle.
		counters := func() (busy, total float64) {
			total = time.Since(start).Seconds()
			return min(total, 10), total
		}
		ctx, cancel := context.WithCancel(t.Context())
		var delegates [2]capacity.Thresholds
		for i := range delegates {
			delegates[i].CPU = 50
			delegates[i].SetCPU(counters)
			go delegates[i].Watch(ctx)
		}
		exceeded := func(after time.Duration) (got [2]bool) {
			<-time.After(time.Until(start.Add(after)))
			synctest.Wait()
			for i := range delegates {
				reason, problem := delegates[i].Exceeded(ctx)
				require.NoError(t, problem)
				got[i] = reason != nil
			}
			return got
		}
		assert.Equal(t, [2]bool{true, true}, exceeded(0), "a tenth of a second is enough for the first answer")
		assert.Equal(t, [2]bool{true, true}, exceeded(8*time.Second))
		assert.Equal(t, [2]bool{true, true}, exceeded(12*time.Second), "3 of 5 seconds were busy")
		assert.Equal(t, [2]bool{}, exceeded(13*time.Second), "2 of 5 seconds were busy")
		cancel()

		// Without Watch, the average is over the time since the last question, or over a tenth of a second.
		alone := capacity.Thresholds{CPU: 50}
		alone.SetCPU(counters)
		reason, problem := alone.Exceeded(t.Context())
		require.NoError(t, problem)
		require.NoError(t, reason, "the machine is idle now")
		assert.Equal(t, 13*time.Second+100*time.Millisecond, time.Since(start))
	})
}
