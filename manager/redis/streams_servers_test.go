package redis_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/logheader"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/manager/internal/livelog"
	"github.com/delegate-io/dlite/manager/logservice"
	"github.com/delegate-io/dlite/manager/redis"
)

const (
	token = "fake-token"
	query = "?accountID=acc&key=log"
)

var id = livelog.ID{Account: "acc", Key: "log"}

// fleet is a group of servers with one Redis and one archive.
type fleet struct {
	t       testing.TB
	redis   *testbed.RedisServer
	streams []*redis.Streams
	logs    []*logservice.Server
	http    []*httptest.Server
	// any is a balancer that sends each request to the next server.
	any     *httptest.Server
	archive string
	prefix  string
	now     atomic.Int64 // added to the clock
}

// newFleet starts n servers. wrap may replace the streams of a server.
func newFleet(t testing.TB, r *testbed.RedisServer, n int, cfg redis.Config, wrap func(i int, s *redis.Streams) livelog.Streams) *fleet {
	t.Helper()
	f := &fleet{t: t, redis: r, archive: t.TempDir(), prefix: prefix()}
	cfg.Prefix = f.prefix
	for i := range n {
		s := openStreams(t, r, cfg)
		f.streams = append(f.streams, s)
		c := f.config(s)
		if wrap != nil {
			c.Streams = wrap(i, s)
		}
		logs, err := logservice.New(c)
		require.NoError(t, err)
		f.logs = append(f.logs, logs)
		f.http = append(f.http, httptest.NewServer(logs))
	}
	var next atomic.Int64
	f.any = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		f.logs[int(next.Add(1))%n].ServeHTTP(w, req)
	}))
	t.Cleanup(func() {
		for i := range n {
			assert.NoError(t, f.logs[i].Close())
			f.http[i].Close()
		}
		f.any.Close()
	})
	return f
}

func (f *fleet) config(s livelog.Streams) logservice.Config {
	return logservice.Config{
		Streams: s, Archive: bucket(f.archive), Key: make([]byte, 32), PublicURL: "http://logs.example",
		Authorize: logservice.Tokens(map[string]string{"acc": token}),
		Now:       func() time.Time { return time.Now().Add(time.Duration(f.now.Load())) },
	}
}

func bucket(dir string) string { return "file://" + filepath.ToSlash(dir) + "?no_tmp_dir=true" }

// archived returns the files of the archive.
func (f *fleet) archived() []string {
	f.t.Helper()
	files, err := filepath.Glob(filepath.Join(f.archive, "*", "*.ndjson"))
	require.NoError(f.t, err)
	return files
}

func send(t testing.TB, method, url, body string, header ...string) (status int, answer string, h http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set(logheader.Token, token)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(text), resp.Header
}

func ok(t testing.TB, method, url, body string, header ...string) string {
	t.Helper()
	status, text, _ := send(t, method, url, body, header...)
	require.True(t, status >= 200 && status < 300, "%s %s: %d %s", method, url, status, text)
	return text
}

// put returns the body of a PUT.
func put(pos int, texts ...string) string {
	var lines []string
	for i, text := range texts {
		lines = append(lines, fmt.Sprintf(`{"level":"info","pos":%d,"out":%q}`, pos+i, text))
	}
	return "[" + strings.Join(lines, ",") + "]"
}

// text returns the texts of newline-delimited lines.
func text(t testing.TB, blob string) string {
	var b strings.Builder
	for raw := range strings.Lines(blob) {
		var l struct{ Out string }
		assert.NoError(t, json.Unmarshal([]byte(raw), &l), raw)
		b.WriteString(l.Out)
	}
	return b.String()
}

