package logger

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// disk has space for a number of bytes.
type disk struct {
	dir  string
	room int64
	n    int
}

type diskFile struct {
	*os.File
	disk *disk
	size int64
}

func (d *disk) create(int64) (spoolFile, error) {
	d.n++
	f, err := os.Create(filepath.Join(d.dir, fmt.Sprint(d.n)))
	return &diskFile{File: f, disk: d}, err
}

func (f *diskFile) WriteAt(p []byte, at int64) (int, error) {
	if f.disk.room < int64(len(p)) {
		n, _ := f.File.WriteAt(p[:f.disk.room], at)
		return n, syscall.ENOSPC
	}
	f.disk.room -= int64(len(p))
	f.size += int64(len(p))
	return f.File.WriteAt(p, at)
}

func (f *diskFile) Close() error {
	f.disk.room += f.size
	return f.File.Close()
}

// tripper is a log service without a network.
type tripper func(op string, body []byte) int

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		_ = r.Body.Close()
	}
	return &http.Response{
		StatusCode: f(r.Method+" "+r.URL.Path+" "+r.URL.Query().Get("snapshot"), body), Body: http.NoBody, Request: r,
		Header: http.Header{},
	}, nil
}

// Rule L2: if the disk or the spool is full, the spool removes lines that the
// service has. The step runs at the speed of the service, and the live stream
// becomes the archive.
func TestAFullDiskCostsNothingWhileTheServiceTakesLines(t *testing.T) {
	t.Parallel()
	for name, maxSpool := range map[string]int64{"disk": 1 << 30, "spool": 64 << 10} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var got, last string
			hc := &http.Client{Transport: tripper(func(op string, body []byte) int {
				<-time.After(100 * time.Millisecond) // the service is slow
				mu.Lock()
				defer mu.Unlock()
				last = op
				var lines []Line
				_ = json.Unmarshal(body, &lines)
				for _, l := range lines {
					got += l.Out
				}
				return 200
			})}
			d := &disk{dir: t.TempDir(), room: 40 << 10}
			s := OpenStream(t.Context(), StreamConfig{URL: "http://logs", HTTPClient: hc, MaxMemory: 4 << 10, MaxSpool: maxSpool})
			if name == "disk" {
				s.spool.create = d.create
			}
			want := ""
			for i := range 5000 {
				l := fmt.Sprintf("line %d\n", i)
				want += l
				_, err := io.WriteString(s, l)
				require.NoError(t, err)
				require.LessOrEqual(t, cap(s.spool.mem), 16<<10, "memory is bounded")
			}
			require.NoError(t, s.Close(t.Context()), name)
			assert.Equal(t, want, got)
			assert.Equal(t, "DELETE /stream true", last, "a snapshot, for the beginning is nowhere else")
			left, err := os.ReadDir(d.dir)
			require.NoError(t, err)
			assert.Empty(t, left)
			assert.Less(t, s.spool.memStart-s.spool.base, int64(64<<10))
		})
	}
}

// If the service accepts nothing and the disk is full, the step waits once for
// MaxWait, and Close reports the lost lines.
func TestAFullDiskWithoutAServiceLosesLinesAndNoTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		status, blob := 500, 0
		hc := &http.Client{Transport: tripper(func(op string, body []byte) int {
			mu.Lock()
			defer mu.Unlock()
			if status == 200 && op == "POST /blob " {
				blob = len(body)
			}
			return status
		})}
		d := &disk{dir: t.TempDir(), room: 40 << 10}
		s := OpenStream(t.Context(), StreamConfig{
			URL: "http://logs", HTTPClient: hc, MaxMemory: 4 << 10, MaxWait: 3 * time.Second, IndirectUpload: true,
		})
		s.spool.create = d.create
		start := time.Now()
		for i := range 5000 {
			_, _ = fmt.Fprintf(s, "line %d\n", i)
		}
		assert.Equal(t, 3*time.Second, time.Since(start))
		mu.Lock()
		status = 200
		mu.Unlock()
		err := s.Close(context.Background())
		var loss *LossError
		require.ErrorAs(t, err, &loss)
		require.ErrorIs(t, err, syscall.ENOSPC)
		stored, lost, _ := s.spool.counts()
		assert.EqualValues(t, 5000, stored.Lines+lost.Lines)
		assert.Equal(t, lost, tally{loss.Lines, loss.Bytes})
		assert.Greater(t, stored.Bytes, int64(40<<10))
		assert.EqualValues(t, stored.Bytes, blob, "the stored lines are archived")
	})
}

