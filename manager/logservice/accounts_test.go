package logservice_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/logheader"
	"github.com/delegate-io/dlite/manager/logservice"
)

// ofOther are the headers of requests for the account "other".
var ofOther = []string{"X-Harness-Token", "fake-other"}

// Requests that announce large bodies and send nothing delay no other request, also of
// their own account.
func TestSilentBodiesStopNoLogs(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	for range 20 {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", b.http.Listener.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, err = fmt.Fprintf(c, "PUT /stream%s HTTP/1.1\r\nHost: x\r\nX-Harness-Token: %s\r\nContent-Length: %d\r\n\r\n[", query, token, 16<<20)
		require.NoError(t, err)
	}
	began := time.Now()
	long := strings.Repeat("x", 100_000)
	b.ok("PUT", "/stream"+query, lines(0, long))
	b.ok("PUT", "/stream?accountID=other&key=k", lines(0, long), ofOther...)
	assert.Less(t, time.Since(began), 10*time.Second)
}

// The account that uses most makes room, and not the one with the oldest logs.
func TestAnAccountLosesNoLogForAnother(t *testing.T) {
	t.Parallel()
	b := setUp(t, func(c *logservice.Config) { c.MaxTotal = 100_000 })
	text := strings.Repeat("x", 9000)
	const first = "/blob?accountID=other&key=first"
	b.ok("POST", first, text, ofOther...)
	for i := range 30 {
		b.ok("POST", fmt.Sprintf("/blob?accountID=acc&key=%d", i), text)
	}
	b.ok("GET", first, "", ofOther...)
	for i := range 3 { // this account still uses less
		b.ok("POST", fmt.Sprintf("/blob?accountID=other&key=%d", i), text, ofOther...)
	}
	b.ok("GET", first, "", ofOther...)
	b.ok("GET", "/blob?accountID=acc&key=29", "")
	status, _ := b.do("GET", "/blob?accountID=acc&key=10", "")
	assert.Equal(t, 404, status)
}

// Open streams cannot be evicted. One account cannot fill the service with them.
func TestLiveLogsOfOneAccountLeaveRoom(t *testing.T) {
	t.Parallel()
	b := setUp(t, func(c *logservice.Config) { c.MaxTotal, c.MaxLogs = 1<<20, 100 })
	opened := 0
	for status := 204; status == 204; opened++ {
		var text string
		status, text = b.do("POST", fmt.Sprintf("/stream?accountID=acc&key=%d", opened), "")
		require.Contains(t, []int{204, 507}, status, text)
	}
	assert.Equal(t, 51, opened)
	for i := range 20 {
		b.ok("POST", fmt.Sprintf("/stream?accountID=other&key=%d", i), "", ofOther...)
	}
	long := strings.Repeat("x", 100_000)
	status, n := 204, 0
	for ; status == 204; n++ {
		status, _ = b.do("PUT", "/stream?accountID=acc&key=0", lines(n, long), logheader.Writer, "w")
	}
	assert.Equal(t, 507, status)
	b.ok("PUT", "/stream?accountID=other&key=0", lines(0, long), ofOther...)
}

func TestLongTextsAreRefusedByName(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	long := strings.Repeat("x", 10_000)
	for field, request := range map[string][]string{
		"accountID":       {"/stream?key=k&accountID=" + long[:257]},
		"key":             {"/stream?accountID=acc&key=" + long[:1025]},
		"X-Harness-Token": {"/stream" + query, "X-Harness-Token", long},
		logheader.Writer:  {"/stream" + query, logheader.Writer, long[:129]},
	} {
		status, text := b.do("POST", request[0], "", request[1:]...)
		assert.Equal(t, http.StatusBadRequest, status, field)
		assert.Contains(t, text, field+" has ")
		assert.Less(t, len(text), 200)
	}
	b.ok("POST", "/stream?accountID=acc&key="+long[:1024], "")
	status, text := b.do("PUT", "/stream"+query, "["+strings.Repeat("{},", 1<<17)+"{}]")
	assert.Equal(t, http.StatusRequestEntityTooLarge, status)
	assert.Contains(t, text, "131072 lines")
}

// A reader that waits for a log sees an archive that is uploaded without a stream.
func TestAnUploadWakesAReader(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	reading := make(chan string, 1)
	go func() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.http.URL+"/stream"+query+"&wait=60&format=text", nil)
		if !assert.NoError(t, err) {
			return
		}
		req.Header.Set(logheader.Token, token)
		resp, err := b.http.Client().Do(req)
		if !assert.NoError(t, err) {
			return
		}
		text, err := io.ReadAll(resp.Body)
		assert.NoError(t, err)
		assert.NoError(t, resp.Body.Close())
		reading <- string(text)
	}()
	tail := make(chan string, 1)
	go func() {
		for l := range b.logs.Tail(t.Context(), "acc", "run/1:step") {
			tail <- l.Out
		}
	}()
	began := time.Now()
	require.Eventually(t, func() bool { return b.logs.UploadWatchers() > 0 }, 10*time.Second, time.Millisecond)
	b.ok("POST", "/blob"+query, `{"level":"info","pos":0,"out":"uploaded\n"}`+"\n")
	assert.Equal(t, "uploaded\n", <-reading)
	assert.Equal(t, "uploaded\n", <-tail)
	if os.Getenv(inRedis) == "" {
		assert.Less(t, time.Since(began), 4*time.Second)
	}
}
