package logservice_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/manager/logservice"
)

// chunk is 1 MiB of log in lines of 100 bytes.
var chunk = func() []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < 1<<20; i++ {
		fmt.Fprintf(&b, "%08d %s\n", i, strings.Repeat("compiling a file ", 6)[:90])
	}
	return b.Bytes()
}()

func serve(b *testing.B) *httptest.Server {
	b.Helper()
	logs, err := logservice.New(logservice.Config{
		Dir: b.TempDir(), Authorize: logservice.Tokens(map[string]string{"acc": token}),
	})
	if err != nil {
		b.Fatal(err)
	}
	srv := httptest.NewServer(logs)
	b.Cleanup(func() { _ = logs.Close(); srv.Close() })
	return srv
}

// BenchmarkStepToArchive writes 64 MiB to the archive of a log service: through a
// stream and an upload to a service on files, through a live stream that becomes the
// archive, and to a service that discards everything. For comparison it also measures a
// plain file, one POST of the same bytes, and the bare transfers of an upload, without
// encoding, checks or an index: see bare.
func BenchmarkStepToArchive(b *testing.B) {
	nothing := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer nothing.Close()
	b.Run("upload", func(b *testing.B) {
		benchStream(b, serve(b).URL, func(c *logger.StreamConfig) { c.IndirectUpload = true })
	})
	b.Run("snapshot", func(b *testing.B) {
		benchStream(b, serve(b).URL, func(c *logger.StreamConfig) { c.SkipOpeningStream = true })
	})
	b.Run("writer", func(b *testing.B) {
		benchStream(b, nothing.URL, func(c *logger.StreamConfig) { c.IndirectUpload = true })
	})
	b.Run("bare", func(b *testing.B) {
		var dir string
		srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			f, err := os.OpenFile(filepath.Join(dir, filepath.Base(r.URL.Path)), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
			if err == nil {
				_, _ = io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{r.Body}, make([]byte, 1<<20))
				_ = f.Close()
			}
		}))
		defer srv.Close()
		var encoded []byte
		for line := range bytes.Lines(chunk) {
			text, _ := json.Marshal(logger.Line{Level: "info", Pos: 123456, Out: string(line), Time: time.Unix(0, 123456789).UTC()})
			encoded = append(append(encoded, text...), '\n')
		}
		measure(b, func() {
			dir = b.TempDir()
			bare(b, srv.Client(), srv.URL, dir, encoded)
		})
	})
	b.Run("file", func(b *testing.B) {
		measure(b, func() {
			f, err := os.Create(filepath.Join(b.TempDir(), "log"))
			if err != nil {
				b.Fatal(err)
			}
			for range chunks {
				_, _ = f.Write(chunk)
			}
			_ = f.Close()
		})
	})
	b.Run("post", func(b *testing.B) {
		measure(b, func() {
			var parts []io.Reader
			for range chunks {
				parts = append(parts, bytes.NewReader(chunk))
			}
			req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, nothing.URL, io.MultiReader(parts...))
			if err != nil {
				b.Fatal(err)
			}
			req.ContentLength = chunks * int64(len(chunk))
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				b.Fatal(err)
			}
			_ = resp.Body.Close()
		})
	})
}

// bare transfers the lines of a log as JSON in the same way as an upload: into a
// temporary file, in one request for each chunk into a second file, and in one request
// from there into a third file.
func bare(b *testing.B, client *http.Client, url, dir string, encoded []byte) {
	spool, err := os.Create(filepath.Join(dir, "spool"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = spool.Close(); _ = os.Remove(spool.Name()) }()
	post := func(to string, r io.Reader, n int64) {
		req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url+"/"+to, r)
		if err != nil {
			b.Fatal(err)
		}
		req.ContentLength = n
		resp, err := client.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	for range chunks {
		_, _ = spool.Write(encoded)
		post("journal", bytes.NewReader(encoded), int64(len(encoded)))
	}
	_, _ = spool.Seek(0, io.SeekStart)
	post("archive", io.MultiReader(spool), chunks*int64(len(encoded)))
}

// chunks is the number of chunks in a log.
const chunks = 64

// measure reports the elapsed time and the processor time for one log.
func measure(b *testing.B, log func()) {
	b.SetBytes(chunks * int64(len(chunk)))
	b.ReportAllocs()
	used := cpuTime()
	for b.Loop() {
		log()
	}
	if used = cpuTime() - used; used > 0 {
		b.ReportMetric(float64(b.N)*chunks*float64(len(chunk))/1e6/used.Seconds(), "MB/cpu-s")
	}
}

func benchStream(b *testing.B, url string, set func(*logger.StreamConfig)) {
	peak, n := uint64(0), 0
	measure(b, func() {
		n++
		cfg := logger.StreamConfig{
			URL: url, Token: token, Account: "acc", Key: strconv.Itoa(n), TempDir: b.TempDir(),
		}
		set(&cfg)
		s := logger.OpenStream(b.Context(), cfg)
		for range chunks {
			_, _ = s.Write(chunk)
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		peak = max(peak, m.HeapInuse)
		if err := s.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
	})
	b.ReportMetric(float64(peak)/(1<<20), "MiB-heap")
}

// BenchmarkStepToReader measures the time from a step's write to the reader of the live
// stream, with a line every 5 ms.
func BenchmarkStepToReader(b *testing.B) {
	srv := serve(b)
	s := logger.OpenStream(b.Context(), logger.StreamConfig{
		URL: srv.URL, Token: token, Account: "acc", Key: "live", TempDir: b.TempDir(),
	})
	_, _ = io.WriteString(s, "begin\n")
	var r *bufio.Reader
	for r == nil {
		req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, srv.URL+"/stream?accountID=acc&key=live", nil)
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("X-Harness-Token", token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode == http.StatusOK {
			r = bufio.NewReader(resp.Body)
		}
	}
	var took []time.Duration
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			line, err := r.ReadString('\n')
			if err != nil || strings.HasPrefix(line, "event: eof") {
				return
			}
			if _, text, ok := strings.Cut(line, `"out":"at `); ok {
				at, _ := strconv.ParseInt(text[:strings.IndexByte(text, '\\')], 10, 64)
				took = append(took, time.Since(time.Unix(0, at)))
			}
		}
	}()
	for b.Loop() {
		<-tick.C
		_, _ = fmt.Fprintf(s, "at %d\n", time.Now().UnixNano())
	}
	if err := s.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
	<-done
	slices.Sort(took)
	if n := len(took); n > 0 {
		b.ReportMetric(float64(took[n/2].Microseconds())/1000, "p50-ms")
		b.ReportMetric(float64(took[n*99/100].Microseconds())/1000, "p99-ms")
	}
}
