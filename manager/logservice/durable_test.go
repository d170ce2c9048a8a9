package logservice_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/manager/internal/livelog"
	"github.com/delegate-io/dlite/manager/logservice"
)

// restartable is a log service that keeps its address across restarts.
type restartable struct {
	*bench
	cfg     logservice.Config
	current atomic.Pointer[logservice.Server]
}

func setUpIn(t *testing.T, dir string, change ...func(*logservice.Config)) *restartable {
	t.Helper()
	r := &restartable{bench: &bench{t: t}}
	r.cfg = logservice.Config{
		Dir: dir, Authorize: logservice.Tokens(map[string]string{"acc": token}),
		Now: func() time.Time { return time.Now().Add(time.Duration(r.now.Load())) },
	}
	for _, c := range change {
		c(&r.cfg)
	}
	r.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.current.Load().ServeHTTP(w, req)
	}))
	r.open()
	t.Cleanup(func() {
		assert.NoError(t, r.current.Load().Close())
		r.http.Close()
	})
	return r
}

func (r *restartable) open() {
	r.t.Helper()
	logs, err := logservice.New(r.cfg)
	require.NoError(r.t, err)
	r.logs = logs
	r.current.Store(logs)
}

func (r *restartable) restart() {
	r.t.Helper()
	require.NoError(r.t, r.current.Load().Close())
	r.open()
}

// Rule L2: after a restart, writers and readers continue at the same line.
func TestWritersAndReadersContinueAfterARestart(t *testing.T) {
	t.Parallel()
	r := setUpIn(t, t.TempDir())
	us := []string{"Dlite-Log-Writer", "w1"}
	r.ok("POST", "/stream"+query, "", us...)
	r.ok("PUT", "/stream"+query, lines(0, "a\n", "b\n"), us...)
	next, closeIt := r.follow("/stream" + query)
	assert.Contains(t, next(), `"out":"a\n"`)
	assert.Regexp(t, "^id: 1", next())

	r.restart()
	assert.Equal(t, "broken off", next())
	closeIt()
	r.ok("PUT", "/stream"+query, lines(0, "a\n", "b\n", "c\n"), us...) // its answer was lost
	next, closeIt = r.follow("/stream"+query, "Last-Event-ID", "1")
	defer closeIt()
	assert.Regexp(t, `^id: 2.*"out":"c\\n"`, next())

	r.restart()
	r.ok("DELETE", "/stream"+query+"&snapshot=true", "")
	r.restart()
	assert.Equal(t, []string{"a\n", "b\n", "c\n"}, outs(t, r.ok("GET", "/blob"+query, "")))
	r.ok("PUT", "/stream"+query, lines(1, "b\n"), us...)
	assert.Equal(t, []string{"b\n", "c\n"}, events(t, r.ok("GET", "/stream"+query+"&from=1", "")), "complete still")
}

func TestALinkOutlivesARestart(t *testing.T) {
	t.Parallel()
	r := setUpIn(t, t.TempDir())
	var link struct{ Link string }
	require.NoError(t, json.Unmarshal([]byte(r.ok("POST", "/blob/link/upload"+query, "")), &link))
	r.restart()
	r.ok("PUT", link.Link, "archived")
	r.restart()
	assert.Equal(t, "archived", r.ok("GET", "/blob"+query, ""))
	assert.NotEmpty(t, archiveFiles(t, r.cfg.Dir))
}

// archiveFiles returns the files of the archived logs in a folder.
func archiveFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "archive", "*", "*.ndjson"))
	require.NoError(t, err)
	return files
}

// If the service restarts without its data, the writer sends the lost lines again.
func TestOurWriterSendsLinesAgainThatTheServiceLost(t *testing.T) {
	t.Parallel()
	r := setUpIn(t, t.TempDir())
	s := logger.OpenStream(t.Context(), logger.StreamConfig{
		URL: r.http.URL, Token: token, Account: "acc", Key: "run/1:step", SkipOpeningStream: true, TempDir: t.TempDir(),
		FlushInterval: time.Millisecond, MaxMemory: 1 << 10,
	})
	var want strings.Builder
	for range 3 {
		for i := range 500 {
			_, _ = fmt.Fprintf(io.MultiWriter(s, &want), "line %d\n", i)
		}
		n := 0
		for range r.current.Load().Tail(t.Context(), "acc", "run/1:step") {
			if n++; n == strings.Count(want.String(), "\n") {
				break
			}
		}
		require.NoError(t, r.current.Load().Close())
		require.NoError(t, os.RemoveAll(filepath.Join(r.cfg.Dir, "streams")))
		r.open()
	}
	_, _ = io.WriteString(io.MultiWriter(s, &want), "the end")
	require.NoError(t, s.Close(t.Context()))
	assert.Equal(t, want.String(), strings.Join(outs(t, r.ok("GET", "/blob"+query, "")), ""))
}

// A complete stream becomes an archive. The service then removes the stream.
func TestStreamsBecomeArchives(t *testing.T) {
	t.Parallel()
	r := setUpIn(t, t.TempDir())
	r.ok("PUT", "/stream"+query, lines(0, "a\n", "b\n"))
	r.ok("DELETE", "/stream"+query+"&snapshot=true", "")
	require.Eventually(t, func() bool { return len(archiveFiles(t, r.cfg.Dir)) == 1 }, 10*time.Second, time.Millisecond)
	content, err := os.ReadFile(archiveFiles(t, r.cfg.Dir)[0])
	require.NoError(t, err)
	assert.Equal(t, []string{"a\n", "b\n"}, outs(t, string(content)))

	r.restart()
	r.now.Store(int64(11 * time.Minute))
	r.ok("POST", "/stream?accountID=acc&key=another", "") // triggers the background work
	require.Eventually(t, func() bool {
		left, err := filepath.Glob(filepath.Join(r.cfg.Dir, "streams", "*", "*.journal"))
		return err == nil && len(left) == 1
	}, 10*time.Second, time.Millisecond)
	assert.Equal(t, []string{"b\n"}, events(t, r.ok("GET", "/stream"+query+"&from=1", "")), "from the archive")
}

