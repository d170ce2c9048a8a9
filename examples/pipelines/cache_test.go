package main

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// bucketSecret is the value of a secret, which no output may show.
const bucketSecret = "not-a-real-secret-key-of-a-bucket"

func TestAStageCacheComesBackInTheNextRun(t *testing.T) {
	t.Parallel()
	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket("caches"))
	s3 := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(s3.Close)
	dir := t.TempDir()
	settings, secrets := filepath.Join(dir, "settings.yaml"), filepath.Join(dir, "secrets.env")
	require.NoError(t, os.WriteFile(settings, fmt.Appendf(nil, `
connectors: {cloud: {kind: aws, access_key_secret: access, secret_key_secret: secret}}
cache: {connector: cloud, bucket: caches, endpoint: %q, path_style: true, prefix: ci}
`, s3.URL), 0o600))
	require.NoError(t, os.WriteFile(secrets, []byte("access=not-a-real-access-key\nsecret="+bucketSecret+"\n"), 0o600))
	text := fmt.Sprintf(`
pipeline:
  identifier: p
  name: p
  stages:
    - stage:
        identifier: s
        name: s
        type: CI
        spec:
          runtime: {type: Docker, spec: {}}
          caching: {enabled: true, key: 'k-{{ os }}', paths: [modules, ~/.tool]}
          execution:
            steps:
              - step:
                  identifier: build
                  name: build
                  type: Run
                  spec:
                    command: |
                      if [ -e modules/m ] && [ -e ~/.tool/t ]; then echo "from the cache: $(cat modules/m) $(cat ~/.tool/t)"; fi
                      mkdir -p modules ~/.tool dist; echo first > modules/m; echo second > ~/.tool/t; echo app > dist/app
              - step:
                  identifier: put
                  name: put
                  type: S3Upload
                  spec: {connectorRef: cloud, bucket: caches, endpoint: %q, pathStyle: true, sourcePath: dist/app, target: out}
`, s3.URL)
	args := []string{"run", write(t, text), "--settings", settings, "--secret-file", secrets}

	code, out := execute(t, args...)
	require.Equal(t, 0, code, out)
	assert.Contains(t, out, `There is no cache "k-`)
	assert.Contains(t, out, `Saved the cache "k-`)
	assert.NotContains(t, out, "from the cache")
	assert.NotContains(t, out, bucketSecret)
	object, err := backend.GetObject("caches", "out/dist/app", nil)
	require.NoError(t, err)
	require.NoError(t, object.Contents.Close())
	assert.EqualValues(t, 4, object.Size)

	code, out = execute(t, args...)
	require.Equal(t, 0, code, out)
	assert.Contains(t, out, `Restored the cache "k-`)
	assert.Contains(t, out, "from the cache: first second")
	assert.Contains(t, out, "exists since", "it is not replaced")

	s3.Close() // the bucket is away
	code, out = execute(t, "run", write(t, strings.Replace(text, "type: S3Upload", "type: S3Upload\n                  when: {stageStatus: Success, condition: \"false\"}", 1)),
		"--settings", settings, "--secret-file", secrets)
	require.Equal(t, 0, code, out)
	assert.Contains(t, out, "The cache was not restored: ")
	assert.Contains(t, out, "The cache was not saved: ")
}
