package logservice_test

import (
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "gocloud.dev/blob/s3blob" // a program that archives to S3 imports this driver

	"github.com/delegate-io/dlite/manager/logservice"
)

// Archives in an S3 bucket: the test uploads one, creates one from a stream, reads both
// back, checks the totals, and removes expired ones. It is not parallel, because the
// driver reads its credentials from the environment.
func TestArchivesInABucketOfS3(t *testing.T) {
	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket("logs"))
	s3 := httptest.NewServer(gofakes3.New(backend).Server())
	defer s3.Close()
	t.Setenv("AWS_ACCESS_KEY_ID", "fake-id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "fake-secret")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	objects := func() (names []string) {
		list, err := backend.ListBucket("logs", nil, gofakes3.ListBucketPage{})
		require.NoError(t, err)
		for _, o := range list.Contents {
			names = append(names, o.Key)
		}
		return names
	}

	dir := t.TempDir()
	r := setUpIn(t, dir, func(c *logservice.Config) {
		c.Archive = "s3://logs?region=us-east-1&prefix=ours/&use_path_style=true&endpoint=" + s3.URL
		c.MaxAge = 24 * time.Hour
	})
	long := strings.Repeat(`{"out":"a line\n"}`+"\n", 500_000) // several parts
	r.ok("POST", "/blob?accountID=acc&key=up/loaded", long)
	assert.True(t, r.ok("GET", "/blob?accountID=acc&key=up/loaded", "") == long)
	r.ok("PUT", "/stream"+query, lines(0, "a\n", "b\n"))
	r.ok("DELETE", "/stream"+query+"&snapshot=true", "")
	require.Eventually(t, func() bool { return len(objects()) == 2 }, 20*time.Second, time.Millisecond)
	for _, name := range objects() {
		assert.True(t, strings.HasPrefix(name, "ours/acc/"), name)
	}
	left, err := filepath.Glob(filepath.Join(dir, "archive", "*"))
	require.NoError(t, err)
	assert.Empty(t, left)

	r.restart()
	r.now.Store(int64(11 * time.Minute))
	r.ok("POST", "/stream?accountID=acc&key=another", "") // triggers the background work
	assert.Equal(t, []string{"b\n"}, events(t, r.ok("GET", "/stream"+query+"&from=1", "")))

	status, _ := r.do("GET", "/blob?accountID=acc&key=none", "")
	assert.Equal(t, 404, status)
	r.now.Store(int64(25 * time.Hour))
	r.ok("POST", "/stream?accountID=acc&key=third", "")
	require.Eventually(t, func() bool { return len(objects()) == 0 }, 20*time.Second, time.Millisecond, "too old")
}

// If the bucket is unavailable when a stream is complete, the service serves the
// content from the stream. The content becomes the archive when the bucket is available
// again.
func TestABucketThatIsAwayCostsNothing(t *testing.T) {
	backend := s3mem.New()
	s3 := httptest.NewServer(gofakes3.New(backend).Server()) // the bucket does not exist yet
	defer s3.Close()
	t.Setenv("AWS_ACCESS_KEY_ID", "fake-id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "fake-secret")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	r := setUpIn(t, t.TempDir(), func(c *logservice.Config) {
		c.Archive = "s3://logs?region=us-east-1&use_path_style=true&endpoint=" + s3.URL
	})
	r.ok("PUT", "/stream"+query, lines(0, "a\n"))
	r.ok("DELETE", "/stream"+query+"&snapshot=true", "")
	status, text := r.do("POST", "/blob"+query, "x")
	assert.Equal(t, 500, status)
	assert.Contains(t, text, "error_msg")
	assert.Equal(t, []string{"a\n"}, outs(t, r.ok("GET", "/blob"+query, "")))
	r.restart()
	assert.Equal(t, []string{"a\n"}, outs(t, r.ok("GET", "/blob"+query, "")))
	require.NoError(t, backend.CreateBucket("logs"))
	for i := range 3 { // each request triggers the background work
		r.now.Store(int64(time.Duration(i+1) * 2 * time.Minute))
		r.ok("POST", fmt.Sprintf("/stream?accountID=acc&key=x%d", i), "")
	}
	require.Eventually(t, func() bool {
		list, err := backend.ListBucket("logs", nil, gofakes3.ListBucketPage{})
		return err == nil && len(list.Contents) == 1
	}, 20*time.Second, time.Millisecond)
}