func FuzzAppendLine(f *testing.F) {
	f.Add([]byte("plain\n"), int64(7))
	f.Add([]byte("wrong \xff\xc3 bytes \xed\xa0\x80"), int64(9))
	f.Add([]byte("eight at\na time\"1234567\\12345678\x1f2345678\x7f\x80"), int64(8))
	f.Add([]byte("q\"b\\ \x00\x1f\t\r\n \u2028\xff\xc3 é😀\uFFFD"), int64(1<<40))
	f.Fuzz(func(t *testing.T, text []byte, pos int64) {
		pos &= 1<<62 - 1
		now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
		var st timeFormatter
		raw := appendLine(nil, pos, text, st.format(now))
		var got Line
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		// The output of encoding/json for the same bytes.
		std, _ := json.Marshal(string(text))
		var want string
		_ = json.Unmarshal(std, &want)
		if got.Out != want || got.Pos != pos || !got.Time.Equal(now) || got.Level != "info" || posOf(raw) != pos {
			t.Fatalf("%q became %+v", text, got)
		}
		if !utf8.Valid(raw) {
			t.Fatalf("%q is no text", raw)
		}
		for i, c := range raw {
			if c == '\n' && i != len(raw)-1 {
				t.Fatalf("a newline within %q", raw)
			}
		}
	})
}

// The result equals that of time.RFC3339Nano, also after a previous time.
func TestTimeFormatterWritesRFC3339(t *testing.T) {
	t.Parallel()
	var s timeFormatter
	at := time.Date(2026, 12, 31, 23, 59, 57, 999_999_998, time.FixedZone("", 3600))
	for _, step := range []time.Duration{
		0, 1, 1, 1, 9, 90, 999_999_900 - 1, 100_000_000, time.Second, -time.Second, time.Minute, 24 * time.Hour,
		500 * time.Millisecond, 20 * time.Millisecond, -3 * time.Hour,
	} {
		at = at.Add(step)
		assert.Equal(t, at.UTC().Format(time.RFC3339Nano), string(s.format(at)))
	}
	assert.Equal(t, "1970-01-01T00:00:00Z", string(new(timeFormatter).format(time.Unix(0, 0))), "the first, in the second 0")
}

// The stream does not overwrite a buffer that a transport may still read.
func TestABatchInUseKeepsItsMemory(t *testing.T) {
	t.Parallel()
	var buf sendBuffer
	fill := func(text string) batch { return buf.end(append(buf.begin(), text...)) }
	line := func(pos int64) string {
		return string(appendLine(nil, pos, []byte("x\n"), new(timeFormatter).format(time.Unix(0, 0))))
	}
	first := fill(line(1) + line(2))
	assert.Equal(t, "["+strings.ReplaceAll(line(1)+line(2), "}\n", "},")[:len(first.list)-2]+"]", string(first.list))
	assert.Equal(t, tally{2, int64(len(line(1) + line(2)))}, first.tally)
	assert.EqualValues(t, 3, first.next)

	reading, _ := buf.body(first.list)()
	want := string(first.list)
	second := fill(line(7))
	got, err := io.ReadAll(reading)
	require.NoError(t, err)
	assert.Equal(t, want, string(got))

	done, _ := buf.body(second.list)()
	require.NoError(t, done.(io.Closer).Close())
	require.NoError(t, done.(io.Closer).Close())
	third := fill(line(8))
	assert.Same(t, &second.list[0], &third.list[0], "a batch without readers is used again")
}
