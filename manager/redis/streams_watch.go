package redis

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/delegate-io/dlite/manager/internal/livelog"
)

const (
	// newsWait is how long one request waits for news.
	newsWait = 5 * time.Second
	// newsPage is the maximum number of news of a shard in one answer, well below
	// newsKept.
	newsPage = 1024
	// newsKept is the approximate number of news that a shard keeps, as in common.lua.
	newsKept = 4096
	// maxWatched bounds the number of watched streams.
	maxWatched = 10_000
	// maxPause bounds the time between attempts to reach Redis.
	maxPause = time.Second
)

// watchers contains the channels that wait for news, by the ids of the streams.
type watchers struct {
	mu     sync.Mutex // guards the following fields
	wait   map[string]chan struct{}
	closed bool
}

// watch returns a channel that is closed at the next change of the stream.
func (w *watchers) watch(id string) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.wait[id]
	if c == nil {
		// Watches of streams that never change must not fill the memory.
		if len(w.wait) >= maxWatched {
			w.wakeAll()
		}
		c = make(chan struct{})
		if w.closed {
			close(c)
			return c
		}
		if w.wait == nil {
			w.wait = map[string]chan struct{}{}
		}
		w.wait[id] = c
	}
	return c
}

// wake wakes the watchers of a stream.
func (w *watchers) wake(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.wait[id]; c != nil {
		close(c)
		delete(w.wait, id)
	}
}

// wakeAll wakes all watchers: a watcher accepts a wake-up without a change. The caller
// must hold mu.
func (w *watchers) wakeAll() {
	for _, c := range w.wait {
		close(c)
	}
	clear(w.wait)
}

func (w *watchers) missed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wakeAll()
}

func (w *watchers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.wakeAll()
}

// Watch returns a channel that is closed when the stream changes or appears, and
// sometimes without a change.
func (s *Streams) Watch(id livelog.ID) <-chan struct{} { return s.watchers.watch(placeOfLog(id).id) }

