package upgrade

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"aead.dev/minisign"

	"github.com/delegate-io/dlite/internal/atomicfile"
)

// Config says where releases come from.
type Config struct {
	Program string // its name in a release, such as delegate
	Current string // its version
	Address string // of the releases
	Key     string // public key of minisign that signs them
	// HTTPClient has the proxy and the certificates of the program. Nil is http.DefaultClient.
	HTTPClient *http.Client
	// Bound is how long a new program may take to register. Zero is two minutes.
	Bound time.Duration
}

// DefaultBound is the default of Config.Bound.
const DefaultBound = 2 * time.Minute

// Errors for errors.Is.
var (
	// ErrCurrent means that the program has the version already.
	ErrCurrent = errors.New("this version runs already")
	// ErrDowngrade means that the version is older, and that a downgrade was not allowed.
	ErrDowngrade = errors.New("it is older than the running version: allow that with --allow-downgrade")
	// ErrBusy means that another process upgrades the program.
	ErrBusy = errors.New("another process upgrades this program")
)

// Check checks the settings.
func (c *Config) Check() error {
	_, err := newSource(c.Address, c.HTTPClient)
	if err != nil {
		err = fmt.Errorf("UPGRADE_URL: %w", err)
	}
	_, keyErr := parseKey(c.Key)
	if keyErr != nil {
		keyErr = fmt.Errorf("UPGRADE_KEY: %w", keyErr)
	}
	return errors.Join(err, keyErr)
}

// Stable returns the version that the address names as stable.
func Stable(ctx context.Context, c Config) (string, error) {
	from, key, err := c.open()
	if err != nil {
		return "", err
	}
	text, err := from.small(ctx, maxStable, "stable")
	if err != nil {
		return "", err
	}
	signature, err := from.small(ctx, maxSignature, "stable.minisig")
	if err != nil {
		return "", err
	}
	if _, err := verify(key, text, signature); err != nil {
		return "", fmt.Errorf("the file stable of %s: %w", from.base.Redacted(), err)
	}
	version := strings.TrimSpace(string(text))
	return version, checkVersion(version)
}

func (c *Config) open() (*source, minisign.PublicKey, error) {
	if err := c.Check(); err != nil {
		return nil, minisign.PublicKey{}, err
	}
	from, err := newSource(c.Address, c.HTTPClient)
	if err != nil {
		return nil, minisign.PublicKey{}, err
	}
	key, err := parseKey(c.Key)
	return from, key, err
}

// allowed refuses the running version, and an older one unless a downgrade is allowed.
func (c *Config) allowed(version string, downgrade bool) error {
	if err := checkVersion(version); err != nil {
		return err
	}
	switch {
	case version == c.Current:
		return fmt.Errorf("%s: %w", version, ErrCurrent)
	case Older(version, c.Current) && !downgrade:
		return fmt.Errorf("%s (this is %s): %w", version, c.Current, ErrDowngrade)
	}
	return nil
}

// Fetch downloads and verifies a release, and stages its program beside the running one. It does not replace anything.
// report is empty, or the part of a fleet's update. It returns the journal.
func Fetch(ctx context.Context, c Config, version string, downgrade bool, report string) (*Journal, error) {
	p, err := ownPlace()
	if err != nil {
		return nil, err
	}
	return fetch(ctx, p, c, version, downgrade, report)
}

func fetch(ctx context.Context, p place, c Config, version string, downgrade bool, report string) (*Journal, error) {
	if err := c.allowed(version, downgrade); err != nil {
		return nil, err
	}
	from, key, err := c.open()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(p.dir(), 0o755); err != nil { // that of a service
		return nil, p.explain(err)
	}
	if err := p.checkOwner(); err != nil {
		return nil, err
	}
	unlock, err := p.lockUpgrades()
	if err != nil {
		return nil, err
	}
	defer unlock()
	earlier, err := p.read()
	if err != nil {
		return nil, err
	}
	if earlier != nil && !earlier.final() && earlier.Phase != Staged {
		return nil, fmt.Errorf("the upgrade to %s is in the phase %s: start the program, which continues it: %w", earlier.Version, earlier.Phase, ErrBusy)
	}
	sum, err := releaseSum(ctx, from, key, c.Program, version)
	if err != nil {
		return nil, err
	}
	digest, err := p.unpack(ctx, from, c.Program, version, sum)
	if err == nil {
		if err = runs(ctx, p.next(), c.Program, version); err == nil {
			err = atomicfile.SyncDir(p.dir()) // the journal must not name a file that a crash removes
		}
	}
	if err != nil {
		return nil, errors.Join(err, ignoreMissing(os.Remove(p.next())))
	}
	j := &Journal{
		Version: version, From: c.Current, SHA256: digest, Report: report,
		BoundMS: cmp.Or(c.Bound, DefaultBound).Milliseconds(),
	}
	if earlier != nil && earlier.Version == version {
		j.Failures = earlier.Failures
	}
	return j, p.enter(j, Staged, "")
}

