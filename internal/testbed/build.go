package testbed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// CacheVariable names the folder for what is built once for all tests. By
// default it is .cache in the project's folder.
const CacheVariable = "DLITE_TEST_CACHE"

// buildProgram builds a program of the module in the folder of this name, once
// for each content of that folder.
func buildProgram(name, pkg, ldflags string) (program string, err error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(file) {
		return "", fmt.Errorf("its sources cannot be found (built with -trimpath)")
	}
	source := filepath.Join(filepath.Dir(file), name)
	key, err := contentOf(source)
	if err != nil {
		return "", err
	}
	cache := os.Getenv(CacheVariable)
	if cache == "" {
		cache = filepath.Join(filepath.Dir(file), "..", "..", ".cache")
	}
	if cache, err = filepath.Abs(cache); err != nil {
		return "", err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
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

// contentOf is a name for what a folder holds and what compiles it.
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
