package storage

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// publish stores an archive under the key "k", as an attacker with access to the bucket could.
func (s *service) publish(t testing.TB, archive []byte) {
	t.Helper()
	sum := sha256.Sum256(archive)
	p := &part{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(archive))}
	s.write(t, p.object(), archive)
	x, err := json.Marshal(index{Version: indexVersion, Key: "k", Format: formatTar, Parts: []*part{p}})
	require.NoError(t, err)
	s.write(t, layout+"keys/k", x)
}

func archiveOf(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		content := []byte("hostile")
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(content))
		}
		require.NoError(t, w.WriteHeader(&h))
		if h.Typeflag == tar.TypeReg {
			_, err := w.Write(content)
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

func TestAHostileArchiveStaysInItsPlaces(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	link := func(name, to string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
	}
	for name, c := range map[string]struct {
		entries []tar.Header
		paths   string
		want    string
	}{
		"parent":               {[]tar.Header{{Name: "../evil"}}, "", "leaves its directory"},
		"parent inside":        {[]tar.Header{{Name: "a/../../evil"}}, "", "leaves its directory"},
		"parent of the home":   {[]tar.Header{{Name: "~/../evil"}}, "", "leaves its directory"},
		"parent of a mount":    {[]tar.Header{{Name: "/go/pkg/../../../evil"}}, "", "is not in the workspace"},
		"absolute":             {[]tar.Header{{Name: outside + "/evil"}}, "", "is not in the workspace"},
		"the workspace":        {[]tar.Header{{Name: "/workspace"}}, "", "replaces a whole directory"},
		"the home":             {[]tar.Header{link("~", outside)}, "", "replaces a whole directory"},
		"link and file":        {[]tar.Header{link("a", outside), {Name: "a/evil"}}, "", "escapes"},
		"link to parent":       {[]tar.Header{link("a", "../.."), {Name: "a/evil"}}, "", "escapes"},
		"link and directory":   {[]tar.Header{link("a", outside), {Typeflag: tar.TypeDir, Name: "a/evil/", Mode: 0o755}}, "", "escapes"},
		"link over link":       {[]tar.Header{link("a", outside), {Name: "a"}}, "", ""},
		"hard link":            {[]tar.Header{{Typeflag: tar.TypeLink, Name: "a", Linkname: "/etc/passwd"}}, "", "is not a file"},
		"device":               {[]tar.Header{{Typeflag: tar.TypeChar, Name: "a"}}, "", "is not a file"},
		"pipe":                 {[]tar.Header{{Typeflag: tar.TypeFifo, Name: "a"}}, "", "is not a file"},
		"not listed":           {[]tar.Header{{Name: "other/evil"}}, `["node_modules"]`, "is not one of the paths"},
		"not listed, home":     {[]tar.Header{{Name: "~/.bashrc"}}, `["."]`, "is not one of the paths"},
		"similar name":         {[]tar.Header{{Name: "node_modules2/evil"}}, `["node_modules"]`, "is not one of the paths"},
		"beside a listed one":  {[]tar.Header{{Name: outside + "/evil"}}, `["` + outside + `/cache"]`, "is not one of the paths"},
		"link in a listed one": {[]tar.Header{link(outside+"/cache/l", ".."), {Name: outside + "/cache/l/evil"}}, `["` + outside + `/cache"]`, "escapes"},
		"link as a listed one": {[]tar.Header{link(outside+"/cache", "."), {Name: outside + "/cache/evil"}}, `["` + outside + `/cache"]`, "replaces a whole directory"},
		"link to a listed one": {[]tar.Header{link(outside+"/a/b", outside), {Name: outside + "/a/b/c/evil"}}, `["` + outside + `/a/b/c", "` + outside + `/a"]`, "escapes"},
		"set-user-id":          {[]tar.Header{{Name: "tool", Mode: 0o4755}}, "", ""},
		"a file as directory":  {[]tar.Header{{Name: "f"}, {Name: "f/evil"}}, "", "file exists"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			m := newMachine(t, s)
			s.publish(t, archiveOf(t, c.entries...))
			out := m.must(t, "restore", map[string]string{"PLUGIN_CACHE_KEY": "k", "PLUGIN_PATHS": c.paths})
			if c.want != "" {
				assert.Contains(t, out, "The cache was not restored: ")
				assert.Contains(t, out, c.want)
			} else {
				assert.Contains(t, out, "Restored")
			}
			for _, dir := range []string{outside, filepath.Dir(m.workspace)} {
				found, err := filepath.Glob(dir + "/evil")
				require.NoError(t, err)
				assert.Empty(t, found)
			}
			if name == "set-user-id" {
				info, err := os.Stat(filepath.Join(m.workspace, "tool"))
				require.NoError(t, err)
				assert.Equal(t, os.FileMode(0o755), info.Mode())
			}
		})
	}
}

