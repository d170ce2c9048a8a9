package redis_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/internal/journal"
	"github.com/delegate-io/dlite/manager/internal/journal/journaltest"
	"github.com/delegate-io/dlite/manager/redis"
)

func three(t *testing.T, open journaltest.Opener) []journaltest.Journal {
	t.Helper()
	var journals []journaltest.Journal
	for range 3 {
		journals = append(journals, journaltest.Open(t, open, func(c *journal.Config[journaltest.Command]) { c.CompactAfter = 20 << 10 }))
	}
	return journals
}

// Rules Q4 and Q7: Redis is killed at random moments and restarts with its append-only
// file. It has every acknowledged command, once and in its place.
func TestRedisIsKilled(t *testing.T) {
	t.Parallel()
	server := testbed.Redis(t)
	open := opener(t, server.URL())
	journals := three(t, open)
	hammer := journaltest.Strike(t, "x", 12, journals...)
	for range 5 {
		hammer.Await(t, 1+mathrand.IntN(200))
		server.Kill()
		server.Start(t)
	}
	hammer.Await(t, 100)
	hammer.Stop()
	hammer.NothingWrong(t)
	journaltest.Agree(t, append(journals, journaltest.Open(t, open))...)
	for _, j := range journals {
		j.Has(t, hammer.Acknowledged())
	}
}

// Rule Q4: Redis returns with an earlier state, as after a failover to a replica that
// was behind. All processes continue with the same state.
func TestRedisLosesTheEnd(t *testing.T) {
	t.Parallel()
	server := testbed.Redis(t)
	open := opener(t, server.URL())
	journals := three(t, open)
	strike := func(prefix string, n int) map[string]int {
		h := journaltest.Strike(t, prefix, 6, journals...)
		h.Await(t, n)
		h.Stop()
		h.NothingWrong(t)
		return h.Acknowledged()
	}
	kept := map[string]int{}
	for round := range 4 {
		maps.Copy(kept, strike(fmt.Sprint("kept", round), 100))
		journaltest.Agree(t, journals...)
		server.Kill()
		old := filepath.Join(t.TempDir(), "old")
		require.NoError(t, os.CopyFS(old, os.DirFS(server.Dir)))
		server.Start(t)
		strike(fmt.Sprint("lost", round), 1+mathrand.IntN(60))
		server.Kill()
		require.NoError(t, os.RemoveAll(server.Dir))
		require.NoError(t, os.CopyFS(server.Dir, os.DirFS(old)))
		server.Start(t)
		if round%2 == 0 {
			maps.Copy(kept, strike(fmt.Sprint("after", round), 1+mathrand.IntN(60)))
		}
		fresh := journaltest.Open(t, open)
		journaltest.Agree(t, append(journals, fresh)...)
		fresh.Has(t, kept)
		require.NoError(t, fresh.Close())
	}
}

// Rule Q4: the same without writes: each process detects the loss by itself.
func TestRedisLosesTheEndWithoutWrites(t *testing.T) {
	t.Parallel()
	server := testbed.Redis(t)
	open := opener(t, server.URL())
	a, b := journaltest.Open(t, open), journaltest.Open(t, open)
	a.Add(t, "kept")
	server.Kill()
	old := filepath.Join(t.TempDir(), "old")
	require.NoError(t, os.CopyFS(old, os.DirFS(server.Dir)))
	server.Start(t)
	a.Add(t, "lost")
	require.NoError(t, b.Sync(t.Context()))
	server.Kill()
	require.NoError(t, os.RemoveAll(server.Dir))
	require.NoError(t, os.CopyFS(server.Dir, os.DirFS(old)))
	server.Start(t)
	for _, j := range []journaltest.Journal{a, b} {
		require.Eventually(t, func() bool { return len(j.IDs()) == 1 }, time.Minute, time.Millisecond)
	}
	assert.Equal(t, 1, b.Add(t, "next").Place)
}

// Rule Q4: the network loses answers of successful requests.
func TestStoreWithLostAnswers(t *testing.T) {
	t.Parallel()
	server := testbed.Redis(t)
	proxy := newProxy(t, server.Address)
	journals := three(t, opener(t, "redis://"+proxy.address))
	proxy.drop(20)
	hammer := journaltest.Strike(t, "x", 12, journals...)
	hammer.Await(t, 1500)
	hammer.Stop()
	hammer.NothingWrong(t)
	assert.Positive(t, proxy.drop(0))
	journaltest.Agree(t, journals...)
	journals[0].Has(t, hammer.Acknowledged())
}

// proxy drops some of the answers and their connections.
type proxy struct {
	address string

	mu    sync.Mutex
	oneOf int
	cut   int
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{address: l.Addr().String()}
	var work sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		work.Wait()
	})
	work.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := new(net.Dialer).DialContext(t.Context(), "tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			work.Go(func() { p.pass(client, server, false) })
			work.Go(func() { p.pass(server, client, true) })
		}
	})
	return p
}