// After a restart, the service archives complete streams that are not archived yet.
func TestArchivingContinuesAfterARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := logservice.OpenStreams(filepath.Join(dir, "streams"))
	require.NoError(t, err)
	id := livelog.ID{Account: "acc", Key: "run/1:step"}
	require.NoError(t, s.Append(t.Context(), id, livelog.Batch{
		Lines: []livelog.Line{{Raw: []byte(`{"out":"a\n"}`)}}, MaxStream: 1 << 20,
	}))
	require.NoError(t, s.Finish(t.Context(), id, false))
	require.NoError(t, s.Close())
	r := setUpIn(t, dir)
	require.Eventually(t, func() bool { return len(archiveFiles(t, dir)) == 1 }, 10*time.Second, time.Millisecond)
	assert.Equal(t, `{"out":"a\n"}`+"\n", r.ok("GET", "/blob"+query, ""))
}

// Retention by age and by size.
func TestArchivesAreKeptForATime(t *testing.T) {
	t.Parallel()
	r := setUpIn(t, t.TempDir(), func(c *logservice.Config) { c.MaxAge = 24 * time.Hour })
	r.ok("POST", "/blob"+query, "old")
	r.now.Store(int64(23 * time.Hour))
	r.ok("POST", "/stream?accountID=acc&key=x", "")
	r.restart()
	assert.Equal(t, "old", r.ok("GET", "/blob"+query, ""))
	r.now.Store(int64(25 * time.Hour))
	r.ok("POST", "/stream?accountID=acc&key=y", "")
	require.Eventually(t, func() bool { return len(archiveFiles(t, r.cfg.Dir)) == 0 }, 10*time.Second, time.Millisecond)
}

func TestTheOldestArchivesMakeRoom(t *testing.T) {
	t.Parallel()
	r := setUpIn(t, t.TempDir(), func(c *logservice.Config) { c.MaxTotal = 10_000 })
	key := func(i int) string { return fmt.Sprintf("?accountID=acc&key=%d", i) }
	for i := range 20 {
		r.ok("POST", "/blob"+key(i), strings.Repeat("x", 1000))
		files := archiveFiles(t, r.cfg.Dir)
		for _, f := range files { // file systems have coarse timestamps
			if strings.Contains(f, fmt.Sprintf("/%d-", i)) {
				at := time.Now().Add(time.Duration(i-100) * time.Minute)
				require.NoError(t, os.Chtimes(f, at, at))
			}
		}
	}
	for i := range 20 {
		status, _ := r.do("GET", "/blob"+key(i), "")
		assert.Equal(t, map[bool]int{true: 200, false: 404}[i >= 10], status, "%d", i)
	}
	r.restart()
	r.ok("POST", "/blob"+key(20), strings.Repeat("x", 5000))
	assert.LessOrEqual(t, len(archiveFiles(t, r.cfg.Dir)), 6, "earlier archives count")
}

// A slow reader must not block the step. This one reads nothing.
func TestAReaderThatStandsStillDelaysNoOtherReader(t *testing.T) {
	t.Parallel()
	b := setUp(t, func(c *logservice.Config) { c.MaxStream, c.MaxTotal = 64<<20, 64<<20 })
	b.ok("POST", "/stream"+query, "")
	_, closeIt := b.follow("/stream" + query)
	defer closeIt()
	long := strings.Repeat("x", 10_000)
	body := lines(0, long, long, long, long, long, long, long, long, long, long)
	for range 80 { // more than a connection buffers
		b.ok("PUT", "/stream"+query, body)
	}
	b.ok("DELETE", "/stream"+query, "")
	assert.Len(t, outs(t, b.ok("GET", "/blob"+query, "")), 800)
}

func TestReadersAreLimited(t *testing.T) {
	t.Parallel()
	b := setUp(t, func(c *logservice.Config) { c.MaxReaders = 1 })
	b.ok("POST", "/stream"+query, "")
	_, closeIt := b.follow("/stream" + query)
	status, text := b.do("GET", "/stream"+query, "")
	assert.Equal(t, 429, status)
	assert.Contains(t, text, "its part of the readers")
	closeIt()
	require.Eventually(t, func() bool {
		b.ok("DELETE", "/stream"+query, "")
		status, _ := b.do("GET", "/stream"+query, "")
		return status == 200
	}, 10*time.Second, time.Millisecond, "the place is free again")
}

// The service reports an unusable folder, both for streams and for archives.
func TestAFolderThatCannotBeUsedIsNamed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	auth := logservice.Tokens(nil)
	_, err := logservice.New(logservice.Config{Dir: filepath.Join(file, "logs"), Authorize: auth})
	require.ErrorContains(t, err, file)
	_, err = logservice.New(logservice.Config{Archive: "nonesuch://bucket", Authorize: auth})
	require.ErrorContains(t, err, "nonesuch")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "key"), []byte("short"), 0o600))
	_, err = logservice.New(logservice.Config{Dir: dir, Authorize: auth})
	require.ErrorContains(t, err, "does not contain a key of 32 bytes")
}
