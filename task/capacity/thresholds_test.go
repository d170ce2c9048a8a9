package capacity_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
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
func TestHostLoadMeasuresThisMachine(t *testing.T) {
	t.Parallel()
	for range 2 {
		load, err := capacity.HostLoad(t.Context())
		require.NoError(t, err)
		assert.True(t, load.CPU >= 0 && load.CPU <= 100, "CPU %v", load.CPU)
		assert.True(t, load.Memory > 0 && load.Memory < 100, "memory %v", load.Memory)
	}
	limits := capacity.Thresholds{CPU: capacity.DefaultThreshold, Memory: 0.001}
	reason, problem := limits.Exceeded(t.Context())
	assert.NoError(t, problem)
	assert.Error(t, reason, "every machine uses some memory")
}
