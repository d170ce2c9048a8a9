package storage

import (
	"archive/tar"
	"bytes"
	"crypto/md5" //nolint:gosec // as the plugin
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func compressed(t *testing.T, format string, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	switch format {
	case formatGzip:
		w := gzip.NewWriter(&b)
		_, err := w.Write(data)
		require.NoError(t, err)
		require.NoError(t, w.Close())
	case formatZstd:
		w, err := zstd.NewWriter(&b)
		require.NoError(t, err)
		_, err = w.Write(data)
		require.NoError(t, err)
		require.NoError(t, w.Close())
	default:
		return data
	}
	return b.Bytes()
}

func TestACacheOfThePluginIsRestored(t *testing.T) {
	t.Parallel()
	sum := md5.Sum([]byte("lock")) //nolint:gosec // as the plugin
	key := "npm-" + hex.EncodeToString(sum[:])
	for _, format := range []string{formatTar, formatGzip, formatZstd} {
		for _, prefix := range []string{"", "web/"} {
			s := newService(t)
			m := newMachine(t, s)
			file(t, m.workspace, "package-lock.json", "lock")
			mounts, err := json.Marshal(map[string]string{"/workspace": m.workspace, "/harness": m.workspace, "/go/pkg": m.shared})
			require.NoError(t, err)
			outputs := filepath.Join(t.TempDir(), "output")
			env := map[string]string{
				"PLUGIN_CACHE_KEY": `npm-{{ checksum "package-lock.json" }}`, "DLITE_MOUNTS": string(mounts), "DRONE_REPO_NAME": "web", "DRONE_OUTPUT": outputs,
			}
			out := m.must(t, "restore", env)
			require.Contains(t, out, "There is no cache")
			// A path that begins with a slash, and one that is relative.
			s.write(t, prefix+key+"/harness/node_modules", compressed(t, format, archiveOf(t,
				tar.Header{Typeflag: tar.TypeDir, Name: "/harness/node_modules", Mode: 0o755}, tar.Header{Name: "/harness/node_modules/a"}, tar.Header{Name: "/go/pkg/mod/b"})))
			s.write(t, prefix+key+"/vendor", compressed(t, format, archiveOf(t, tar.Header{Name: "vendor/c"})))
			out = m.must(t, "restore", env)
			assert.Contains(t, out, "Restored the cache", format)
			assert.Contains(t, out, "of another program: 2 archives, 4 files", format)
			for _, name := range []string{filepath.Join(m.workspace, "node_modules/a"), filepath.Join(m.shared, "mod/b"), filepath.Join(m.workspace, "vendor/c")} {
				text, err := os.ReadFile(name)
				require.NoError(t, err, format)
				assert.Equal(t, "hostile", string(text))
			}
			text, err := os.ReadFile(outputs)
			require.NoError(t, err)
			assert.Equal(t, "cacheHit=false\ncacheHit=true\n", string(text))
			// A cache that this program saved comes first, and has the workspace under one name.
			file(t, m.workspace, "own/x", "1")
			env["PLUGIN_PATHS"] = `["/harness/own"]`
			m.must(t, "save", env)
			require.NoError(t, os.RemoveAll(filepath.Join(m.workspace, "own")))
			delete(env, "PLUGIN_PATHS")
			delete(env, "DLITE_MOUNTS") // another stage, whose containers have no /harness
			assert.NotContains(t, m.must(t, "restore", env), "another program")
			assert.FileExists(t, filepath.Join(m.workspace, "own/x"))
		}
	}
}

func TestAnArchiveOfAnotherProgramStaysInItsPlaces(t *testing.T) {
	t.Parallel()
	s := newService(t)
	m := newMachine(t, s)
	for name, archive := range map[string][]byte{
		"outside": archiveOf(t, tar.Header{Name: "/etc/passwd-of-a-test"}), "a hard link": archiveOf(t, tar.Header{Typeflag: tar.TypeLink, Name: "l", Linkname: "/etc/passwd"}),
		"no archive": []byte("text"), "broken gzip": {0x1f, 0x8b, 1, 2}, "broken zstd": {0x28, 0xb5, 0x2f, 0xfd, 1},
	} {
		key := strings.ReplaceAll(name, " ", "-")
		s.write(t, key+"/x", archive)
		out, err := m.do(t, "restore", map[string]string{"PLUGIN_CACHE_KEY": key})
		require.NoError(t, err)
		assert.Contains(t, out, "The cache was not restored: the archive", name)
		_, err = m.do(t, "restore", map[string]string{"PLUGIN_CACHE_KEY": key, "PLUGIN_FAIL_RESTORE_IF_KEY_NOT_PRESENT": "true"})
		require.Error(t, err, name)
	}
	assert.NoFileExists(t, "/etc/passwd-of-a-test")
}

func TestAKeyHasValuesOfTheRun(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newService(t))
	file(t, m.workspace, "pom.xml", "x")
	for _, key := range []string{`{{ checksum 'pom.xml' }}`, `{{ checksum pom.xml }}`, `{{ checksum "pom.xml" }}`} {
		out := m.must(t, "restore", map[string]string{"PLUGIN_CACHE_KEY": "{{ .Repo.Name }}-{{ .Commit.Branch }}-" + key, "DRONE_REPO_NAME": "web", "DRONE_COMMIT_BRANCH": "main"})
		assert.Contains(t, out, `There is no cache "web-main-`)
	}
}

// A role is assumed with the keys of the connector, or with the keys of the environment.
func TestARoleIsAssumedWithTheKeysThatThereAre(t *testing.T) {
	var asked []string
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header.Get("Authorization")+" "+r.Header.Get("X-Amz-Security-Token"))
		_, _ = w.Write([]byte(`<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials><AccessKeyId>role-key</AccessKeyId>` +
			`<SecretAccessKey>role-secret</SecretAccessKey><SessionToken>role-token</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>`))
	}))
	defer sts.Close()
	t.Setenv("AWS_ACCESS_KEY_ID", "own-key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "not-a-real-secret")
	t.Setenv("AWS_SESSION_TOKEN", "own-token")
	settings := func(more map[string]string) *settings {
		s, err := readSettings(func(name string) string {
			return map[string]string{"PLUGIN_BUCKET": "b", "PLUGIN_ENDPOINT": sts.URL, "PLUGIN_ASSUME_ROLE": "arn:aws:iam::1:role/ci"}[name] + more[name]
		})
		require.NoError(t, err)
		return s
	}
	for _, more := range []map[string]string{{}, {"PLUGIN_ACCESS_KEY": "connector-key", "PLUGIN_SECRET_KEY": "not-a-real-secret"}} {
		keys, err := settings(more).credentials()
		require.NoError(t, err)
		got, err := keys.GetWithContext(nil)
		require.NoError(t, err)
		assert.Equal(t, "role-key", got.AccessKeyID)
	}
	require.Len(t, asked, 2)
	assert.Contains(t, asked[0], "Credential=own-key/")
	assert.Contains(t, asked[0], "own-token")
	assert.Contains(t, asked[1], "Credential=connector-key/")
}
