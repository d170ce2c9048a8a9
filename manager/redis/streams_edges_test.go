package redis_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/internal/livelog"
	"github.com/delegate-io/dlite/manager/logservice"
	"github.com/delegate-io/dlite/manager/redis"
)

// admin returns a plain client.
func admin(t testing.TB, r *testbed.RedisServer) *goredis.Client {
	c := goredis.NewClient(&goredis.Options{Addr: r.Address})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func batch(writer string, pos int64, texts ...string) livelog.Batch {
	b := livelog.Batch{Writer: writer, MaxStream: 1 << 40}
	for i, text := range texts {
		b.Lines = append(b.Lines, livelog.Line{Raw: []byte(`"` + text + `"`), Pos: pos + int64(i)})
	}
	return b
}

// texts returns the lines of a stream.
func texts(t testing.TB, s *redis.Streams, id livelog.ID) (out []string) {
	st, err := s.State(t.Context(), id)
	require.NoError(t, err)
	lines, err := s.Read(t.Context(), id, st.Run, 0)
	require.NoError(t, err)
	for _, l := range lines {
		out = append(out, strings.Trim(string(l.Raw), `"`))
	}
	return out
}

func TestLimitsOfRedis(t *testing.T) {
	t.Parallel()
	s := openStreams(t, testbed.Redis(t), redis.Config{MaxStream: 10_000, MaxTotal: 34_000})
	long := strings.Repeat("x", 8000)
	key := func(i int) livelog.ID { return livelog.ID{Account: "acc", Key: fmt.Sprint(i)} }
	require.NoError(t, s.Append(t.Context(), key(1), batch("", 0, long)))
	err := s.Append(t.Context(), key(1), batch("", 1, long))
	require.ErrorIs(t, err, livelog.ErrTooLong)
	require.ErrorContains(t, err, "10000")
	require.NoError(t, s.Append(t.Context(), key(2), batch("", 0, long)))
	require.ErrorIs(t, s.Append(t.Context(), key(3), batch("", 0, long, "y")), livelog.ErrFull)
	_, err = s.State(t.Context(), key(3))
	require.ErrorIs(t, err, livelog.ErrUnknown)
	require.NoError(t, s.Start(t.Context(), key(4), "w"))
	st, err := s.State(t.Context(), key(1))
	require.NoError(t, err)
	require.NoError(t, s.Remove(t.Context(), key(1), st.Run))
	require.NoError(t, s.Append(t.Context(), key(3), batch("", 0, long)))
}

// If Redis has no memory left, it accepts no lines and keeps its data.
func TestAFullRedisReportsIt(t *testing.T) {
	t.Parallel()
	r := testbed.Redis(t, "--maxmemory", "6mb", "--maxmemory-policy", "noeviction")
	s := openStreams(t, r, redis.Config{})
	line := strings.Repeat("x", 50_000)
	n := int64(0)
	var err error
	for ; err == nil; n++ {
		require.Less(t, n, int64(200))
		err = s.Append(t.Context(), id, batch("w", n, fmt.Sprint(n, line)))
	}
	require.ErrorIs(t, err, livelog.ErrFull)
	st, err := s.State(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, n-1, st.Lines)
	require.NoError(t, admin(t, r).ConfigSet(t.Context(), "maxmemory", "0").Err())
	require.NoError(t, s.Append(t.Context(), id, batch("w", n-1, "again")))
}

// If there is no room, the service removes archived streams early.
func TestArchivedStreamsFreeMemory(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Redis(t), 2, redis.Config{MaxTotal: 45_000}, nil)
	long := strings.Repeat("x", 15_000)
	ok(t, "PUT", f.http[0].URL+"/stream"+query, put(0, long))
	const other = "?accountID=acc&key=other"
	status, answer, _ := send(t, "PUT", f.http[1].URL+"/stream"+other, put(0, long))
	assert.Equal(t, 507, status, "the open one stays")
	assert.Contains(t, answer, "no space")
	ok(t, "DELETE", f.http[1].URL+"/stream"+query, "") // triggers the background work
	whenArchived(t, f.streams[1])
	ok(t, "PUT", f.http[1].URL+"/stream"+other, put(0, long))
	assert.Equal(t, long, text(t, ok(t, "GET", f.http[0].URL+"/blob"+query, "")))
}

func TestARemovedStreamLeavesNothing(t *testing.T) {
	t.Parallel()
	r := testbed.Redis(t)
	s := openStreams(t, r, redis.Config{})
	require.NoError(t, s.Start(t.Context(), id, "w"))
	require.NoError(t, s.Append(t.Context(), id, batch("w", 0, "a")))
	_, release, err := s.Claim(t.Context(), id)
	require.NoError(t, err)
	release()
	st, err := s.State(t.Context(), id)
	require.NoError(t, err)
	require.NoError(t, s.Remove(t.Context(), id, st.Run))
	keys, err := admin(t, r).Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	slices.Sort(keys)
	require.Len(t, keys, 3, "%q", keys)
	assert.Regexp(t, `^dlite:logs:\{0\}:v$`, keys[0])
	assert.Regexp(t, `^dlite:logs:\{\d+\}:c$`, keys[1])
	assert.Regexp(t, `^dlite:logs:\{\d+\}:t$`, keys[2])
}

