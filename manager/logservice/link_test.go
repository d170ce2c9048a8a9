package logservice_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/logservice"
)

func TestLinksAreGoodOnceAndForATime(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	issue := func() string {
		var link struct{ Link string }
		require.NoError(t, json.Unmarshal([]byte(b.ok("POST", "/blob/link/upload"+query, "")), &link))
		return link.Link
	}
	link := issue()
	b.ok("PUT", link, "first")
	status, _ := b.do("PUT", link, "second")
	assert.Equal(t, 410, status)
	assert.Equal(t, "first", b.ok("GET", "/blob"+query, ""))

	tampered := issue()
	status, _ = b.do("PUT", tampered[:len(tampered)-2]+"xx", "forged")
	assert.Equal(t, 403, status)

	late := issue()
	b.now.Store(int64(2 * time.Hour))
	status, text := b.do("PUT", late, "late")
	assert.Equal(t, 403, status)
	assert.Contains(t, text, "expired")
	assert.Equal(t, "first", b.ok("GET", "/blob"+query, ""))
}

func TestALinkSurvivesAnUploadThatBreaksOff(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	var link struct{ Link string }
	require.NoError(t, json.Unmarshal([]byte(b.ok("POST", "/blob/link/upload"+query, "")), &link))

	// The request announces more bytes than it sends.
	body, pipe := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, link.Link, body)
	require.NoError(t, err)
	req.ContentLength = 100
	go func() {
		_, _ = io.WriteString(pipe, "half")
		_ = pipe.CloseWithError(io.ErrUnexpectedEOF)
	}()
	resp, err := b.http.Client().Do(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	status, _ := b.do("GET", "/blob"+query, "")
	assert.Equal(t, 404, status, "half an upload leaves no archive")
	b.ok("PUT", link.Link, "whole")
	assert.Equal(t, "whole", b.ok("GET", "/blob"+query, ""))
}

func TestALinkSurvivesAFullService(t *testing.T) {
	t.Parallel()
	b := setUp(t, func(c *logservice.Config) { c.MaxTotal = 1700 })
	b.ok("PUT", "/stream?accountID=acc&key=big", lines(0, strings.Repeat("x", 700)))
	var link struct{ Link string }
	require.NoError(t, json.Unmarshal([]byte(b.ok("POST", "/blob/link/upload"+query, "")), &link))
	status, _ := b.do("PUT", link.Link, strings.Repeat("y", 1200))
	assert.Equal(t, 507, status)
	b.ok("DELETE", "/stream?accountID=acc&key=big", "")
	b.ok("PUT", link.Link, strings.Repeat("y", 900))
}

func TestLinksWorkUnderAPrefix(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	outer := httptest.NewServer(http.StripPrefix("/a/logs", b.logs))
	defer outer.Close()
	var link struct{ Link string }
	require.NoError(t, json.Unmarshal([]byte(b.ok("POST", outer.URL+"/a/logs/blob/link/upload"+query, "")), &link))
	assert.True(t, strings.HasPrefix(link.Link, outer.URL+"/a/logs/blob/upload/"), link.Link)
	b.ok("PUT", link.Link, "x")
	assert.Equal(t, "x", b.ok("GET", "/blob"+query, ""))

	p := setUp(t, func(c *logservice.Config) { c.PublicURL = "https://logs.example.com/x/" })
	assert.Contains(t, p.ok("POST", "/blob/link/upload"+query, ""), `"https://logs.example.com/x/blob/upload/`)
}
