package logservice_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/logservice"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimDir); dir != "" {
		victim(dir) // never returns
	}
	goleak.VerifyTestMain(m)
}

// inFiles makes the tests of this package use a log service on files.
const inFiles = "DLITE_TEST_LOGS_IN_FILES"

// inRedis makes them use a log service with its streams in the Redis at this URL.
const inRedis = "DLITE_TEST_LOGS_IN_REDIS"

// All tests pass for a log service on files too.
func TestTheSameOnFiles(t *testing.T) {
	t.Parallel()
	testTheSame(t, inFiles+"=1")
}

// All tests pass for a log service with streams in Redis too.
func TestTheSameOnRedis(t *testing.T) {
	t.Parallel()
	testTheSame(t, inRedis+"="+testbed.Redis(t, "--appendfsync", "no").URL())
}

// testTheSame runs the tests of this package in another process with an additional
// environment variable, except for tests with their own store.
func testTheSame(t *testing.T, env string) {
	t.Helper()
	if os.Getenv(inFiles)+os.Getenv(inRedis) != "" {
		t.Skip("this is it")
	}
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), exe, "-test.count=1", "-test.skip=^TestStreamsIn|^TestKill|Bucket|^TestTheSame")
	cmd.Env = append(os.Environ(), env)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

const (
	token = "fake-token"
	query = "?accountID=acc&key=run/1:step"
)

// Section 4 of docs/protocol.md: the call sequences of another implementation's writer.
func TestForeignWriterSequences(t *testing.T) {
	t.Parallel()
	const blob = `{"level":"info","pos":7,"out":"archived\n","time":"2024-05-06T07:08:09Z","args":null}` + "\n"
	t.Run("upload by link", func(t *testing.T) {
		t.Parallel()
		b := setUp(t)
		b.ok("POST", "/stream"+query, "")
		b.ok("PUT", "/stream"+query, lines(0, "a\n", "b\n"))
		b.ok("PUT", "/stream"+query, lines(2, "c"))
		var link struct {
			Link    string
			Expires int64
		}
		require.NoError(t, json.Unmarshal([]byte(b.ok("POST", "/blob/link/upload"+query, "")), &link))
		assert.EqualValues(t, time.Hour, link.Expires)
		b.ok("PUT", link.Link, blob, "X-Harness-Token", "")
		b.ok("DELETE", "/stream"+query, "")
		assert.Equal(t, blob, b.ok("GET", "/blob"+query, ""))
		assert.Equal(t, []string{"archived\n"}, events(t, b.ok("GET", "/stream"+query, "")))
	})
	t.Run("indirect upload", func(t *testing.T) {
		t.Parallel()
		b := setUp(t)
		b.ok("POST", "/stream"+query, "")
		b.ok("PUT", "/stream"+query, lines(0, "a\n"))
		b.ok("POST", "/blob"+query, blob)
		b.ok("DELETE", "/stream"+query, "")
		assert.Equal(t, blob, b.ok("GET", "/blob"+query, ""))
	})
	t.Run("skip opening", func(t *testing.T) {
		t.Parallel()
		b := setUp(t)
		b.ok("PUT", "/stream"+query, lines(0, "a\n", "b"))
		b.ok("DELETE", "/stream"+query+"&snapshot=true", "")
		assert.Equal(t, []string{"a\n", "b"}, outs(t, b.ok("GET", "/blob"+query, "")))
		assert.Equal(t, []string{"a\n", "b"}, events(t, b.ok("GET", "/stream"+query, "")))
	})
	t.Run("skip closing", func(t *testing.T) {
		t.Parallel()
		b := setUp(t)
		b.ok("POST", "/stream"+query, "")
		b.ok("PUT", "/stream"+query, lines(0, "a\n"))
		status, _ := b.do("GET", "/blob"+query, "")
		assert.Equal(t, 404, status, "still open")
		b.ok("DELETE", "/stream"+query+"&snapshot=true", "") // by another client
		assert.Equal(t, []string{"a\n"}, outs(t, b.ok("GET", "/blob"+query, "")))
	})
}

func TestKeysAreTheSameRawAndEscaped(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.ok("POST", "/blob?accountID=acc&key=a/b:c", "raw")
	assert.Equal(t, "raw", b.ok("GET", "/blob?accountID=acc&key=a%2Fb%3Ac", ""))
}

