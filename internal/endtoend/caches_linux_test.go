package endtoend_test

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
)

// bucketKey is the value of the secret for the bucket.
const bucketKey = "not-a-real-secret-key-of-a-bucket"

// bucket is an S3 service with the bucket "caches".
type bucket struct {
	*httptest.Server

	backend *s3mem.Backend
}

// startBucket listens at an address that pods and machines reach.
func startBucket(t *testing.T, host string) *bucket {
	t.Helper()
	b := &bucket{backend: s3mem.New()}
	require.NoError(t, b.backend.CreateBucket("caches"))
	b.Server = httptest.NewUnstartedServer(gofakes3.New(b.backend).Server())
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(host, "0"))
	require.NoError(t, err)
	require.NoError(t, b.Listener.Close())
	b.Listener = l
	b.Start()
	t.Cleanup(b.Close)
	return b
}

// startCached starts a run of the pipeline with a cache.
func (s *pipelineScene) startCached(t *testing.T, infra string) api.Run {
	t.Helper()
	store := "/deep/store"
	if infra == "host" {
		store = "~/store"
	}
	values := map[string]string{"KEY": infra, "STORE": store, "ENDPOINT": s.bucket.URL}
	body, err := json.Marshal(api.RunRequest{YAML: fill(t, "testdata/pipelines/caches.yaml", s.infra[infra], values)})
	require.NoError(t, err)
	return s.decode(t, s.call(t, http.MethodPost, "/api/runs?accountId="+s.account, string(body)))
}

// endCached returns the log of an ended run.
func (s *pipelineScene) endCached(t *testing.T, run api.Run) string {
	t.Helper()
	run = s.end(t, run)
	log := s.outcome(t, run)
	assert.Equal(t, string("SUCCEEDED"), run.Status, "%s\n%s", reasons(run), log)
	assert.NotContains(t, log, bucketKey)
	return log
}

// cachesComeBack runs a pipeline twice on each infrastructure. The second run finds the files of the
// first.
func (s *pipelineScene) cachesComeBack(t *testing.T) {
	t.Helper()
	runs := map[string]api.Run{}
	for infra := range s.infra {
		runs[infra] = s.startCached(t, infra)
	}
	for infra, run := range runs {
		log := s.endCached(t, run)
		assert.Contains(t, log, `There is no cache "`+infra+`".`, infra)
		assert.Contains(t, log, `Saved the cache "`+infra+`": 4 files`, infra)
		assert.NotContains(t, log, "from the cache", infra)
		object, err := s.bucket.backend.GetObject("caches", infra+"/dist/app", nil)
		require.NoError(t, err, "the upload of %s", infra)
		require.NoError(t, object.Contents.Close())
		runs[infra] = s.startCached(t, infra)
	}
	for infra, run := range runs {
		log := s.endCached(t, run)
		assert.Contains(t, log, `Restored the cache "`+infra+`"`, infra)
		assert.Contains(t, log, "| from the cache: one and two\n", infra)
		assert.Equal(t, 1, strings.Count(log, "exists since"), infra)
	}
}
