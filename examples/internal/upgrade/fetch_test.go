//go:build unix

package upgrade

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"aead.dev/minisign"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Rule G4: a release is staged beside the program, which does not change. It comes over HTTP or from a directory.
func TestAReleaseIsStaged(t *testing.T) {
	t.Parallel()
	r := newReleases(t)
	r.stable("v1.1.0")
	r.release("v1.1.0", archiveOf(t, entry{name: "LICENSE", content: "text"}, entry{name: "delegate", content: script("v1.1.0")}))
	for name, address := range map[string]string{"file": "file://" + r.dir, "http": r.serve()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, c := newPlace(t), r.config("v1.0.0")
			c.Address = address
			version, err := Stable(t.Context(), c)
			require.NoError(t, err)
			require.Equal(t, "v1.1.0", version)
			require.NoError(t, fetchFor(t, p, c, version))
			b, err := os.ReadFile(p.next())
			require.NoError(t, err)
			assert.Equal(t, script("v1.1.0"), string(b))
			b, err = os.ReadFile(p.program)
			require.NoError(t, err)
			assert.Equal(t, script("v1.0.0"), string(b))
			j, err := p.read()
			require.NoError(t, err)
			assert.Equal(t, Staged, j.Phase)
			info, err := os.Stat(p.next())
			require.NoError(t, err)
			assert.Equal(t, os.FileMode(0o755), info.Mode(), "not the mode of the archive")
			assert.NoFileExists(t, p.download())
		})
	}
}

// Rule G4: nothing is staged from a release that is wrong in any part, and the error names the part.
func TestAWrongReleaseIsRefused(t *testing.T) {
	t.Parallel()
	good := func(v string) entry { return entry{name: "delegate", content: script(v)} }
	archive := archiveName("delegate", "v1.1.0")
	_, strange, err := minisign.GenerateKey(nil)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		spoil func(r *releases)
		want  string
	}{
		"unsigned":          {func(r *releases) { require.NoError(t, os.Remove(filepath.Join(r.dir, "v1.1.0", "SHA256SUMS.minisig"))) }, "no such file"},
		"not a signature":   {func(r *releases) { r.write([]byte("text"), "v1.1.0", "SHA256SUMS.minisig") }, "not one of minisign"},
		"a huge signature":  {func(r *releases) { r.write(make([]byte, maxSignature+1), "v1.1.0", "SHA256SUMS.minisig") }, "limit of 4096"},
		"huge sums":         {func(r *releases) { r.write(make([]byte, maxSums+1), "v1.1.0", "SHA256SUMS") }, "limit of 1048576"},
		"changed sums":      {func(r *releases) { r.write([]byte("x"), "v1.1.0", "SHA256SUMS") }, "the file or the signature was changed"},
		"a changed archive": {func(r *releases) { r.write(archiveOf(t, good("v1.1.0")), "v1.1.0", archive) }, "has the checksum"},
		"another version":   {func(r *releases) { r.signed([]byte("sums"), commentOf("v1.0.9"), "v1.1.0", "SHA256SUMS") }, `signed as "dlite v1.0.9"`},
		"another comment":   {func(r *releases) { r.signed([]byte("sums"), "v1.1.0", "v1.1.0", "SHA256SUMS") }, `signed as "v1.1.0"`},
		"another machine":   {func(r *releases) { r.signed([]byte("sums\n"), commentOf("v1.1.0"), "v1.1.0", "SHA256SUMS") }, "it was not built for"},
		"a signature unhashed": {func(r *releases) {
			sums, err := os.ReadFile(filepath.Join(r.dir, "v1.1.0", "SHA256SUMS"))
			require.NoError(t, err)
			r.write(minisign.SignWithComments(r.key, sums, commentOf("v1.1.0"), "x"), "v1.1.0", "SHA256SUMS.minisig")
		}, "not a prehashed one"},
		"another key": {func(r *releases) {
			r.key = strange
			r.release("v1.1.0", archiveOf(t, good("v1.1.0")))
		}, "and not with the configured one"},
		"a link": {func(r *releases) {
			r.release("v1.1.0", archiveOf(t, entry{name: "delegate", kind: '2', link: "/bin/sh"}))
		}, "not a regular file"},
		"a hard link": {func(r *releases) {
			r.release("v1.1.0", archiveOf(t, entry{name: "delegate", kind: '1', link: "/bin/sh"}))
		}, "not a regular file"},
		"a directory":     {func(r *releases) { r.release("v1.1.0", archiveOf(t, entry{name: "delegate/", kind: '5'})) }, "not a regular file"},
		"twice":           {func(r *releases) { r.release("v1.1.0", archiveOf(t, good("v1.1.0"), good("v1.1.0"))) }, "twice"},
		"another path":    {func(r *releases) { r.release("v1.1.0", archiveOf(t, entry{name: "../delegate", content: "x"})) }, "does not have the program"},
		"no archive":      {func(r *releases) { r.release("v1.1.0", []byte("more than ten bytes of text")) }, "gzip"},
		"many entries":    {func(r *releases) { r.release("v1.1.0", archiveOf(t, make([]entry, maxEntries+1)...)) }, "more than 1000 files"},
		"a bomb beside":   {func(r *releases) { r.release("v1.1.0", bomb(t, "LICENSE")) }, "MiB uncompressed"},
		"a bomb":          {func(r *releases) { r.release("v1.1.0", bomb(t, "delegate")) }, "MiB uncompressed"},
		"a wrong version": {func(r *releases) { r.release("v1.1.0", archiveOf(t, good("v1.0.9"))) }, `states that it is "delegate v1.0.9`},
		"no program":      {func(r *releases) { r.release("v1.1.0", archiveOf(t, entry{name: "delegate", content: "\x7fELF"})) }, "does not run on this machine"},
		"a failing one": {func(r *releases) {
			r.release("v1.1.0", archiveOf(t, entry{name: "delegate", content: "#!/bin/sh\nexit 3\n"}))
		}, "exit status 3"},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.HasPrefix(name, "a bomb") && testing.Short() {
				t.Skip("compresses a gigabyte")
			}
			t.Parallel()
			r, p := newReleases(t), newPlace(t)
			r.release("v1.1.0", archiveOf(t, good("v1.1.0"), entry{name: "pad", content: name}))
			c.spoil(r)
			config := r.config("v1.0.0")
			if name == "another key" {
				config.Key = newReleases(t).pub
			}
			err := fetchFor(t, p, config, "v1.1.0")
			require.ErrorContains(t, err, c.want)
			entries, err := os.ReadDir(p.dir())
			require.NoError(t, err)
			for _, e := range entries {
				assert.Contains(t, []string{"delegate", "delegate.upgrade.lock"}, e.Name(), "left behind")
			}
		})
	}
}

