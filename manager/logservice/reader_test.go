package logservice_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/internal/livelog"
	"github.com/delegate-io/dlite/manager/logservice"
)

// missReporter reports each question for a stream that does not exist.
type missReporter struct {
	livelog.Streams
	misses chan struct{}
}

func (s *missReporter) State(ctx context.Context, id livelog.ID) (livelog.State, error) {
	st, err := s.Streams.State(ctx, id)
	if errors.Is(err, livelog.ErrUnknown) {
		select {
		case s.misses <- struct{}{}:
		default:
		}
	}
	return st, err
}

// setUpMisses starts a server whose streams report misses.
func setUpMisses(t *testing.T) (*bench, <-chan struct{}) {
	t.Helper()
	misses := make(chan struct{}, 1)
	b := setUp(t, func(c *logservice.Config) {
		var err error
		switch {
		case c.Streams != nil:
		case c.Dir != "":
			c.Streams, err = logservice.OpenStreams(filepath.Join(c.Dir, "streams"))
		default:
			c.Streams, c.Archive = logservice.NewStreams(), "mem://"
		}
		require.NoError(t, err)
		c.Streams = &missReporter{c.Streams, misses}
	})
	return b, misses
}

// get begins a GET. The test must close the body.
func (b *bench) get(pathAndQuery string) *http.Response {
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.http.URL+pathAndQuery, nil)
	if !assert.NoError(b.t, err) {
		return nil
	}
	req.Header.Set("X-Harness-Token", token)
	resp, err := b.http.Client().Do(req)
	if !assert.NoError(b.t, err) {
		return nil
	}
	return resp
}

func TestTextOfALiveLogArrivesAtOnceWithoutFraming(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.ok("POST", "/stream"+query, "")
	resp := b.get("/stream" + query + "&format=text")
	require.NotNil(t, resp)
	defer func() { _ = resp.Body.Close() }()
	assert.Equal(t, 200, resp.StatusCode)
	assert.Equal(t, "text/plain; charset=utf-8", resp.Header.Get("Content-Type"))
	for i, out := range []string{"a ü\n", "no newline"} {
		b.ok("PUT", "/stream"+query, lines(i, out))
		out = strings.TrimSuffix(out, "\n") + "\n" // a writer may remove the newline
		got := make([]byte, len(out))
		_, err := io.ReadFull(resp.Body, got)
		require.NoError(t, err)
		assert.Equal(t, out, string(got), "while the stream is open")
	}
	b.ok("PUT", "/stream"+query, lines(2, "<c>\r\n"))
	b.ok("DELETE", "/stream"+query, "")
	rest, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, "<c>\r\n", string(rest))
	assert.Equal(t, "<c>\r\n", b.ok("GET", "/stream"+query+"&format=text&from=2", ""))
	assert.Equal(t, "a ü\nno newline\n<c>\r\n", b.ok("GET", "/blob"+query+"&format=text", ""))
}

func TestReadersWaitForALog(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ parameters, want string }{
		{"&format=text", "late\n"},
		{"&format=text&wait=300", "late\n"},
		{"&format=sse&wait=300", "id: 0\ndata: {\"out\":\"late\\n\"}\n\nevent: eof\ndata: eof\n\n"},
		{"&wait=300", "id: 0\ndata: {\"out\":\"late\\n\"}\n\nevent: eof\ndata: eof\n\n"},
	} {
		t.Run(tt.parameters, func(t *testing.T) {
			t.Parallel()
			b, misses := setUpMisses(t)
			answer := make(chan string)
			go func() {
				defer close(answer)
				resp := b.get("/stream" + query + tt.parameters)
				if resp == nil {
					return
				}
				defer func() { _ = resp.Body.Close() }()
				assert.Equal(t, 200, resp.StatusCode)
				text, err := io.ReadAll(resp.Body)
				assert.NoError(t, err)
				answer <- string(text)
			}()
			<-misses
			b.ok("POST", "/stream"+query, "")
			b.ok("PUT", "/stream"+query, `[{"out":"late\n"}]`)
			b.ok("DELETE", "/stream"+query, "")
			assert.Equal(t, tt.want, <-answer)
		})
	}
}

func TestTheWaitForALogEnds(t *testing.T) {
	t.Parallel()
	t.Run("after its time, with 404", func(t *testing.T) {
		t.Parallel()
		status, text := setUp(t).do("GET", "/stream"+query+"&format=text&wait=1", "")
		assert.Equal(t, 404, status)
		assert.Contains(t, text, "no such log")
	})
	t.Run("after its time, with the archive that appeared meanwhile", func(t *testing.T) {
		t.Parallel()
		b, misses := setUpMisses(t)
		answer := make(chan string)
		go func() {
			_, text := b.do("GET", "/stream"+query+"&format=text&wait=1", "")
			answer <- text
		}()
		<-misses
		b.ok("POST", "/blob"+query, `{"out":"archived\n"}`)
		assert.Equal(t, "archived\n", <-answer)
	})
	t.Run("with the server", func(t *testing.T) {
		t.Parallel()
		b, misses := setUpMisses(t)
		answer := make(chan int)
		go func() {
			status, _ := b.do("GET", "/stream"+query+"&format=text", "")
			answer <- status
		}()
		<-misses
		require.NoError(t, b.logs.Close())
		assert.Equal(t, 503, <-answer)
	})
}

func TestTextOfAnArchive(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.ok("POST", "/blob"+query, `{"pos":41,"out":"a\n"}`+"\r\n\nno JSON\n"+`{"pos":43,"out":"b"}`)
	for _, path := range []string{"/blob" + query + "&format=text", "/stream" + query + "&format=text"} {
		resp := b.get(path)
		require.NotNil(t, resp)
		assert.Equal(t, "text/plain; charset=utf-8", resp.Header.Get("Content-Type"))
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, "a\nno JSON\nb\n", string(text), path)
	}
	b.ok("POST", "/blob"+query, `{"pos":-7,"out":"a"}`)
	assert.Equal(t, "a\n", b.ok("GET", "/blob"+query+"&format=text", ""))
}

func TestTextThatIsIncompleteHasNoEnd(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.ok("PUT", "/stream"+query, lines(0, "a\n"))
	resp := b.get("/stream" + query + "&format=text")
	require.NotNil(t, resp)
	defer func() { _ = resp.Body.Close() }()
	require.NoError(t, b.logs.Close())
	text, err := io.ReadAll(resp.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Contains(t, []string{"", "a\n"}, string(text))
}
