package poller_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
)

// L3: Health has the turns of the loops and the last contact with the manager.
func TestHealthFollowsTheLoops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s script
		p, stop, over := s.polling(t, router.RouteMap{})
		for range 3 {
			<-time.After(10 * time.Second) // the bubble's clock
			synctest.Wait()
			h := p.Health()
			assert.True(t, h.Polling)
			assert.False(t, h.Draining)
			assert.False(t, h.Lost)
			assert.Equal(t, 10*time.Second, h.HeartbeatEvery)
			assert.Less(t, time.Since(h.HeartbeatTurn), time.Second)
			assert.Less(t, time.Since(h.Contact), time.Second)
			assert.Less(t, time.Since(h.PollTurn), 2*time.Second)
		}
		stop()
		require.NoError(t, <-over)
		assert.False(t, p.Health().Polling)
	})
}

// L3: a poll that does not return stops only the turns of the poll loop.
func TestHealthTellsTheLoopsApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := script{onPoll: func(ctx context.Context, _ client.PollQuery) (*client.Pending, error) {
			<-ctx.Done()
			return nil, &client.Error{Err: ctx.Err()}
		}}
		p, stop, over := s.polling(t, router.RouteMap{})
		<-time.After(time.Minute) // the bubble's clock
		synctest.Wait()
		h := p.Health()
		assert.Less(t, time.Since(h.HeartbeatTurn), time.Second)
		assert.GreaterOrEqual(t, time.Since(h.PollTurn), time.Minute)
		stop()
		require.NoError(t, <-over)
	})
}

// L3, P5: a drain shows at once, while tasks still run.
func TestHealthShowsADrainAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := script{onPoll: lists(task.Event{TaskID: "t", TaskType: "slow"})}
		p, _, over := s.polling(t, router.RouteMap{"slow": task.HandlerFunc(
			func(context.Context, *task.Request[any]) (any, error) {
				<-release
				return nil, nil
			})})
		assert.False(t, p.Health().Draining)
		shut := make(chan error, 1)
		go func() { shut <- p.Shutdown(t.Context()) }()
		synctest.Wait()
		h := p.Health()
		assert.True(t, h.Draining)
		assert.True(t, h.Polling)
		close(release)
		require.NoError(t, <-shut)
		require.NoError(t, <-over)
	})
}

// L3, C4: a delegate that its manager has forgotten is lost until it has
// registered again.
func TestHealthShowsALostDelegate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		known := make(chan struct{})
		s := script{
			onPoll: func(context.Context, client.PollQuery) (*client.Pending, error) {
				select {
				case <-known:
					return &client.Pending{}, nil
				default:
					return nil, &client.Error{Status: 404}
				}
			},
			onRegister: func() error {
				select {
				case <-known:
					return nil
				default:
					return &client.Error{Status: 503}
				}
			},
		}
		p, stop, over := s.polling(t, router.RouteMap{})
		<-time.After(5 * time.Minute) // the bubble's clock
		synctest.Wait()
		h := p.Health()
		assert.True(t, h.Lost)
		assert.Less(t, time.Since(h.PollTurn), time.Minute, "it backs off, which is a turn")
		close(known)
		<-time.After(time.Minute) // the bubble's clock
		synctest.Wait()
		assert.False(t, p.Health().Lost)
		stop()
		require.NoError(t, <-over)
	})
}