// releaseSum returns the verified checksum of the archive for this machine.
func releaseSum(ctx context.Context, from *source, key minisign.PublicKey, program, version string) ([]byte, error) {
	sums, err := from.small(ctx, maxSums, version, "SHA256SUMS")
	if err != nil {
		return nil, err
	}
	signature, err := from.small(ctx, maxSignature, version, "SHA256SUMS.minisig")
	if err != nil {
		return nil, err
	}
	comment, err := verify(key, sums, signature)
	if err != nil {
		return nil, fmt.Errorf("SHA256SUMS of %s: %w", version, err)
	}
	if comment != commentOf(version) {
		return nil, fmt.Errorf("SHA256SUMS of %s: it is signed as %.80q: the address serves another release under this name", version, comment)
	}
	return checksum(sums, archiveName(program, version))
}

// unpack stages the program of an archive, and returns the program's checksum. It reads nothing of an archive whose
// checksum is wrong.
func (p place) unpack(ctx context.Context, from *source, program, version string, want []byte) (digest string, err error) {
	ctx, cancel := context.WithTimeout(ctx, archiveTimeout)
	defer cancel()
	name := archiveName(program, version)
	archive, err := create(p.download(), 0o600)
	if err != nil {
		return "", p.explain(err)
	}
	defer func() { err = errors.Join(err, archive.Close(), os.Remove(p.download())) }()
	h := sha256.New()
	if err := from.copy(ctx, io.MultiWriter(archive, h), maxArchive, version, name); err != nil {
		return "", err
	}
	if got := h.Sum(nil); !bytes.Equal(got, want) {
		return "", fmt.Errorf("%s has the checksum %x and not %x, which the release names: the file was changed", name, got, want)
	}
	out, err := create(p.next(), 0o755)
	if err != nil {
		return "", p.explain(err)
	}
	h.Reset()
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	err = extract(io.MultiWriter(out, h), archive, program)
	if err == nil {
		err = errors.Join(out.Chmod(0o755), out.Sync())
	}
	return hex.EncodeToString(h.Sum(nil)), errors.Join(err, out.Close())
}

// create creates a file, in place of an earlier one. It does not follow a link.
func create(path string, mode os.FileMode) (*os.File, error) {
	if err := ignoreMissing(os.Remove(path)); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, mode)
}

// explain adds what to do if the directory of the program is not writable.
func (p place) explain(err error) error {
	if errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("this user may not replace the program: run the command as the owner of %s, or install the program where its service may write: %w", p.dir(), err)
	}
	return err
}

const (
	runsTimeout = 30 * time.Second
	maxOutput   = 64 << 10
	// busyRetries is how often a start is repeated while the file counts as open for writing: a process that was forked
	// meanwhile has the descriptor for an instant.
	busyRetries = 100
	busyPause   = 20 * time.Millisecond
)

// runs starts the new program, which must state its name and version.
func runs(ctx context.Context, path, program, version string) error {
	ctx, cancel := context.WithTimeout(ctx, runsTimeout)
	defer cancel()
	var out []byte
	err := retryBusy(ctx, func() error {
		var b limitedBuffer
		cmd := exec.CommandContext(ctx, path, "version")
		cmd.Env = []string{"PATH=" + os.Getenv("PATH")} // no secrets
		for _, name := range []string{"HOME", "TMPDIR", "SYSTEMROOT"} {
			if v, ok := os.LookupEnv(name); ok {
				cmd.Env = append(cmd.Env, name+"="+v)
			}
		}
		cmd.Stdout, cmd.WaitDelay = &b, time.Second
		err := cmd.Run()
		out = b.Bytes()
		return err
	})
	if err != nil {
		return fmt.Errorf("the program of %s does not run on this machine: %w", version, err)
	}
	fields := strings.Fields(string(out))
	if len(fields) < 2 || fields[0] != program || fields[1] != version {
		return fmt.Errorf("the program of %s states that it is %.80q", version, out)
	}
	return nil
}

// retryBusy calls f again while the file that it starts is open for writing.
func retryBusy(ctx context.Context, f func() error) error {
	for n := 0; ; n++ {
		err := f()
		if !errors.Is(err, syscall.ETXTBSY) || n == busyRetries {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(busyPause):
		}
	}
}

// limitedBuffer discards what exceeds maxOutput.
type limitedBuffer struct{ bytes.Buffer }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), max(0, maxOutput-b.Len()))])
	return len(p), nil
}