// follow starts to follow the news.
func (s *Streams) follow(ctx context.Context) error {
	pipe := s.client.Pipeline()
	var lasts [shards]*goredis.XMessageSliceCmd
	for shard := range lasts {
		lasts[shard] = pipe.XRevRangeN(ctx, s.key(shard, "c"), "+", "-", 1)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	all := make([]listener, shards)
	for shard, cmd := range lasts {
		all[shard] = listener{shard: shard, key: s.key(shard, "c"), last: "0-0"}
		if last := cmd.Val(); len(last) > 0 {
			all[shard].last = last[0].ID
		}
	}
	if err := s.recount(ctx); err != nil {
		return err
	}
	s.follows = true
	s.work.Go(s.wakeAfterReconnect)
	for each := s.perRequest(); len(all) > 0; all = all[each:] {
		part := all[:each]
		s.work.Go(func() { s.listen(part) })
	}
	return nil
}

// perRequest returns the number of shards in one request for news.
func (s *Streams) perRequest() int {
	if _, cluster := s.news.(*goredis.ClusterClient); cluster {
		return 1 // each shard is one slot
	}
	return shards
}

// nudge ends the requests that wait for news. Closing their connections would too, but
// the client may then log errors.
func (s *Streams) nudge() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for shard := 0; shard < shards; shard += s.perRequest() {
		args := &goredis.XAddArgs{Stream: s.key(shard, "c"), MaxLen: newsKept, Approx: true, Values: []string{"id", ""}}
		if s.client.XAdd(ctx, args).Err() != nil {
			return
		}
	}
	done := make(chan struct{})
	go func() { defer close(done); s.work.Wait() }()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// recount reads all totals. After a data loss in Redis, their versions may be lower
// than the known ones.
func (s *Streams) recount(ctx context.Context) error {
	s.mu.Lock()
	before := s.totals
	s.mu.Unlock()
	pipe := s.client.Pipeline()
	var counts [shards]*goredis.SliceCmd
	var owned [shards]*goredis.MapStringStringCmd
	for shard := range counts {
		owned[shard] = pipe.HGetAll(ctx, s.key(shard, "a"))
		counts[shard] = pipe.HMGet(ctx, s.key(shard, "t"), "n", "size", "v")
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	for shard, cmd := range counts {
		var text [3]string
		for i, v := range cmd.Val() {
			text[i], _ = v.(string)
		}
		t := totalOf(text[0], text[1], text[2])
		s.mu.Lock()
		// If other totals arrived in the meantime, the later version counts.
		if now := &s.totals[shard]; *now == before[shard] || t.version >= now.version {
			*now = t
			s.owned[shard] = ownedOf(owned[shard].Val(), t.version)
		}
		s.mu.Unlock()
	}
	return nil
}

// ownedOf converts the counters of a shard's accounts.
func ownedOf(fields map[string]string, version int64) map[string]total {
	out := map[string]total{}
	for name, streams := range fields {
		if account, ok := strings.CutPrefix(name, "n:"); ok {
			t := totalOf(streams, fields["s:"+account], "")
			t.version = version
			out[account] = t
		}
	}
	return out
}

// listener is the position in the news of a shard.
type listener struct {
	shard     int
	key, last string
}

// listen forwards the news of some shards, over one connection.
func (s *Streams) listen(part []listener) {
	pause := time.Duration(0)
	for s.ctx.Err() == nil {
		err := s.receiveNews(part)
		switch {
		case s.ctx.Err() != nil:
		case err == nil:
			pause = 0
		default:
			if pause == 0 {
				s.cfg.Logger.Warn().Err(err).Msg("log streams: no news from Redis")
			}
			pause = s.rest(pause)
		}
	}
}

// rest waits after an error, longer than after the previous one, and returns the time.
func (s *Streams) rest(last time.Duration) time.Duration {
	pause := min(max(2*last, 20*time.Millisecond), maxPause)
	select {
	case <-time.After(pause):
	case <-s.ctx.Done():
	}
	return pause
}

// wakeAfterReconnect wakes all watchers after each new connection for news: a Redis that was
// restarted or replaced does not report lost changes.
func (s *Streams) wakeAfterReconnect() {
	for {
		select {
		case <-s.dialed:
		case <-s.ctx.Done():
			return
		}
		for pause := time.Duration(0); s.recount(s.ctx) != nil && s.ctx.Err() == nil; {
			pause = s.rest(pause)
		}
		s.watchers.missed()
	}
}

// dialHook signals each connection that a client opens, including its retries.
type dialHook chan struct{}

func (h dialHook) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err == nil {
			select {
			case h <- struct{}{}:
			default:
			}
		}
		return conn, err
	}
}

func (dialHook) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }

func (dialHook) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// add installs the hook in a client.
func (h dialHook) add(client goredis.UniversalClient) {
	if c, cluster := client.(*goredis.ClusterClient); cluster {
		c.OnNewNode(func(node *goredis.Client) { node.AddHook(h) })
		return
	}
	client.AddHook(h)
}

// receiveNews waits for news and forwards them.
func (s *Streams) receiveNews(part []listener) error {
	names := make([]string, 0, 2*len(part))
	for _, l := range part {
		names = append(names, l.key)
	}
	for _, l := range part {
		names = append(names, l.last)
	}
	heard, err := s.news.XRead(s.ctx, &goredis.XReadArgs{Streams: names, Count: newsPage, Block: newsWait}).Result()
	if errors.Is(err, goredis.Nil) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, h := range heard {
		for i := range part {
			if part[i].key == h.Stream {
				s.forwardNews(&part[i], h.Messages)
			}
		}
	}
	return nil
}

// forwardNews forwards the news of a shard.
func (s *Streams) forwardNews(l *listener, news []goredis.XMessage) {
	for _, m := range news {
		text := func(name string) string { t, _ := m.Values[name].(string); return t }
		l.last = m.ID
		if id := text("id"); id != "" { // not from nudge
			s.count(l.shard, []string{text("n"), text("size"), text("v"), text("account"), text("own"), text("ownSize")})
			s.watchers.wake(id)
		}
	}
	if len(news) >= newsPage {
		s.watchers.missed() // some news may have been trimmed before this read
	}
}