func TestOnlyTheAccountsTokenOpensItsLogs(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.ok("POST", "/blob"+query, "x")
	for _, path := range []string{"/stream" + query, "/blob" + query} {
		for _, wrong := range []string{"", "fake-other", "fake-tokens"} {
			status, text := b.do("GET", path, "", "X-Harness-Token", wrong)
			assert.Equal(t, 401, status)
			assert.Contains(t, text, `"error_msg"`)
		}
	}
	status, _ := b.do("GET", "/blob?accountID=other&key=run/1:step", "", "X-Harness-Token", "fake-other")
	assert.Equal(t, 404, status, "the same key in another account is another log")
	status, _ = b.do("GET", "/blob?accountID=unknown&key=k", "", "X-Harness-Token", "")
	assert.Equal(t, 401, status)
	assert.Panics(t, func() { _, _ = logservice.New(logservice.Config{}) })
}

func TestBadRequestsAreNamed(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	for _, tt := range []struct {
		method, path, body string
		status             int
		message            string
	}{
		{"POST", "/stream?accountID=acc", "", 400, "key are required"},
		{"PUT", "/stream" + query, "{", 400, "decoding the lines"},
		{"PUT", "/stream" + query, `["x"]`, 400, "line 0"},
		{"GET", "/stream" + query + "&from=x", "", 400, "line number"},
		{"GET", "/stream" + query, "", 404, "no such log"},
		{"GET", "/stream" + query + "&format=ndjson", "", 400, `format "ndjson" is unknown: it must be one of sse, text`},
		{"GET", "/stream" + query + "&format=text&wait=0", "", 404, "no such log"},
		{"GET", "/stream" + query + "&wait=301", "", 400, "wait must be a number of seconds from 0 to 300"},
		{"GET", "/stream" + query + "&wait=-1", "", 400, "wait must be a number of seconds from 0 to 300"},
		{"GET", "/blob" + query + "&format=sse", "", 400, `format "sse" is unknown: it must be one of ndjson, text`},
		{"GET", "/blob" + query + "&format=text", "", 404, "no such log"},
		{"DELETE", "/stream" + query, "", 404, "no such log"},
		{"GET", "/blob" + query, "", 404, "no such log"},
		{"GET", "/nothing", "", 404, "no such call"},
		{"PATCH", "/stream" + query, "", 405, "no such method"},
		{"PUT", "/blob/upload/forged.link", "x", 403, "not valid"},
	} {
		status, text := b.do(tt.method, tt.path, tt.body)
		assert.Equal(t, tt.status, status, "%s %s", tt.method, tt.path)
		var e map[string]string
		require.NoError(t, json.Unmarshal([]byte(text), &e), text)
		assert.Contains(t, e["error_msg"], tt.message)
	}
}

// Each writer numbers its lines from 0. A reader that reconnects continues at the next
// line of the log, both live and in the archive.
func TestLinesOfSeveralWritersAreNumberedThroughout(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.ok("PUT", "/stream"+query, lines(0, "a\n", "b\n", "c\n"), "Dlite-Log-Writer", "w1")
	b.ok("PUT", "/stream"+query, lines(0, "d\n", "e\n"), "Dlite-Log-Writer", "w2")
	b.ok("DELETE", "/stream"+query, "")
	want := []string{"d\n", "e\n"}
	assert.Equal(t, want, events(t, b.ok("GET", "/stream"+query+"&from=3", "")))
	blob := b.ok("GET", "/blob"+query, "")
	other := "?accountID=acc&key=other"
	b.ok("POST", "/blob"+other, blob)
	assert.Equal(t, want, events(t, b.ok("GET", "/stream"+other, "", "Last-Event-ID", "2")))
}

func TestLimitsAreClear(t *testing.T) {
	t.Parallel()
	b := setUp(t, func(c *logservice.Config) {
		c.MaxPut, c.MaxStream, c.MaxBlob, c.MaxTotal = 20_000, 30_000, 10_000, 62_000
	})
	long := strings.Repeat("x", 12_000)
	status, text := b.do("PUT", "/stream"+query, lines(0, long, long))
	assert.Equal(t, 413, status)
	assert.Contains(t, text, "limit of 20000 bytes")
	status, _ = b.do("GET", "/stream"+query, "")
	assert.Equal(t, 404, status, "a refused upload leaves nothing")
	b.ok("PUT", "/stream"+query, lines(0, long))
	b.ok("PUT", "/stream"+query, lines(1, long))
	status, text = b.do("PUT", "/stream"+query, lines(2, long))
	assert.Equal(t, 413, status)
	assert.Contains(t, text, "limit of 30000 bytes")
	status, text = b.do("POST", "/blob"+query, long)
	assert.Equal(t, 413, status)
	assert.Contains(t, text, "limit of 10000 bytes")

	other := "?accountID=acc&key=other"
	b.ok("POST", "/blob"+other, strings.Repeat("x", 9000))
	status, text = b.do("PUT", "/stream?accountID=acc&key=third", lines(0, long, long[:3000]))
	assert.Equal(t, 507, status, "the open stream stays")
	assert.Contains(t, text, "full")
	b.ok("GET", "/blob"+other, "")
	b.now.Store(int64(time.Minute)) // the pause after an eviction that did not help
	b.ok("DELETE", "/stream"+query, "")
	b.ok("PUT", "/stream?accountID=acc&key=third", lines(0, long, long[:3000]))
	if os.Getenv(inFiles)+os.Getenv(inRedis) == "" { // there the stream is removed, and the archive stays
		status, _ = b.do("GET", "/blob"+query, "")
		assert.Equal(t, 404, status)
	}
}