func TestScriptsThatRedisLostAreSentAgain(t *testing.T) {
	t.Parallel()
	r := testbed.Redis(t)
	s := openStreams(t, r, redis.Config{})
	for i := range int64(3) {
		require.NoError(t, s.Append(t.Context(), id, batch("w", i, fmt.Sprint(i))))
		require.NoError(t, admin(t, r).ScriptFlush(t.Context()).Err())
	}
	assert.Equal(t, []string{"0", "1", "2"}, texts(t, s, id))
}

func TestOpenStreamsRejects(t *testing.T) {
	t.Parallel()
	r := testbed.Redis(t)
	_, err := redis.OpenStreams(t.Context(), redis.Config{})
	require.ErrorContains(t, err, "URL")
	_, err = redis.OpenStreams(t.Context(), redis.Config{URL: "http://user:fake-password@127.0.0.1"})
	require.ErrorContains(t, err, "redis://")
	assert.NotContains(t, err.Error(), "fake-password")
	require.NoError(t, admin(t, r).Set(t.Context(), "p:{0}:v", 2, 0).Err())
	_, err = redis.OpenStreams(t.Context(), redis.Config{URL: r.URL(), Prefix: "p:"})
	require.ErrorContains(t, err, "newer than this program")
	_, err = logservice.New(logservice.Config{
		Authorize: logservice.Tokens(nil), Streams: openStreams(t, r, redis.Config{}), Archive: bucket(t.TempDir()),
	})
	require.ErrorContains(t, err, "Key")
	r.Kill()
	_, err = redis.OpenStreams(t.Context(), redis.Config{URL: r.URL()})
	require.Error(t, err)
}

// A claim lasts while its holder renews it. It ends when another process has it.
func TestAClaimLastsWhileItsHolderRenewsIt(t *testing.T) {
	t.Parallel()
	r := testbed.Redis(t)
	s := openStreams(t, r, redis.Config{Lease: 400 * time.Millisecond})
	held, release, err := s.Claim(t.Context(), id)
	require.NoError(t, err)
	for range 8 {
		<-time.After(100 * time.Millisecond) // twice the lease by the clock of Redis
		_, _, err = s.Claim(t.Context(), id)
		require.ErrorIs(t, err, livelog.ErrClaimed)
	}
	require.NoError(t, held.Err())
	release()
	require.Error(t, held.Err())
	held, release, err = s.Claim(t.Context(), id)
	require.NoError(t, err)
	claims, err := admin(t, r).Keys(t.Context(), "*:x:*").Result()
	require.NoError(t, err)
	require.Len(t, claims, 1)
	require.NoError(t, admin(t, r).Set(t.Context(), claims[0], "another process", time.Hour).Err())
	<-held.Done()
	release()
	n, err := admin(t, r).Exists(t.Context(), claims...).Result()
	require.NoError(t, err)
	assert.EqualValues(t, 1, n, "the claim of the other process stays")
	require.NoError(t, admin(t, r).Del(t.Context(), claims...).Err())
	held, release, err = s.Claim(t.Context(), id)
	require.NoError(t, err)
	r.Kill()
	<-held.Done() // the claim cannot be renewed
	release()
}

// Each process knows the totals of all processes without a request.
func TestUsageCountsAllProcesses(t *testing.T) {
	t.Parallel()
	r := testbed.Redis(t)
	a, b := openStreams(t, r, redis.Config{}), openStreams(t, r, redis.Config{})
	require.NoError(t, a.Append(t.Context(), id, batch("w", 0, "a")))
	want, _ := a.Usage(id.Account)
	require.Eventually(t, func() bool { // a new connection wakes watchers too
		own, all := b.Usage(id.Account)
		return own == want && all == want
	}, 10*time.Second, time.Millisecond)
	c := openStreams(t, r, redis.Config{})
	own, all := c.Usage(id.Account)
	assert.Equal(t, want, own)
	assert.Equal(t, want, all)
}

// cutter forwards connections to Redis. It can close a connection instead of forwarding
// an answer.
type cutter struct {
	net.Listener
	to    string
	armed atomic.Bool
	cuts  atomic.Int64
	work  sync.WaitGroup
}

