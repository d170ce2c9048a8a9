package supervise_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/internal/supervise"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Lines are split at the length, empty ones are left out, and the ones above the limit are counted.
func TestLines(t *testing.T) {
	t.Parallel()
	var got []string
	dropped := 0
	l := &supervise.Lines{
		Longest: 4, Each: 5, Period: time.Hour,
		Line: func(b []byte) { got = append(got, string(b)) }, Dropped: func(n int) { dropped += n },
	}
	for _, part := range []string{"a", "b\r\n\n", "12345678", "9\nx\ny\nz\nlast"} {
		n, err := l.Write([]byte(part))
		assert.NoError(t, err)
		assert.Equal(t, len(part), n)
	}
	l.Flush()
	assert.Equal(t, []string{"ab", "1234", "5678", "9", "x"}, got)
	assert.Equal(t, 3, dropped)
}

// instance ends when it is told to.
type instance struct {
	end     chan struct{}
	stopped *[]string
}

func (i instance) Exited() <-chan struct{} { return i.end }
func (i instance) Stop(time.Duration) string {
	*i.stopped = append(*i.stopped, "stop")
	return "exit status 1"
}

// An instance that cannot be started, ends, or is not healthy is followed by another one. At the end the last one is
// stopped.
func TestInstancesFollowEachOther(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	var stops, told []string
	started, sick := 0, false
	s := &supervise.Supervisor{
		Name: "it", HealthInterval: time.Millisecond, HealthFailures: 2, StartTimeout: time.Minute,
		Pause: time.Millisecond, MaxPause: 2 * time.Millisecond, Grace: time.Second,
		Start: func(context.Context) (supervise.Instance, error) {
			if started++; started == 1 {
				return nil, errors.New("no program")
			}
			sick = false
			i := instance{make(chan struct{}), &stops}
			if started == 2 {
				close(i.end)
			}
			return i, nil
		},
		Check: func(context.Context) error {
			switch {
			case started == 2 || sick:
				return errors.New("sick")
			case started == 3:
				sick = true
			}
			return nil
		},
		Changed: func(healthy bool, why error) {
			if healthy {
				told = append(told, "healthy")
				if started == 4 {
					cancel()
				}
				return
			}
			told = append(told, why.Error())
		},
	}
	s.Run(ctx)
	text := strings.Join(told, "; ")
	assert.Contains(t, text, "start: no program; it ended by itself: exit status 1; healthy; it is not healthy: sick")
	assert.Len(t, stops, 3)
}
