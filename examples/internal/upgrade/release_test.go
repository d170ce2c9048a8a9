package upgrade

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"aead.dev/minisign"
	"github.com/stretchr/testify/require"
)

// releases is an address of releases with a new key.
type releases struct {
	t   *testing.T
	dir string
	key minisign.PrivateKey
	pub string
}

func newReleases(t *testing.T) *releases {
	t.Helper()
	pub, key, err := minisign.GenerateKey(nil)
	require.NoError(t, err)
	return &releases{t: t, dir: t.TempDir(), key: key, pub: pub.String()}
}

func (r *releases) write(content []byte, elements ...string) {
	r.t.Helper()
	path := filepath.Join(append([]string{r.dir}, elements...)...)
	require.NoError(r.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(r.t, os.WriteFile(path, content, 0o644)) //nolint:gosec // a test server reads it
}

// signed writes a file and its signature.
func (r *releases) signed(content []byte, comment string, elements ...string) {
	r.t.Helper()
	r.write(content, elements...)
	elements[len(elements)-1] += ".minisig"
	r.write(r.sign(content, comment), elements...)
}

func (r *releases) sign(content []byte, comment string) []byte {
	in := minisign.NewReader(bytes.NewReader(content))
	_, err := io.Copy(io.Discard, in)
	require.NoError(r.t, err)
	return in.SignWithComments(r.key, comment, "test")
}

func (r *releases) stable(version string) {
	r.signed([]byte(version+"\n"), commentOf(version), "stable")
}

// release writes a release whose archive for this machine is given.
func (r *releases) release(version string, archive []byte) {
	name := archiveName("delegate", version)
	r.write(archive, version, name)
	r.signed(fmt.Appendf(nil, "%x  other\n%x  %s\n", sha256.Sum256(nil), sha256.Sum256(archive), name), commentOf(version), version, "SHA256SUMS")
}

func (r *releases) config(current string) Config {
	return Config{Program: "delegate", Current: current, Address: "file://" + r.dir, Key: r.pub}
}

// entry is an entry of an archive. The content of a bomb is size zeros.
type entry struct {
	name, content, link string
	kind                byte
	size                int64
}

func archiveOf(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Linkname: e.link, Mode: 0o6777, Size: max(e.size, int64(len(e.content)))}
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		require.NoError(t, w.WriteHeader(h))
		if e.size > 0 {
			_, err := io.CopyN(w, zeros{}, e.size)
			require.NoError(t, err)
			continue
		}
		_, err := io.WriteString(w, e.content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, z.Close())
	return b.Bytes()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// script is a program that states a version.
func script(version string) string { return "#!/bin/sh\necho delegate " + version + " of a test\n" }

func newPlace(t *testing.T) place {
	t.Helper()
	p := place{program: filepath.Join(t.TempDir(), "delegate")}
	require.NoError(t, os.WriteFile(p.program, []byte(script("v1.0.0")), 0o755)) //nolint:gosec // a program
	return p
}

// serve serves the releases over HTTP.
func (r *releases) serve() string {
	s := httptest.NewServer(http.FileServer(http.Dir(r.dir)))
	r.t.Cleanup(s.Close)
	return s.URL
}

func fetchFor(t *testing.T, p place, c Config, version string) error {
	t.Helper()
	_, err := fetch(context.WithoutCancel(t.Context()), p, c, version, false, "")
	return err
}