func (p *proxy) pass(from, to net.Conn, answers bool) {
	defer func() { _ = to.Close() }()
	defer func() { _ = from.Close() }()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if err != nil || answers && p.unlucky() {
			return
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

func (p *proxy) unlucky() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	cut := p.oneOf > 0 && mathrand.IntN(p.oneOf) == 0
	if cut {
		p.cut++
	}
	return cut
}

// drop makes the proxy drop one of oneOf answers; 0 means none. It returns the number
// of dropped answers.
func (p *proxy) drop(oneOf int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.oneOf = oneOf
	return p.cut
}

func client(t *testing.T, server *testbed.RedisServer) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: server.Address})
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// Redis may forget scripts at any time.
func TestScriptsAreFlushed(t *testing.T) {
	t.Parallel()
	server := testbed.Redis(t)
	j := journaltest.Open(t, opener(t, server.URL()))
	j.Add(t, "a")
	require.NoError(t, client(t, server).ScriptFlush(t.Context()).Err())
	j.Add(t, "b")
	require.NoError(t, j.Compact(t.Context()))
	assert.Equal(t, []string{"a", "b"}, j.IDs())
}

// If Redis is full, commands fail with that reason. They succeed again when there is
// memory.
func TestRedisIsFull(t *testing.T) {
	t.Parallel()
	server := testbed.Redis(t)
	c := client(t, server)
	j := journaltest.Open(t, opener(t, server.URL()))
	j.Add(t, "a")
	require.NoError(t, c.ConfigSet(t.Context(), "maxmemory", "1mb").Err())
	_, err := j.Do(t.Context(), journaltest.Command{ID: "b", Pad: make([]byte, 1<<20)})
	require.ErrorIs(t, err, journal.ErrUnavailable)
	require.ErrorContains(t, err, "redis is full")
	require.NoError(t, c.ConfigSet(t.Context(), "maxmemory", "0").Err())
	assert.Equal(t, 1, j.Add(t, "c").Place)
}

// An operator empties Redis. The journal writes nothing to the new log, and continues
// when the old log is back.
func TestTheJournalDoesNotWriteToAnotherLog(t *testing.T) {
	t.Parallel()
	server := testbed.Redis(t)
	open := opener(t, server.URL())
	j := journaltest.Open(t, open)
	j.Add(t, "a")
	server.Kill()
	old := filepath.Join(t.TempDir(), "old")
	require.NoError(t, os.CopyFS(old, os.DirFS(server.Dir)))
	server.Start(t)
	require.NoError(t, client(t, server).FlushAll(t.Context()).Err())
	gone := func() {
		_, err := j.Do(t.Context(), journaltest.Command{ID: "b"})
		require.ErrorIs(t, err, journal.ErrOtherLog)
		require.ErrorIs(t, err, journal.ErrUnavailable)
		require.ErrorIs(t, j.Sync(t.Context()), journal.ErrOtherLog)
	}
	gone()
	other := journaltest.Open(t, open)
	other.Add(t, "of another log")
	gone()
	require.NoError(t, other.Close())
	server.Kill()
	require.NoError(t, os.RemoveAll(server.Dir))
	require.NoError(t, os.CopyFS(server.Dir, os.DirFS(old)))
	server.Start(t)
	require.NoError(t, j.Sync(t.Context()))
	assert.Equal(t, 1, j.Add(t, "c").Place)
}

func TestSettingsThatEndangerTheLogAreLogged(t *testing.T) {
	t.Parallel()
	server := testbed.Redis(t, "--maxmemory-policy", "allkeys-lru", "--appendonly", "no")
	var logged bytes.Buffer
	log, err := redis.OpenStore(t.Context(), redis.Config{URL: server.URL(), Logger: zerolog.New(&logged)})
	require.NoError(t, err)
	assert.Contains(t, logged.String(), "allkeys-lru")
	assert.Contains(t, logged.String(), "appendonly")
	require.NoError(t, log.Close())

	logged.Reset()
	log, err = redis.OpenStore(t.Context(), redis.Config{URL: testbed.Redis(t).URL(), Logger: zerolog.New(&logged)})
	require.NoError(t, err)
	assert.Empty(t, logged.String())
	require.NoError(t, log.Close())
}

func TestOpenStoreRejects(t *testing.T) {
	t.Parallel()
	const password = "made-up"
	for url, cfg := range map[string]redis.Config{
		"neither URL nor Client": {},
		"the URL is not valid":   {URL: "http://:" + password + "@localhost"},
		"has a brace":            {URL: "redis://localhost", Prefix: "{a}"},
		"are for OpenStreams":    {URL: "redis://localhost", MaxTotal: 1},
	} {
		_, err := redis.OpenStore(t.Context(), cfg)
		require.ErrorContains(t, err, url)
		assert.NotContains(t, err.Error(), password)
	}
	_, err := redis.OpenStore(t.Context(), redis.Config{URL: "redis://127.0.0.1:1"})
	require.ErrorIs(t, err, journal.ErrRetry)
	_, err = redis.OpenStore(t.Context(), redis.Config{URL: "redis://" + sixth(t)})
	require.ErrorContains(t, err, "it must be 7 or later")
}

