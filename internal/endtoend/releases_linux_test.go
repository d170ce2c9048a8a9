package endtoend_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"aead.dev/minisign"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
)

// firstRelease is the version of the delegate that is built. The text of the version is replaced in the programs of the
// other releases, so all versions have the same length.
const firstRelease = "v1.0.1000000"

func releaseOf(n int) string { return fmt.Sprint("v1.0.", 1000000+n) }

// releases is an address with signed releases of the delegate.
type releases struct {
	dir, public string
	key         minisign.PrivateKey
	program     []byte // of firstRelease
	n           int    // the number of the last release
}

func newReleases(t *testing.T) *releases {
	t.Helper()
	public, key, err := minisign.GenerateKey(nil)
	require.NoError(t, err)
	return &releases{dir: t.TempDir(), public: public.String(), key: key}
}

// settings returns the settings of a delegate that takes its upgrades from here.
func (r *releases) settings() []string {
	return []string{"UPGRADE_URL=file://" + r.dir, "UPGRADE_KEY=" + r.public}
}

// publish signs the next release, removes the previous one, and returns the version.
func (r *releases) publish() (version string, err error) {
	if err := os.RemoveAll(filepath.Join(r.dir, releaseOf(r.n))); err != nil {
		return "", err
	}
	r.n++
	version = releaseOf(r.n)
	program := bytes.ReplaceAll(r.program, []byte(firstRelease), []byte(version))
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.NoCompression) // it is unpacked once
	if err != nil {
		return "", err
	}
	archive := tar.NewWriter(z)
	if err := archive.WriteHeader(&tar.Header{Name: "delegate", Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(program))}); err != nil {
		return "", err
	}
	if _, err := archive.Write(program); err != nil {
		return "", err
	}
	if err := archive.Close(); err != nil {
		return "", err
	}
	if err := z.Close(); err != nil {
		return "", err
	}
	name := fmt.Sprintf("dlite-delegate_%s_%s_%s.tar.gz", version, runtime.GOOS, runtime.GOARCH)
	sums := fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(b.Bytes()), name)
	in := minisign.NewReader(bytes.NewReader(sums))
	if _, err := io.Copy(io.Discard, in); err != nil {
		return "", err
	}
	at := filepath.Join(r.dir, version)
	if err := os.MkdirAll(at, 0o755); err != nil {
		return "", err
	}
	for file, content := range map[string][]byte{
		name: b.Bytes(), "SHA256SUMS": sums, "SHA256SUMS.minisig": in.SignWithComments(r.key, "dlite "+version, "test"),
	} {
		if err := os.WriteFile(filepath.Join(at, file), content, 0o600); err != nil {
			return "", err
		}
	}
	return version, nil
}

// upgrade upgrades the running delegate to the next release, and waits until the manager knows it with that version.
func (s *rig) upgrade(ctx context.Context, r *releases) error {
	version, err := r.publish()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.dir, "delegate"), "upgrade", "--env-file", s.config(), "--to", version)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("upgrade to %s: %w: %s", version, err, out)
	}
	for {
		var all struct{ Delegates []api.Delegate }
		if err := s.ask(ctx, http.MethodGet, "/api/delegates?accountId=acc", nil, &all); err != nil {
			return err
		}
		for _, d := range all.Delegates {
			if d.Version == version && d.State == "ALIVE" {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the delegate does not return as %s: %w", version, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
