package redis_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/manager/internal/livelog"
	"github.com/delegate-io/dlite/manager/logservice"
	"github.com/delegate-io/dlite/manager/redis"
)

const (
	victimRedis   = "DLITE_TEST_LOGS_VICTIM_REDIS"
	victimPrefix  = "DLITE_TEST_LOGS_VICTIM_PREFIX"
	victimArchive = "DLITE_TEST_LOGS_VICTIM_ARCHIVE"
	victimStalls  = "DLITE_TEST_LOGS_VICTIM_STALLS"
)

// lease is a short lease for tests that wait for its end.
const lease = time.Second

// victim runs a log service in its own process, which the test kills.
func victim(url string) {
	s, err := redis.OpenStreams(context.Background(), redis.Config{URL: url, Prefix: os.Getenv(victimPrefix), Lease: lease})
	if err == nil {
		var streams livelog.Streams = s
		if os.Getenv(victimStalls) != "" {
			streams = &archiver{
				Streams: s, claimed: func(error) {}, noted: func() {},
				read: func() { fmt.Println("archiving"); select {} },
			}
		}
		var logs *logservice.Server
		logs, err = logservice.New(logservice.Config{
			Streams: streams, Archive: bucket(os.Getenv(victimArchive)), Key: make([]byte, 32),
			Authorize: logservice.Tokens(map[string]string{"acc": token}),
		})
		if err == nil {
			var l net.Listener
			if l, err = new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0"); err == nil {
				fmt.Println(l.Addr())
				err = http.Serve(l, logs) //nolint:gosec // it is killed before any time-out
			}
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// startVictim starts a victim. It returns the address, a reader of its further output,
// and a function that kills it.
func startVictim(t *testing.T, r *testbed.RedisServer, prefix, archive string, env ...string) (string, *bufio.Reader, func()) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), victimRedis+"="+r.URL(), victimPrefix+"="+prefix, victimArchive+"="+archive)
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewReader(out)
	addr, err := lines.ReadString('\n')
	require.NoError(t, err)
	kill := sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // SIGKILL
		_ = cmd.Wait()
	})
	t.Cleanup(kill)
	return "http://" + strings.TrimSpace(addr), lines, kill
}

// Rules L2 and Q7: the test kills servers at random moments while clients write and
// read lines. A balancer sends their requests to another server. All lines arrive once
// and in order.
func TestServersAreKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	r, archive, prefix := testbed.Redis(t), t.TempDir(), prefix()
	var targets [2]atomic.Pointer[url.URL]
	var kills [2]func()
	replace := func(i int) {
		var at string
		at, _, kills[i] = startVictim(t, r, prefix, archive)
		u, err := url.Parse(at)
		require.NoError(t, err)
		targets[i].Store(u)
	}
	replace(0)
	replace(1)
	var next atomic.Int64
	begun := make(chan struct{}, 1)
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetURL(targets[next.Add(1)%2].Load())
			select {
			case begun <- struct{}{}:
			default:
			}
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		Transport:    &http.Transport{DisableKeepAlives: true},
		ErrorLog:     log.New(io.Discard, "", 0), // hides errors of aborted answers
	}
	front := httptest.NewServer(proxy)
	defer front.Close()

	var want strings.Builder
	s := logger.OpenStream(t.Context(), logger.StreamConfig{
		URL: front.URL, Token: token, Account: "acc", Key: "log", SkipOpeningStream: true,
		FlushInterval: time.Millisecond, MaxMemory: 4 << 10, TempDir: t.TempDir(), MaxLine: 1000,
	})
	seen := make(chan string, 1)
	go func() { seen <- readAll(t, front.URL+"/stream"+query, nil) }()
	n := 0
	write := func(lines int) {
		for range lines {
			_, _ = fmt.Fprintf(io.MultiWriter(s, &want), "line %d %s\n", n, strings.Repeat("x", n%100))
			n++
		}
	}
	for k := range 6 {
		for range 1 + rand.IntN(20) {
			write(1 + rand.IntN(60))
			<-begun
		}
		kills[k%2]()
		write(rand.IntN(200))
		replace(k % 2)
	}
	require.NoError(t, s.Close(t.Context()))
	assert.True(t, want.String() == <-seen, "the output of the reader")
	assert.True(t, want.String() == text(t, ok(t, "GET", front.URL+"/blob"+query, "")))
}

// If a server is killed while it archives a log, another server archives it when the
// claim ends.
func TestAServerIsKilledWhileItArchives(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Redis(t), 1, redis.Config{Lease: lease}, nil)
	at, lines, kill := startVictim(t, f.redis, f.prefix, f.archive, victimStalls+"=1")
	ok(t, "PUT", at+"/stream"+query, put(0, "a\n", "b\n"))
	ok(t, "DELETE", at+"/stream"+query, "")
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "archiving\n", line)
	_, _, err = f.streams[0].Claim(t.Context(), id)
	require.ErrorIs(t, err, livelog.ErrClaimed)
	kill()
	assert.Equal(t, "a\nb\n", text(t, ok(t, "GET", f.http[0].URL+"/blob"+query, "")), "no caller waits for it")
	done := make(chan struct{})
	go func() { defer close(done); whenArchived(t, f.streams[0]) }()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for waiting := true; waiting; {
		f.now.Add(int64(time.Minute)) // the interval of the background work
		ok(t, "PUT", f.http[0].URL+"/stream?accountID=acc&key=other", "[]")
		select {
		case <-done:
			waiting = false
		case <-again.C:
		}
	}
	assert.Len(t, f.archived(), 1)
	assert.Equal(t, "a\nb\n", text(t, ok(t, "GET", f.http[0].URL+"/blob"+query, "")))
}
