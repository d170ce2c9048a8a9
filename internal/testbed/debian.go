package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	// debianRelease is the release from which packages and sources are downloaded, followed by
	// its mirror.
	debianRelease = "bookworm"
	debianMirror  = "http://deb.debian.org/debian"
	// debianKeys holds the keys with which apt verifies them.
	debianKeys = "/usr/share/keyrings/debian-archive-keyring.gpg"
	// debianTimeout limits apt's work for one call.
	debianTimeout = 4 * time.Minute
)

// Debian downloads packages and sources of a Debian release with the machine's apt, which
// verifies them as usual. It uses its own cache, which is independent of the packages
// installed on the machine. It needs no root.
type Debian struct {
	dir string
}

// NewDebian prepares downloads. Without apt the test ends, see [Unavailable].
func NewDebian(tb testing.TB) *Debian {
	tb.Helper()
	for _, tool := range []string{"apt-get", "dpkg-deb", "tar"} {
		if _, err := exec.LookPath(tool); err != nil {
			Unavailable(tb, "debian", "there is no %s", tool)
		}
	}
	if _, err := os.Stat(debianKeys); err != nil {
		Unavailable(tb, "debian", "there are no keys to verify packages with (package debian-archive-keyring)")
	}
	return &Debian{dir: Cache(tb, "debian-"+debianRelease)}
}

// Source unpacks the upstream source of a package into dir, without Debian's changes.
func (d *Debian) Source(tb testing.TB, name, dir string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), debianTimeout)
	defer cancel()
	tarball, err := d.source(ctx, name)
	if err != nil {
		Unavailable(tb, "debian", "the source of %s cannot be fetched: %v", name, err)
	}
	cmd := exec.CommandContext(ctx, "tar", "-xf", tarball, "-C", dir, "--strip-components=1", "--no-same-owner")
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("unpack %s: %v\n%s", tarball, err, out)
	}
}

func (d *Debian) source(ctx context.Context, name string) (string, error) {
	unlock, err := d.lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	// A file that exists is verified again, because it may be an incomplete download.
	if err := d.apt(ctx, "source", "--download-only", name); err != nil {
		return "", err
	}
	found, err := filepath.Glob(filepath.Join(d.dir, "sources", name+"_*.orig.tar.*[z2]"))
	if err == nil && len(found) == 0 {
		err = errors.New("it has no upstream tarball")
	}
	if err != nil {
		return "", err
	}
	return found[len(found)-1], nil
}

// packages downloads packages and all their dependencies, and returns the files.
func (d *Debian) packages(ctx context.Context, names []string) ([]string, error) {
	// Each call has its own archive directory, so that it finds only its own packages.
	archive := filepath.Join(d.dir, "archives", hashOf(names...))
	if err := os.MkdirAll(filepath.Join(archive, "partial"), 0o755); err != nil {
		return nil, err
	}
	if err := d.apt(ctx, append([]string{
		"-o", "Dir::Cache::archives=" + archive + "/", "install", "--yes", "--no-install-recommends", "--download-only",
	}, names...)...); err != nil {
		return nil, err
	}
	return filepath.Glob(filepath.Join(archive, "*.deb"))
}

// apt runs apt-get on our own directories. If it does not find a package, as in the first run
// or after a point release, it updates the lists and tries again.
func (d *Debian) apt(ctx context.Context, args ...string) error {
	run := func(args ...string) error {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Dir = filepath.Join(d.dir, "sources")
		cmd.Env = append(os.Environ(), "APT_CONFIG="+filepath.Join(d.dir, "apt.conf"), "LC_ALL=C")
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("apt-get %s: %w: %s", args, err, lastLines(out, 5))
		}
		return nil
	}
	if err := d.configure(); err != nil {
		return err
	}
	lists, _ := filepath.Glob(filepath.Join(d.dir, "state", "lists", "*_Sources*"))
	if len(lists) > 0 && run(args...) == nil {
		return nil
	}
	return errors.Join(run("update"), run(args...))
}

func (d *Debian) configure() error {
	var errs []error
	for _, dir := range []string{"state/lists/partial", "cache", "sources", "parts"} {
		errs = append(errs, os.MkdirAll(filepath.Join(d.dir, dir), 0o755))
	}
	// The machine's own configuration does not apply, except for its proxy.
	conf := fmt.Sprintf(`Dir::State "%[1]s/state";
Dir::State::status "%[1]s/status";
Dir::Cache "%[1]s/cache";
Dir::Etc::sourcelist "%[1]s/sources.list";
Dir::Etc::sourceparts "%[1]s/parts";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::Retries "3";
`, d.dir)
	list := ""
	for _, kind := range []string{"deb", "deb-src"} {
		list += fmt.Sprintf("%s [signed-by=%s] %s %s main\n", kind, debianKeys, debianMirror, debianRelease)
	}
	for name, text := range map[string]string{"apt.conf": conf, "sources.list": list, "status": ""} {
		errs = append(errs, os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o644))
	}
	return errors.Join(errs...)
}

// lock prevents the tests of other packages from using the cache at the same time.
func (d *Debian) lock() (func(), error) {
	return lockFile(filepath.Join(d.dir, "lock"))
}

func lastLines(out []byte, n int) string {
	lines := strings.Split(string(bytes.TrimSpace(out)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}