func TestADamagedCacheRestoresNothing(t *testing.T) {
	t.Parallel()
	good := archiveOf(t, tar.Header{Name: "f"})
	for name, c := range map[string]struct {
		damage func(s *service)
		want   string
	}{
		"a part is missing": {func(s *service) {
			s.setRefuse(func(w http.ResponseWriter, r *http.Request) bool {
				if strings.Contains(r.URL.Path, "/parts/") {
					w.WriteHeader(http.StatusNotFound)
					return true
				}
				return false
			})
		}, "is not complete: part "},
		"another content": {func(s *service) {
			for _, name := range s.objects(t) {
				if strings.Contains(name, "/parts/") {
					s.write(t, name, bytes.ToUpper(good))
				}
			}
		}, "does not have its checksum"},
		"a larger part": {func(s *service) {
			for _, name := range s.objects(t) {
				if strings.Contains(name, "/parts/") {
					s.write(t, name, append(bytes.Clone(good), good...))
				}
			}
		}, "it may have"},
		"no index":      {func(s *service) { s.write(t, layout+"keys/k", []byte("<html>")) }, "is not an index"},
		"other version": {func(s *service) { s.write(t, layout+"keys/k", []byte(`{"version":2}`)) }, "is not an index of this version"},
		"no parts":      {func(s *service) { s.write(t, layout+"keys/k", []byte(`{"version":1}`)) }, "it has 0 parts"},
		"null part":     {func(s *service) { s.write(t, layout+"keys/k", []byte(`{"version":1,"parts":[null]}`)) }, "is null"},
		"a path as checksum": {func(s *service) {
			s.write(t, layout+"keys/k", []byte(`{"version":1,"parts":[{"sha256":"../../secret","size":1}]}`))
		}, "no valid checksum"},
		"a large index": {func(s *service) { s.write(t, layout+"keys/k", make([]byte, maxIndex+1)) }, "it may have"},
		"a part that grows": {func(s *service) {
			c, err := newCodec(formatZstd)
			require.NoError(t, err)
			bomb, err := c.compress(make([]byte, 100*partSize))
			require.NoError(t, err)
			sum := sha256.Sum256(bomb)
			p := &part{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(bomb))}
			s.write(t, p.object(), bomb)
			x, _ := json.Marshal(index{Version: 1, Format: formatZstd, Parts: []*part{p}})
			s.write(t, layout+"keys/k", x)
		}, "size"},
		"unknown format": {func(s *service) {
			sum := sha256.Sum256(good)
			x, _ := json.Marshal(index{Version: 1, Format: "rar", Parts: []*part{{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(good))}}})
			s.write(t, layout+"keys/k", x)
		}, `format "rar" is not known`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			m := newMachine(t, s)
			s.publish(t, good)
			c.damage(s)
			assert.Contains(t, m.must(t, "restore", map[string]string{"PLUGIN_CACHE_KEY": "k"}), c.want)
			assert.Empty(t, tree(t, m.workspace))
			_, err := m.do(t, "restore", map[string]string{"PLUGIN_CACHE_KEY": "k", "PLUGIN_FAIL_RESTORE_IF_KEY_NOT_PRESENT": "true"})
			assert.ErrorContains(t, err, c.want)
		})
	}
}

// FuzzUnpack restores archives of a hostile text. Bytes that are mutated themselves would hardly ever have
// the checksum of a tar header. Each line is an entry: its type, its name, and the target of a link. The sign @
// is the directory of the test.
func FuzzUnpack(f *testing.F) {
	for _, text := range []string{ // the first error ends an archive
		"0\ta/b\n2\tl\t..\n0\tl/evil", "5\td/\n0\t~/x\n2\td\t@\n0\td/evil", "0\t../evil", "2\thome\t@\n0\t~/evil", "2\ta\tb\n2\tb\t../../../..\n0\ta/evil",
		"1\th\t@/f", "0\t/workspace/../../evil", "2\t~\t@",
	} {
		f.Add(text, false)
	}
	for _, text := range []string{
		"0\t@/cache/f\n2\t@/cache/l\t..\n0\t@/cache/l/evil", "2\t@/cache\t@\n0\t@/cache/evil", "0\t@/cache\n0\t@/cache", "0\t@/evil", "0\t@/cachevil",
	} {
		f.Add(text, true)
	}
	f.Fuzz(func(t *testing.T, text string, listed bool) {
		dir := t.TempDir()
		stage := filepath.Join(dir, "1", "2", "3", "stage") // deep, to see what links to parents reach
		p := &places{workspace: filepath.Join(stage, "workspace"), home: filepath.Join(stage, "workspace", "home")}
		if listed {
			p.listed = []string{filepath.Join(stage, "cache")}
		}
		u := &unpacker{ctx: t.Context(), places: p}
		_ = u.unpack(bytes.NewReader(hostileArchive(t, strings.ReplaceAll(text, "@", stage))))
		for _, found := range []string{dir, filepath.Join(dir, "1"), filepath.Join(dir, "1", "2"), filepath.Join(dir, "1", "2", "3"), stage} {
			entries, err := os.ReadDir(found)
			if err != nil {
				continue
			}
			for _, e := range entries {
				at := filepath.Join(found, e.Name())
				inside := e.IsDir() && strings.HasPrefix(stage+"/", at+"/") || at == p.workspace || listed && at == p.listed[0]
				require.True(t, inside, "%s was written", at)
			}
		}
	})
}

// hostileArchive returns an archive of the lines that can be entries.
func hostileArchive(t testing.TB, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for line := range strings.Lines(text) {
		kind, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		name, target, _ := strings.Cut(rest, "\t")
		if kind == "" {
			continue
		}
		h := tar.Header{Typeflag: kind[0], Name: name, Linkname: target, Mode: 0o755}
		if h.Typeflag == tar.TypeReg {
			h.Size = 1
		}
		if w.WriteHeader(&h) == nil && h.Size > 0 {
			_, err := w.Write([]byte("x"))
			require.NoError(t, err)
		}
	}
	_ = w.Close()
	return b.Bytes()
}