// sixth returns the address of a server that identifies itself as Redis 6.
func sixth(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var work sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		work.Wait()
	})
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer func() { _ = c.Close() }()
				b := make([]byte, 4<<10)
				for {
					n, err := c.Read(b)
					if err != nil {
						return
					}
					// All other commands are unknown.
					for range bytes.Count(b[:n], []byte("*")) {
						answer := "-ERR unknown\r\n"
						if bytes.Contains(b[:n], []byte("info")) {
							answer = "$22\r\nredis_version:6.2.14\r\n\r\n"
						}
						_, _ = c.Write([]byte(answer))
					}
				}
			})
		}
	})
	return l.Addr().String()
}

// The clock of the log is the clock of Redis, not of the process.
func TestTheTimeIsThatOfRedis(t *testing.T) {
	t.Parallel()
	server := testbed.Redis(t)
	open := opener(t, server.URL())
	right := journaltest.Open(t, open)
	wrong := journaltest.Open(t, open, func(c *journal.Config[journaltest.Command]) {
		c.Now = func() time.Time { return time.Now().Add(-time.Hour) }
	})
	a, b := right.Add(t, "a"), wrong.Add(t, "b")
	assert.False(t, b.At.Before(a.At))
	assert.WithinDuration(t, right.Now(), wrong.Now(), 10*time.Minute)
	assert.False(t, wrong.Now().Before(b.At))
}

// One process at a time may save the state. Another one may do so when that process has
// died.
func TestOneProcessSavesTheState(t *testing.T) {
	t.Parallel()
	server := testbed.Redis(t)
	cfg := redis.Config{URL: server.URL(), Prefix: rand.Text()}
	log, err := redis.OpenStore(t.Context(), cfg)
	require.NoError(t, err)
	defer func() { require.NoError(t, log.Close()) }()
	release, err := log.Lead(t.Context())
	require.NoError(t, err)
	_, err = log.Lead(t.Context())
	require.ErrorIs(t, err, journal.ErrBusy)
	ttl, err := client(t, server).PTTL(t.Context(), "{"+cfg.Prefix+"}:lead").Result()
	require.NoError(t, err)
	assert.Positive(t, ttl)
	release()
	release, err = log.Lead(t.Context())
	require.NoError(t, err)
	// Release after the lease must not delete the lock of another process.
	require.NoError(t, client(t, server).Set(t.Context(), "{"+cfg.Prefix+"}:lead", "another", 0).Err())
	release()
	_, err = log.Lead(t.Context())
	require.ErrorIs(t, err, journal.ErrBusy)
}

// Two logs with different earlier entries have different tokens, even if later entries
// are equal.
func TestATokenDependsOnAllPreviousEntries(t *testing.T) {
	t.Parallel()
	server := testbed.Redis(t)
	var tokens []string
	for _, first := range []string{"x", "y"} {
		log, err := opener(t, server.URL())()
		require.NoError(t, err)
		_, err = log.SetHeader(t.Context(), journal.Header{}, journal.Header{ID: "log", Body: []byte("b")})
		require.NoError(t, err)
		for _, origin := range []string{first, "a"} {
			e, err := log.Append(t.Context(), "log", journal.Batch{Origin: origin, Counter: 1})
			require.NoError(t, err)
			tokens = append(tokens, e.Token)
		}
		require.NoError(t, log.Close())
	}
	assert.NotEqual(t, tokens[1], tokens[3])
}

// Commit refuses a state that contains entries that the log has lost.
func TestAStateWithLostEntriesIsNotSaved(t *testing.T) {
	t.Parallel()
	log, err := opener(t, testbed.Redis(t).URL())()
	require.NoError(t, err)
	defer func() { require.NoError(t, log.Close()) }()
	_, err = log.SetHeader(t.Context(), journal.Header{}, journal.Header{ID: "log", Body: []byte("b")})
	require.NoError(t, err)
	e, err := log.Append(t.Context(), "log", journal.Batch{Origin: "a", Counter: 1})
	require.NoError(t, err)
	require.NoError(t, log.PutChunk(t.Context(), "s", 0, []byte("b")))
	s := journal.Snapshot{ID: "s", Position: e.Position, At: e.At, Saved: e.At, Chunks: 1}
	s.Token = "another"
	require.ErrorIs(t, log.Commit(t.Context(), s), journal.ErrMoved)
	s.Position, s.Chunks = e.Position, 2
	require.ErrorIs(t, log.Commit(t.Context(), s), journal.ErrMoved, "a part is missing")
	s.Chunks = 1
	require.NoError(t, log.Commit(t.Context(), s))
}

// A Redis that accepts connections too slowly counts as unavailable: callers wait and
// retry. The network error looks like the end of a context.
func TestASlowConnectionIsRetried(t *testing.T) {
	t.Parallel()
	_, err := redis.OpenStore(t.Context(), redis.Config{Client: func() goredis.UniversalClient {
		return goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1", DialTimeout: time.Nanosecond, MaxRetries: -1})
	}})
	require.ErrorIs(t, err, journal.ErrRetry)
}
