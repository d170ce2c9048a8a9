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
	_ "gocloud.dev/blob/s3blob" // what a program does that archives to S3

	"github.com/delegate-io/dlite/manager/logservice"
)

// Archives in a bucket of S3: uploaded, made of a stream, read back, counted, and
// removed when they are too old. Not parallel, for the driver's credentials are in
// the environment.
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
	r.ok("POST", "/stream?accountID=acc&key=another", "") // has it look
	assert.Equal(t, []string{"b\n"}, events(t, r.ok("GET", "/stream"+query+"&from=1", "")))

	status, _ := r.do("GET", "/blob?accountID=acc&key=none", "")
	assert.Equal(t, 404, status)
	r.now.Store(int64(25 * time.Hour))
	r.ok("POST", "/stream?accountID=acc&key=third", "")
	require.Eventually(t, func() bool { return len(objects()) == 0 }, 20*time.Second, time.Millisecond, "too old")
}

// The bucket is away when a stream is complete: its content is there all the same,
// and becomes the archive when the bucket is back.
func TestABucketThatIsAwayCostsNothing(t *testing.T) {
	backend := s3mem.New()
	s3 := httptest.NewServer(gofakes3.New(backend).Server()) // without the bucket
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
	for i := range 3 { // each has it look again
		r.now.Store(int64(time.Duration(i+1) * 2 * time.Minute))
		r.ok("POST", fmt.Sprintf("/stream?accountID=acc&key=x%d", i), "")
	}
	require.Eventually(t, func() bool {
		list, err := backend.ListBucket("logs", nil, gofakes3.ListBucketPage{})
		return err == nil && len(list.Contents) == 1
	}, 20*time.Second, time.Millisecond)
}