// readAll follows a log to its end. It reconnects at the same line after each
// interruption. It calls seen with all text so far when there is more.
func readAll(t testing.TB, url string, seen func(string)) string {
	var all strings.Builder
	last := ""
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	pause := time.NewTicker(10 * time.Millisecond) // the retry delay of a browser
	defer pause.Stop()
	for t.Context().Err() == nil {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if !assert.NoError(t, err) {
			return ""
		}
		req.Header.Set(logheader.Token, token)
		if last != "" {
			req.Header.Set("Last-Event-ID", last)
		}
		resp, err := client.Do(req)
		if err != nil {
			<-pause.C
			continue
		}
		r := bufio.NewReader(resp.Body)
		for id := ""; resp.StatusCode == http.StatusOK; {
			line, err := r.ReadString('\n')
			if err != nil {
				break
			}
			if n, ok := strings.CutPrefix(line, "id: "); ok {
				id = strings.TrimSpace(n)
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok && id != "" {
				all.WriteString(text(t, data))
				last, id = id, ""
				if seen != nil {
					seen(all.String())
				}
			}
			if line == "event: eof\n" {
				_ = resp.Body.Close()
				return all.String()
			}
		}
		_ = resp.Body.Close()
		<-pause.C
	}
	return all.String()
}

// Rules Q7 and L2: a writer sends its requests to alternating servers, and readers use
// all servers. Each reader and the archive have all lines once and in order.
func TestAnyServerAcceptsAnyRequest(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Redis(t), 2, redis.Config{}, nil)
	var want strings.Builder
	s := logger.OpenStream(t.Context(), logger.StreamConfig{
		URL: f.any.URL, Token: token, Account: "acc", Key: "log", SkipOpeningStream: true, FlushInterval: time.Millisecond,
	})
	var reading sync.WaitGroup
	const readers = 6
	got := make([]string, readers)
	half := make(chan struct{}, readers)
	for i := range readers {
		reading.Go(func() {
			once := sync.OnceFunc(func() { half <- struct{}{} })
			got[i] = readAll(t, f.http[i%2].URL+"/stream"+query, func(all string) {
				if strings.Contains(all, "half\n") {
					once()
				}
			})
			once()
		})
	}
	write := func(n int) {
		for i := range n {
			_, _ = fmt.Fprintf(io.MultiWriter(s, &want), "line %d %s\n", i, strings.Repeat("x", i%300))
		}
	}
	write(2000)
	_, _ = io.WriteString(io.MultiWriter(s, &want), "half\n")
	for range readers {
		<-half // lines must arrive while the log is open
	}
	write(2000)
	require.NoError(t, s.Close(t.Context()))
	reading.Wait()
	for i := range got {
		assert.True(t, want.String() == got[i], "reader %d: %d bytes, want %d", i, len(got[i]), want.Len())
	}
	for i := range f.http {
		assert.True(t, want.String() == text(t, ok(t, "GET", f.http[i].URL+"/blob"+query, "")), "archive of %d", i)
	}
	whenArchived(t, f.streams[1])
	assert.Len(t, f.archived(), 1)
}

// whenArchived returns when the log is completely archived.
func whenArchived(t testing.TB, s *redis.Streams) {
	t.Helper()
	for {
		changed := s.Watch(id)
		st, err := s.State(t.Context(), id)
		require.NoError(t, err)
		if !st.Open && st.Archived >= st.Lines {
			return
		}
		<-changed
	}
}

// archiver provides streams whose archiving a test can observe and block.
type archiver struct {
	*redis.Streams
	claimed func(error)
	read    func()
	noted   func()
}

func (a *archiver) Claim(ctx context.Context, id livelog.ID) (context.Context, func(), error) {
	held, release, err := a.Streams.Claim(ctx, id)
	a.claimed(err)
	return held, release, err
}

func (a *archiver) Read(ctx context.Context, id livelog.ID, run, from int64) ([]livelog.Line, error) {
	a.read()
	return a.Streams.Read(ctx, id, run, from)
}

func (a *archiver) SetArchived(ctx context.Context, id livelog.ID, run, lines int64) error {
	a.noted()
	return a.Streams.SetArchived(ctx, id, run, lines)
}

