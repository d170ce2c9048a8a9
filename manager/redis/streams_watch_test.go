package redis

import (
	"fmt"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/internal/livelog"
)

func heard(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Watches of logs that never appear must not fill the memory.
func TestWatchersAreBounded(t *testing.T) {
	t.Parallel()
	s := &Streams{}
	first := s.Watch(livelog.ID{Account: "acc", Key: "first"})
	for i := range maxWatched - 1 {
		s.Watch(livelog.ID{Account: "acc", Key: fmt.Sprint(i)})
	}
	assert.False(t, heard(first))
	s.Watch(livelog.ID{Account: "acc", Key: "one more watch"})
	assert.True(t, heard(first), "it asks again")
	assert.Len(t, s.watchers.wait, 1)
}

// After a long interruption, a process may find more news than one answer holds. Some
// news may be trimmed, so all watchers wake.
func TestAWatcherThatMissesNewsIsWoken(t *testing.T) {
	t.Parallel()
	s := &Streams{}
	c := s.Watch(livelog.ID{Account: "acc", Key: "log"})
	var news []goredis.XMessage
	for i := range newsPage {
		news = append(news, goredis.XMessage{ID: fmt.Sprint(i, "-0"), Values: map[string]any{"id": "other"}})
	}
	l := listener{}
	s.forwardNews(&l, news[:newsPage-1])
	assert.False(t, heard(c))
	s.forwardNews(&l, news)
	assert.True(t, heard(c))
	assert.Equal(t, news[newsPage-1].ID, l.last)
}

// News may arrive after the answer to a later call.
func TestOlderUsageIsIgnored(t *testing.T) {
	t.Parallel()
	s := &Streams{}
	s.count(3, []string{"2", "500", "7", "acc", "2", "400"})
	s.count(3, []string{"1", "200", "6", "acc", "1", "100"})
	own, all := s.Usage("acc")
	assert.Equal(t, livelog.Usage{Logs: 2, Size: 500}, all)
	assert.Equal(t, livelog.Usage{Logs: 2, Size: 400}, own)
}

// A concurrent call of Usage must not see a partial recount.
func TestIncompleteRecountsAreNotVisible(t *testing.T) {
	t.Parallel()
	s, err := OpenStreams(t.Context(), Config{URL: testbed.Redis(t).URL()})
	require.NoError(t, err)
	defer func() { assert.NoError(t, s.Close()) }()
	for i := range 3 {
		require.NoError(t, s.Start(t.Context(), livelog.ID{Account: "acc", Key: fmt.Sprint(i)}, ""))
	}
	counted := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < 300 && err == nil; i++ {
			err = s.recount(t.Context())
		}
		counted <- err
	}()
	for {
		own, all := s.Usage("acc")
		require.Equal(t, 3, own.Logs)
		require.Equal(t, 3, all.Logs)
		select {
		case err := <-counted:
			require.NoError(t, err)
			return
		default:
		}
	}
}