func TestTheNumberOfLogsIsBounded(t *testing.T) {
	t.Parallel()
	b := setUp(t, func(c *logservice.Config) { c.MaxLogs = 4 })
	key := func(k string) string { return "?accountID=acc&key=" + k }
	for _, k := range []string{"1", "1b", "1c"} {
		b.ok("POST", "/blob"+key(k), "1")
		<-time.After(2 * time.Millisecond) // file systems have coarse timestamps
	}
	b.ok("POST", "/stream"+key("2"), "")
	b.ok("POST", "/stream"+key("3"), "")
	status, _ := b.do("GET", "/blob"+key("1"), "")
	assert.Equal(t, 404, status)
	status, _ = b.do("POST", "/stream"+key("4"), "")
	assert.Equal(t, 507, status)
}

func TestIdleStreamsAreClosed(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.ok("PUT", "/stream"+query, lines(0, "abandoned\n"))
	b.now.Store(int64(25 * time.Hour))
	b.ok("POST", "/stream?accountID=acc&key=another", "")
	assert.Equal(t, []string{"abandoned\n"}, events(t, b.ok("GET", "/stream"+query, "")))
}

// A repeated call changes nothing.
func TestRepeatedCallsRepeatNothing(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	us := []string{"Dlite-Log-Writer", "w1"}
	b.ok("POST", "/stream"+query, "", us...)
	b.ok("PUT", "/stream"+query, lines(0, "a\n"), us...)
	b.ok("POST", "/stream"+query, "", us...)
	b.ok("PUT", "/stream"+query, lines(0, "a\n", "b\n"), us...)
	b.ok("PUT", "/stream"+query, lines(0, "another writer's\n"), "Dlite-Log-Writer", "w2")
	b.ok("DELETE", "/stream"+query, "")
	b.ok("DELETE", "/stream"+query, "")
	b.ok("PUT", "/stream"+query, lines(0, "a\n", "b\n"), us...)
	b.ok("POST", "/stream"+query, "", us...)
	want := []string{"a\n", "b\n", "another writer's\n"}
	assert.Equal(t, want, events(t, b.ok("GET", "/stream"+query, "")), "closed still")
	status, _ := b.do("POST", "/stream"+query, "", "Dlite-Log-Writer", strings.Repeat("x", 129))
	assert.Equal(t, 400, status)
}

func TestAStreamBeginsAnew(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.ok("PUT", "/stream"+query, lines(0, "first run\n"))
	b.ok("DELETE", "/stream"+query, "")
	b.ok("POST", "/stream"+query, "")
	assert.Equal(t, []string{"first run\n"}, outs(t, b.ok("GET", "/blob"+query, "")), "until there is another")
	b.ok("PUT", "/stream"+query, lines(0, "second run\n"))
	b.ok("DELETE", "/stream"+query, "")
	assert.Equal(t, []string{"second run\n"}, outs(t, b.ok("GET", "/blob"+query, "")))
	assert.Equal(t, []string{"second run\n"}, events(t, b.ok("GET", "/stream"+query, "")))
}

func TestASnapshotReplacesTheUpload(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.ok("POST", "/blob"+query, "uploaded")
	b.ok("PUT", "/stream"+query, "[{\n\"out\":\r\n\"live\"}]")
	b.ok("DELETE", "/stream"+query+"&snapshot=true", "")
	assert.Equal(t, `{"out":"live"}`+"\n", b.ok("GET", "/blob"+query, ""), "one line, however it was sent")
	b.ok("POST", "/stream"+query, "")
	b.ok("DELETE", "/stream"+query+"&snapshot=true", "")
	assert.Equal(t, `{"out":"live"}`+"\n", b.ok("GET", "/blob"+query, ""), "nothing replaces nothing")
}

func TestArchivesOfAnyKindAreServed(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.ok("POST", "/blob"+query, `{"pos":41,"out":"x"}`+"\r\n\nno JSON\n"+`{"pos":43,"out":"y"}`)
	body := b.ok("GET", "/stream"+query+"&from=42", "")
	assert.Equal(t, "id: 42\ndata: no JSON\n\nid: 43\ndata: {\"pos\":43,\"out\":\"y\"}\n\nevent: eof\ndata: eof\n\n", body)
}