// If a log is closed on two servers at the same time, only one of them archives it.
func TestALogIsArchivedByOneServer(t *testing.T) {
	t.Parallel()
	var archived, claims atomic.Int64
	both := make(chan struct{})
	meet := sync.OnceFunc(func() { close(both) })
	f := newFleet(t, testbed.Redis(t), 2, redis.Config{}, func(_ int, s *redis.Streams) livelog.Streams {
		return &archiver{
			Streams: s,
			claimed: func(error) {
				if claims.Add(1) == 2 {
					meet()
				}
			},
			// The archiving server waits until the other one tries.
			read:  func() { <-both },
			noted: func() { archived.Add(1) },
		}
	})
	ok(t, "PUT", f.any.URL+"/stream"+query, put(0, "a\n", "b\n"))
	ok(t, "DELETE", f.http[0].URL+"/stream"+query, "")
	ok(t, "DELETE", f.http[1].URL+"/stream"+query+"&snapshot=true", "")
	// Without claims, both servers would read.
	time.AfterFunc(20*time.Second, meet)
	whenArchived(t, f.streams[0])
	assert.Equal(t, "a\nb\n", text(t, ok(t, "GET", f.any.URL+"/blob"+query, "")))
	f.now.Add(int64(2 * time.Minute)) // triggers the background work again
	ok(t, "POST", f.http[0].URL+"/stream?accountID=acc&key=other", "")
	ok(t, "POST", f.http[1].URL+"/stream?accountID=acc&key=other", "")
	for i := range f.logs {
		require.NoError(t, f.logs[i].Close()) // Close waits for the background work
	}
	assert.EqualValues(t, 1, archived.Load())
}

// Rule L2: Redis is killed while clients write and read lines, and restarts with its
// append-only file. No line is lost or repeated.
func TestRedisIsKilledAndRestarted(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Redis(t), 2, redis.Config{}, nil)
	var want strings.Builder
	s := logger.OpenStream(t.Context(), logger.StreamConfig{
		URL: f.any.URL, Token: token, Account: "acc", Key: "log", SkipOpeningStream: true,
		FlushInterval: time.Millisecond, MaxMemory: 4 << 10, TempDir: t.TempDir(),
	})
	var got [2]string
	var reading sync.WaitGroup
	read := make(chan string, 100_000)
	for i := range got {
		reading.Go(func() {
			got[i] = readAll(t, f.http[i].URL+"/stream"+query, func(all string) {
				if i == 0 {
					read <- all
				}
			})
		})
	}
	n := 0
	write := func(lines int) string {
		for range lines {
			_, _ = fmt.Fprintf(io.MultiWriter(s, &want), "line %d %s\n", n, strings.Repeat("x", n%100))
			n++
		}
		return fmt.Sprintf("line %d ", n-1)
	}
	for range 4 {
		last := write(500)
		for all := range read {
			if strings.Contains(all, last) {
				break
			}
		}
		write(300) // requests in progress
		f.redis.Kill()
		write(300) // Redis is down
		f.redis.Start(t)
	}
	go func() {
		for range read { // drains the channel
		}
	}()
	require.NoError(t, s.Close(t.Context()))
	reading.Wait()
	close(read)
	for i := range got {
		assert.True(t, want.String() == got[i], "reader %d: %d bytes, want %d", i, len(got[i]), want.Len())
	}
	assert.True(t, want.String() == text(t, ok(t, "GET", f.any.URL+"/blob"+query, "")))
}

// If Redis has lost all data, writers send their lines again.
func TestWritersSendLinesAgainAfterADataLoss(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Redis(t, "--appendonly", "no"), 2, redis.Config{}, nil)
	s := logger.OpenStream(t.Context(), logger.StreamConfig{
		URL: f.any.URL, Token: token, Account: "acc", Key: "log", FlushInterval: time.Millisecond,
	})
	_, _ = io.WriteString(s, "before\n")
	for changed := f.streams[0].Watch(id); ; changed = f.streams[0].Watch(id) {
		if st, err := f.streams[0].State(t.Context(), id); err == nil && st.Lines == 1 {
			break
		}
		<-changed
	}
	f.redis.Kill()
	_, _ = io.WriteString(s, "while it is away\n")
	f.redis.Start(t)
	_, _ = io.WriteString(s, "after\n")
	seen := make(chan struct{})
	go func() {
		defer close(seen)
		assert.Equal(t, "before\nwhile it is away\nafter\n", readAll(t, f.any.URL+"/stream"+query, nil))
	}()
	require.NoError(t, s.Close(t.Context()))
	<-seen
}

