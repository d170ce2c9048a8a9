package testbed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// CacheVariable names the directory for files that are built once for all tests. The default
// is .cache in the project's directory.
const CacheVariable = "DLITE_TEST_CACHE"

// buildTimeout is long enough to compile a program of this project without any build cache.
const buildTimeout = 15 * time.Minute

// BuildStatic returns a static program of this project, such as "./examples/agent". All tests
// of a clone share one build: the linker runs only if the program changed. The returned file
// is a copy that is removed at the end of the test. Flags are further flags of "go build", such as
// -ldflags with the version of a release.
func BuildStatic(tb testing.TB, pkg string, flags ...string) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
	defer cancel()
	built, err := buildStatic(ctx, pkg, flags...)
	if err != nil {
		tb.Fatal(err)
	}
	program := filepath.Join(tb.TempDir(), filepath.Base(built))
	if err := copyProgram(program, built); err != nil {
		tb.Fatalf("copy %s: %v", built, err)
	}
	return program
}

// buildStatic builds a program of this project for this machine into the cache. All programs
// are built with the same settings as "make build", so that no package is compiled twice.
func buildStatic(ctx context.Context, pkg string, flags ...string) (string, error) {
	project, err := projectFolder()
	if err != nil {
		return "", err
	}
	cache, err := cacheFolder("programs")
	if err != nil {
		return "", err
	}
	// Several clones may share a cache.
	sum := sha256.Sum256([]byte(strings.Join(append([]string{project}, flags...), "\x00")))
	dir := filepath.Join(cache, hex.EncodeToString(sum[:])[:16])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	unlock, err := lockFile(filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if runtime.GOOS != "linux" || filepath.Base(pkg) != "delegate" {
		return goBuild(ctx, project, dir, pkg, flags...)
	}
	// The delegate has the small program of its supervisors inside, as after "make build".
	small, err := goBuild(ctx, project, dir, "./driver/local/host/supervisor")
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	b, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(project, "examples/delegate/supervisor.bin"): small}})
	if err == nil {
		err = os.WriteFile(overlay, b, 0o600)
	}
	if err != nil {
		return "", err
	}
	return goBuild(ctx, project, dir, pkg, append(flags, "-overlay", overlay)...)
}

// goBuild builds a program into dir.
func goBuild(ctx context.Context, project, dir, pkg string, flags ...string) (string, error) {
	program := filepath.Join(dir, filepath.Base(pkg))
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	args := append([]string{"build", "-buildvcs=false", "-ldflags=-s -w", "-o", program}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	cmd.Dir, cmd.Env = project, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", pkg, err, text)
	}
	return program, nil
}

func copyProgram(to, from string) error {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	w, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, w.Close())
}

// projectFolder returns the root directory of this clone.
func projectFolder() (string, error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(file) {
		return "", errors.New("the project's folder is not known (built with -trimpath?)")
	}
	return filepath.Join(filepath.Dir(file), "..", ".."), nil
}

// cacheFolder creates a directory in the cache.
func cacheFolder(name string) (string, error) {
	parent := os.Getenv(CacheVariable)
	if parent == "" {
		project, err := projectFolder()
		if err != nil {
			return "", fmt.Errorf("%w; set %s", err, CacheVariable)
		}
		parent = filepath.Join(project, ".cache")
	}
	dir, err := filepath.Abs(filepath.Join(parent, name))
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	return dir, err
}

// buildProgram builds a program of the module in the directory with this name, once for each
// content of that directory.
func buildProgram(name, pkg, ldflags string) (program string, err error) {
	project, err := projectFolder()
	if err != nil {
		return "", err
	}
	source := filepath.Join(project, "internal", "testbed", name)
	key, err := contentOf(source)
	if err != nil {
		return "", err
	}
	cache, err := cacheFolder("")
	if err != nil {
		return "", err
	}
	program = filepath.Join(cache, name+"-"+key)
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	unlock, err := lockFile(filepath.Join(cache, name+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	const longest = 30 * time.Minute
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-mod=readonly", "-trimpath", "-ldflags="+ldflags, "-o", program+".new", pkg)
	cmd.Dir, cmd.Env = source, append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out[max(0, len(out)-1000):])
	}
	return program, os.Rename(program+".new", program)
}

// contentOf returns a hash of the content of a directory and of the compiler's version.
func contentOf(dir string) (string, error) {
	sum := sha256.New()
	_, _ = fmt.Fprintln(sum, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		_, _ = fmt.Fprintln(sum, filepath.ToSlash(strings.TrimPrefix(path, dir)), len(b))
		sum.Write(b)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil))[:16], err
}