// bomb is an archive that grows beyond the limit.
func bomb(t *testing.T, name string) []byte {
	t.Helper()
	return archiveOf(t, entry{name: name, size: maxProgram + 1})
}

// Rule G4: an older version needs a permission, and the stable version must be signed.
func TestDowngradesAndStableVersions(t *testing.T) {
	t.Parallel()
	r, p := newReleases(t), newPlace(t)
	c := r.config("v1.2.0")
	r.release("v1.1.0", archiveOf(t, entry{name: "delegate", content: script("v1.1.0")}))
	require.ErrorIs(t, fetchFor(t, p, c, "v1.1.0"), ErrDowngrade)
	require.ErrorIs(t, fetchFor(t, p, c, "v1.2.0"), ErrCurrent)
	for _, wrong := range []string{"", "1.2.3", "v1.2", "v1.2.3/../v9.9.9", "v1.2.3+build", "..", "v" + strings.Repeat("1", 80) + ".0.0"} {
		require.ErrorContains(t, fetchFor(t, p, c, wrong), "not a version", wrong)
	}
	_, err := fetch(t.Context(), p, c, "v1.1.0", true, "")
	require.NoError(t, err)

	_, err = Stable(t.Context(), c)
	require.ErrorContains(t, err, "no such file")
	r.stable("v1.3.0")
	r.write([]byte("v1.4.0\n"), "stable")
	_, err = Stable(t.Context(), c)
	require.ErrorContains(t, err, "was changed")
	r.signed([]byte("v1.2.3/../x"), "", "stable")
	_, err = Stable(t.Context(), c)
	require.ErrorContains(t, err, "not a version")
	r.signed(bytes.Repeat([]byte("v"), maxStable+1), "", "stable")
	_, err = Stable(t.Context(), c)
	require.ErrorContains(t, err, "limit of")
}

// A wrong setting is named, and no error shows a password.
func TestWrongSettingsOfUpgrades(t *testing.T) {
	t.Parallel()
	key := newReleases(t).pub
	for address, want := range map[string]string{
		"":                                 "not set",
		"releases.example":                 "must begin with",
		"ftp://releases.example":           "must begin with",
		"https://u:visibly-fake@r.example": "user or password",
		"https://r.example/?token=x":       "query",
		"file://host/x":                    "absolute path",
		"file:x":                           "absolute path",
	} {
		err := (&Config{Address: address, Key: key}).Check()
		require.ErrorContains(t, err, "UPGRADE_URL: ")
		require.ErrorContains(t, err, want, address)
		require.NotContains(t, err.Error(), "visibly-fake")
	}
	for text, want := range map[string]string{"": "not set", "RWQf": "not a public key of minisign", strings.Repeat("A", 56): "not a public key"} {
		err := (&Config{Address: "https://r.example", Key: text}).Check()
		require.ErrorContains(t, err, "UPGRADE_KEY: ")
		require.ErrorContains(t, err, want, text)
	}
}

// The limits hold against a server that lies about sizes, redirects without end or leaves https.
func TestHostileServersOfReleases(t *testing.T) {
	t.Parallel()
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	mux := http.NewServeMux()
	mux.HandleFunc("/endless/", func(w http.ResponseWriter, _ *http.Request) {
		for range 1 << 12 {
			if _, err := w.Write(make([]byte, 4096)); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/short/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "50")
		_, _ = w.Write([]byte("v1.2.3"))
	})
	mux.HandleFunc("/loop/", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path+"x", http.StatusFound) })
	mux.HandleFunc("/plain/", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, plain.URL, http.StatusFound) })
	mux.HandleFunc("/down/", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	s := httptest.NewTLSServer(mux)
	t.Cleanup(s.Close)
	for path, want := range map[string]string{
		"endless": "more than the limit of", "short": "unexpected EOF", "loop": "more than 5 redirects",
		"plain": "redirects from https to http", "down": "502 Bad Gateway", "none": "there is no such file",
	} {
		_, err := Stable(t.Context(), Config{Address: s.URL + "/" + path, Key: newReleases(t).pub, HTTPClient: s.Client()})
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, s.URL+"/"+path+"/stable")
	}
}

// FuzzChecksum: no text of checksums makes the parser fail in another way than with an error.
func FuzzChecksum(f *testing.F) {
	f.Add([]byte(strings.Repeat("0", 64)+"  a\n"), "a")
	f.Add([]byte("zz *a"), "a")
	f.Fuzz(func(t *testing.T, sums []byte, name string) {
		if sum, err := checksum(sums, name); err == nil && len(sum) != 32 {
			t.Fatalf("a checksum of %d bytes", len(sum))
		}
	})
}