func (c *cutter) serve() {
	for {
		near, err := c.Accept()
		if err != nil {
			return
		}
		far, err := new(net.Dialer).Dial("tcp", c.to)
		if err != nil {
			_ = near.Close()
			continue
		}
		var cut atomic.Bool
		pass := func(dst, src net.Conn, inspect func([]byte) bool) {
			defer func() { _ = src.Close(); _ = dst.Close() }()
			buf := make([]byte, 64<<10)
			for {
				n, err := src.Read(buf)
				if n > 0 && !inspect(buf[:n]) {
					return
				}
				if n > 0 {
					_, err = dst.Write(buf[:n])
				}
				if err != nil {
					return
				}
			}
		}
		c.work.Go(func() {
			pass(far, near, func(b []byte) bool {
				if bytes.Contains(b, []byte("evalsha")) && c.armed.CompareAndSwap(true, false) {
					cut.Store(true)
				}
				return true
			})
		})
		c.work.Go(func() {
			pass(near, far, func([]byte) bool {
				if cut.Load() {
					c.cuts.Add(1)
				}
				return !cut.Load()
			})
		})
	}
}

// A lost answer must not repeat an operation, for writers with and without a name.
func TestStreamsWithLostAnswers(t *testing.T) {
	t.Parallel()
	r := testbed.Redis(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it needs none
	require.NoError(t, err)
	c := &cutter{Listener: l, to: r.Address}
	c.work.Go(c.serve)
	s, err := redis.OpenStreams(t.Context(), redis.Config{URL: "redis://" + l.Addr().String()})
	require.NoError(t, err)
	defer func() {
		assert.NoError(t, s.Close())
		_ = l.Close()
		c.work.Wait()
	}()
	require.NoError(t, s.Start(t.Context(), id, "w"))
	// Redis now has the scripts, so the client sends only their hashes.
	require.NoError(t, s.Append(t.Context(), id, batch("w", 0, "a")))
	require.NoError(t, s.Append(t.Context(), id, batch("", 0, "b")))
	c.armed.Store(true)
	require.NoError(t, s.Append(t.Context(), id, batch("w", 1, "c")))
	c.armed.Store(true)
	require.NoError(t, s.Append(t.Context(), id, batch("", 0, "d")))
	c.armed.Store(true)
	require.NoError(t, s.Append(t.Context(), id, batch("", 0, "d")))
	assert.Equal(t, []string{"a", "b", "c", "d", "d"}, texts(t, s, id))
	_, release, err := s.Claim(t.Context(), id)
	require.NoError(t, err)
	release()
	st, err := s.State(t.Context(), id)
	require.NoError(t, err)
	c.armed.Store(true)
	require.NoError(t, s.Finish(t.Context(), id, false))
	c.armed.Store(true)
	require.NoError(t, s.Remove(t.Context(), id, st.Run))
	own, all := s.Usage(id.Account)
	assert.Zero(t, own)
	assert.Zero(t, all)
	assert.EqualValues(t, 5, c.cuts.Load())
	if _, err := s.State(t.Context(), id); !errors.Is(err, livelog.ErrUnknown) {
		t.Error(err)
	}
}

// Lines of any length and number are returned unchanged.
func TestLongLines(t *testing.T) {
	t.Parallel()
	s := openStreams(t, testbed.Redis(t), redis.Config{})
	var want []string
	b := livelog.Batch{Writer: "w", MaxStream: 1 << 40}
	for i, size := range []int{0, 1, 65_535, 65_536, 65_537, 3_000_000, 10, 0, 300_000, 20} {
		want = append(want, strings.Repeat(string(rune('a'+i)), size))
		b.Lines = append(b.Lines, batch("w", int64(i), want[i]).Lines...)
	}
	require.NoError(t, s.Append(t.Context(), id, b))
	st, err := s.State(t.Context(), id)
	require.NoError(t, err)
	for from := range want {
		var got []string
		for next := int64(from); next < st.Lines; {
			lines, err := s.Read(t.Context(), id, st.Run, next)
			require.NoError(t, err)
			require.NotEmpty(t, lines)
			for _, l := range lines {
				require.Equal(t, next, l.Pos)
				next++
				got = append(got, strings.Trim(string(l.Raw), `"`))
			}
		}
		require.True(t, slices.Equal(want[from:], got), "from %d", from)
	}
}

// Each run has a new number, even if the clock of Redis was set back.
func TestRunsHaveDistinctNumbers(t *testing.T) {
	t.Parallel()
	r := testbed.Redis(t)
	s := openStreams(t, r, redis.Config{})
	const later = 8_000_000_000_000_000 // an earlier time of the clock
	run := func() int64 {
		require.NoError(t, s.Start(t.Context(), id, ""))
		st, err := s.State(t.Context(), id)
		require.NoError(t, err)
		require.NoError(t, s.Remove(t.Context(), id, st.Run))
		return st.Run
	}
	assert.Less(t, run(), int64(later))
	keys, err := admin(t, r).Keys(t.Context(), "*:t").Result()
	require.NoError(t, err)
	require.Len(t, keys, 1)
	require.NoError(t, admin(t, r).HSet(t.Context(), keys[0], "run", later).Err())
	assert.EqualValues(t, later+1, run())
}
