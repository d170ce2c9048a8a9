package logservice_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/manager/logservice"
)

const (
	victimDir  = "DLITE_TEST_LOGS_VICTIM"
	victimAddr = "DLITE_TEST_LOGS_ADDR"
)

// victim runs a log service in its own process, which the test kills.
func victim(dir string) {
	logs, err := logservice.New(logservice.Config{Dir: dir, Authorize: logservice.Tokens(map[string]string{"acc": token})})
	if err == nil {
		var l net.Listener
		if l, err = new(net.ListenConfig).Listen(context.Background(), "tcp", os.Getenv(victimAddr)); err == nil {
			fmt.Println(l.Addr())
			err = http.Serve(l, logs) //nolint:gosec // it is killed before any time-out
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// startVictim starts a victim. It returns its address and a function that kills it.
func startVictim(t *testing.T, dir, addr string) (string, func()) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), victimDir+"="+dir, victimAddr+"="+addr)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	addr, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	kill := sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // SIGKILL
		_ = cmd.Wait()
	})
	t.Cleanup(kill)
	return strings.TrimSpace(addr), kill
}

// requests signals the start of a request. It stores one signal.
type requests chan struct{}

func (r requests) RoundTrip(req *http.Request) (*http.Response, error) {
	select {
	case r <- struct{}{}:
	default:
	}
	return http.DefaultTransport.RoundTrip(req)
}

// Rule L2: the test kills the log service repeatedly, at random moments during
// requests. The archive and a reader that reconnects have every line once and in order.
func TestKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	const kills, writers = 8, 3
	dir := t.TempDir()
	addr, kill := startVictim(t, dir, "127.0.0.1:0")
	begun := make(requests, 1)
	var streams [writers]*logger.Stream
	var want [writers]strings.Builder
	for i := range streams {
		streams[i] = logger.OpenStream(t.Context(), logger.StreamConfig{
			URL: "http://" + addr, Token: token, Account: "acc", Key: fmt.Sprint("log/", i), SkipOpeningStream: true,
			FlushInterval: time.Millisecond, MaxMemory: 4 << 10, TempDir: t.TempDir(), MaxLine: 1000,
			HTTPClient: &http.Client{Transport: begun},
		})
	}
	seen, back := make(chan string, 1), make(chan struct{}, 2*kills)
	go func() { seen <- readAcrossKills(t, addr, "log/0", back) }()
	restart := func() {
		_, kill = startVictim(t, dir, addr)
		back <- struct{}{}
	}
	n := 0
	write := func(lines int) {
		for range lines {
			for i := range streams {
				_, _ = fmt.Fprintf(io.MultiWriter(streams[i], &want[i]), "line %d %s\n", n, strings.Repeat("x", n%100))
			}
			n++
		}
	}
	for range kills {
		for range 1 + rand.IntN(30) {
			write(1 + rand.IntN(60))
			<-begun
		}
		kill()
		write(rand.IntN(200)) // the service is down
		restart()
	}
	for i, s := range streams {
		if i == 1 {
			// This kill interrupts the close of the log.
			var err error
			done := make(chan struct{})
			go func() { defer close(done); err = s.Close(t.Context()) }()
			for range 1 + rand.IntN(3) {
				select {
				case <-begun:
				case <-done:
				}
			}
			kill()
			restart()
			<-done
			require.NoError(t, err)
			continue
		}
		require.NoError(t, s.Close(t.Context()))
	}
	for i := range streams {
		got := strings.Join(outs(t, get(t, addr, "/blob", fmt.Sprint("log/", i))), "")
		assert.True(t, want[i].String() == got, "log %d: %d bytes, want %d", i, len(got), want[i].Len())
	}
	assert.True(t, want[0].String() == <-seen, "the output of the reader")
	t.Logf("%d kills, %d lines in each of %d logs", kills+1, n, writers)
}

func get(t *testing.T, addr, path, key string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+path+"?accountID=acc&key="+key, nil)
	require.NoError(t, err)
	req.Header.Set("X-Harness-Token", token)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode, "%s", body)
	return string(body)
}

// readAcrossKills follows a log to its end. Like a browser, it reconnects each time the
// log service is back.
func readAcrossKills(t *testing.T, addr, key string, back <-chan struct{}) string {
	var all strings.Builder
	last := ""
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for t.Context().Err() == nil {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/stream?accountID=acc&key="+key, nil)
		if !assert.NoError(t, err) {
			return ""
		}
		req.Header.Set("X-Harness-Token", token)
		if last != "" {
			req.Header.Set("Last-Event-ID", last)
		}
		resp, err := client.Do(req)
		if err != nil {
			select {
			case <-back:
			case <-t.Context().Done():
			}
			continue
		}
		r := bufio.NewReader(resp.Body)
		for id := ""; ; {
			line, err := r.ReadString('\n')
			if err != nil {
				break
			}
			if n, ok := strings.CutPrefix(line, "id: "); ok {
				id = strings.TrimSpace(n)
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok && id != "" {
				all.WriteString(strings.Join(outs(t, data), ""))
				last, id = id, ""
			}
			if line == "event: eof\n" {
				_ = resp.Body.Close()
				return all.String()
			}
		}
		_ = resp.Body.Close()
	}
	return all.String()
}
