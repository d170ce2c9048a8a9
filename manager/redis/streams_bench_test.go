package redis_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/delegate-io/dlite/internal/logheader"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/logservice"
	"github.com/delegate-io/dlite/manager/redis"
)

// places runs bench for each store of live streams, with the URLs of servers that form
// one log service. On files there is only one server.
func places(b *testing.B, bench func(b *testing.B, urls []string)) {
	b.Run("files", func(b *testing.B) {
		logs, err := logservice.New(logservice.Config{
			Dir: b.TempDir(), Authorize: logservice.Tokens(map[string]string{"acc": token}),
		})
		if err != nil {
			b.Fatal(err)
		}
		srv := httptest.NewServer(logs)
		defer func() { _ = logs.Close(); srv.Close() }()
		bench(b, []string{srv.URL, srv.URL})
	})
	for _, fsync := range []string{"everysec", "always"} {
		b.Run("redis-fsync-"+fsync, func(b *testing.B) {
			r := testbed.Redis(b, "--appendfsync", fsync)
			f := newFleet(b, r, 2, redis.Config{MaxStream: 4 << 30, MaxTotal: 8 << 30}, nil)
			bench(b, []string{f.http[0].URL, f.http[1].URL})
		})
	}
}

// BenchmarkLines measures how many lines of 100 bytes a log service accepts. Four
// writers send requests of a given number of lines, each to its own log. With Redis,
// they use two servers.
func BenchmarkLines(b *testing.B) {
	for _, size := range []int{1, 100, 5000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			places(b, func(b *testing.B, urls []string) { benchLines(b, urls, size) })
		})
	}
}

func benchLines(b *testing.B, urls []string, size int) {
	var logs atomic.Int64
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	defer client.CloseIdleConnections()
	b.SetParallelism(2)
	b.SetBytes(int64(100 * size))
	b.RunParallel(func(pb *testing.PB) {
		n := logs.Add(1)
		url := fmt.Sprintf("%s/stream?accountID=acc&key=%d-%d", urls[n%2], b.N, n)
		var body bytes.Buffer
		for pos := 0; pb.Next(); {
			body.Reset()
			for i := range size {
				fmt.Fprintf(&body, `%c{"level":"info","pos":%d,"out":"%s\n","time":"2024-05-06T07:08:09.123456789Z","args":null}`,
					"[,"[min(i, 1)], pos, "compiling a file")
				pos++
			}
			body.WriteByte(']')
			req, err := http.NewRequestWithContext(b.Context(), http.MethodPut, url, &body)
			if err != nil {
				b.Error(err)
				return
			}
			req.Header.Set(logheader.Token, token)
			req.Header.Set(logheader.Writer, "w")
			req.Header.Set(logheader.Resume, strconv.Itoa(pos-size))
			resp, err := client.Do(req)
			if err != nil {
				b.Error(err)
				return
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusNoContent {
				b.Errorf("status %d", resp.StatusCode)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)*float64(size)/b.Elapsed().Seconds(), "lines/s")
}

// BenchmarkLineToReader measures the time from a writer's request to the arrival of the
// line at a reader, with a line every 2 ms. With Redis, the reader uses another server
// than the writer.
func BenchmarkLineToReader(b *testing.B) {
	places(b, benchToReader)
}

func benchToReader(b *testing.B, urls []string) {
	query := "?accountID=acc&key=" + strconv.Itoa(b.N)
	ok(b, "POST", urls[0]+"/stream"+query, "")
	req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, urls[1]+"/stream"+query, nil)
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set(logheader.Token, token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	took := make([]time.Duration, 0, 100_000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for r := bufio.NewReader(resp.Body); ; {
			line, err := r.ReadString('\n')
			if err != nil || strings.HasPrefix(line, "event: eof") {
				return
			}
			if _, text, ok := strings.Cut(line, `"out":"at `); ok {
				at, _ := strconv.ParseInt(text[:strings.IndexByte(text, '"')], 10, 64)
				took = append(took, time.Since(time.Unix(0, at)))
			}
		}
	}()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for pos := 0; b.Loop(); pos++ {
		<-tick.C
		ok(b, "PUT", urls[0]+"/stream"+query, put(pos, fmt.Sprint("at ", time.Now().UnixNano())), logheader.Writer, "w")
	}
	ok(b, "DELETE", urls[0]+"/stream"+query, "")
	<-done
	slices.Sort(took)
	if n := len(took); n > 0 {
		b.ReportMetric(float64(took[n/2].Microseconds())/1000, "p50-ms")
		b.ReportMetric(float64(took[n*99/100].Microseconds())/1000, "p99-ms")
	}
}