// After a data loss in Redis, the totals exclude the lost streams, and their watchers
// wake.
func TestLostStreamsAreRemovedFromTheTotals(t *testing.T) {
	t.Parallel()
	r := testbed.Redis(t, "--appendonly", "no")
	s := openStreams(t, r, redis.Config{})
	for i := range int64(20) {
		require.NoError(t, s.Append(t.Context(), id, batch("w", i, "a line")))
	}
	used, _ := s.Usage(id.Account)
	assert.Equal(t, 1, used.Logs)
	changed := s.Watch(id)
	r.Kill()
	r.Start(t)
	for used.Logs > 0 {
		<-changed
		changed = s.Watch(id)
		used, _ = s.Usage(id.Account)
	}
	_, err := s.State(t.Context(), id)
	require.ErrorIs(t, err, livelog.ErrUnknown)
}

// While Redis is unavailable, the service asks writers to retry, and they do.
func TestAnswersWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Redis(t), 1, redis.Config{}, nil)
	require.NoError(t, f.streams[0].Ping(t.Context()))
	ok(t, "PUT", f.any.URL+"/stream"+query, put(0, "a\n"))
	tail := make(chan string, 2)
	go func() {
		for l := range f.logs[0].Tail(t.Context(), "acc", "log") {
			tail <- l.Out
		}
		close(tail)
	}()
	assert.Equal(t, "a\n", <-tail)
	f.redis.Kill()
	for _, call := range []string{"POST /stream", "PUT /stream", "DELETE /stream", "GET /stream", "GET /blob", "POST /blob"} {
		method, path, _ := strings.Cut(call, " ")
		status, text, h := send(t, method, f.any.URL+path+query, "[]")
		assert.Equal(t, 503, status, "%s: %s", call, text)
		assert.Equal(t, "1", h.Get("Retry-After"), call)
	}
	require.ErrorIs(t, f.streams[0].Ping(t.Context()), livelog.ErrUnavailable)
	for range f.streams[0].All(t.Context(), "") {
		t.Error("a stream that does not exist")
	}
	f.redis.Start(t)
	for again := time.NewTicker(20 * time.Millisecond); f.streams[0].Ping(t.Context()) != nil; {
		<-again.C // the client delays its next connection attempt
	}
	ok(t, "PUT", f.any.URL+"/stream"+query, put(1, "b\n"))
	assert.Equal(t, "b\n", <-tail, "a reader of the log continues")
	ok(t, "DELETE", f.any.URL+"/stream"+query, "")
	_, more := <-tail
	assert.False(t, more)
}

// An upload link of one server is valid on every server, for one upload.
func TestUploadLinksAreValidOnAllServers(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Redis(t), 2, redis.Config{}, nil)
	var link struct{ Link string }
	require.NoError(t, json.Unmarshal([]byte(ok(t, "POST", f.http[0].URL+"/blob/link/upload"+query, "")), &link))
	at := func(i int) string { return strings.Replace(link.Link, "http://logs.example", f.http[i].URL, 1) }
	ok(t, "PUT", at(1), `{"out":"x"}`)
	for i := range f.http {
		status, _, _ := send(t, "PUT", at(i), `{"out":"y"}`)
		assert.Equal(t, 410, status)
		assert.Equal(t, "x", text(t, ok(t, "GET", f.http[i].URL+"/blob"+query, "")))
	}
}

// Each server has one blocked request in Redis, for any number of readers.
func TestReadersShareAConnection(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Redis(t), 2, redis.Config{}, nil)
	const readers = 60
	key := func(i int) string { return fmt.Sprintf("?accountID=acc&key=log%d", i%5) }
	var reading sync.WaitGroup
	saw := make(chan struct{}, readers)
	for i := range readers {
		ok(t, "PUT", f.any.URL+"/stream"+key(i), put(i, "x\n"))
	}
	for i := range readers {
		reading.Go(func() {
			once := sync.OnceFunc(func() { saw <- struct{}{} })
			readAll(t, f.http[i%2].URL+"/stream"+key(i), func(string) { once() })
		})
	}
	for range readers {
		<-saw
	}
	admin := goredis.NewClient(&goredis.Options{Addr: f.redis.Address})
	defer func() { _ = admin.Close() }()
	info, err := admin.Info(t.Context(), "clients").Result()
	require.NoError(t, err)
	assert.Contains(t, info, "blocked_clients:2\r\n")
	for i := range 5 {
		ok(t, "DELETE", f.any.URL+"/stream"+key(i), "")
	}
	reading.Wait()
}
