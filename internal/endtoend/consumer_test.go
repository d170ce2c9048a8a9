package endtoend_test

import (
	"archive/zip"
	"bytes"
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
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
)

// The consumer pins this module to an older version than ours.
const (
	pinned        = "k8s.io/api"
	pinnedVersion = "v0.36.0"
)

// mostConsumerModules is the maximum size of "go list -m all" in a program that embeds a
// delegate.
const mostConsumerModules = 70

// Modules work for programs outside the workspace as published: from the zip files of a module
// proxy, without go.work and replace lines.
func TestConsumersOfEachModule(t *testing.T) {
	t.Parallel()
	release := publish(t)
	for _, m := range release.modules {
		if strings.HasPrefix(m.Path, module+"/internal/") {
			continue // they have only tests, and the program that makes releases
		}
		name := strings.TrimPrefix(strings.TrimPrefix(m.Path, module), "/")
		t.Run("build with "+path.Join("dlite", name), func(t *testing.T) {
			packages, programs := m.publicPackages(t)
			c := release.consumer(t, map[string]string{m.Path: release.version})
			c.write(t, "consumer.go", "package consumer\n\nimport (\n"+imports(packages)+")\n")
			c.run(t, "build", "./...")
			if len(programs) > 0 { // compiled as by "go install", but not linked
				c.run(t, append([]string{"list", "-export"}, programs...)...)
			}
		})
	}
	source := "package main\n\nimport (\n" + imports([]string{
		module + "/client", module + "/poller", module + "/router", module + "/task",
	}) + "%s)\n\nfunc main() {}\n"
	t.Run("few modules", func(t *testing.T) {
		c := release.consumer(t, map[string]string{module: release.version})
		c.write(t, "main.go", fmt.Sprintf(source, ""))
		c.run(t, "build", "-o", os.DevNull, ".")
		all := strings.Fields(c.run(t, "list", "-m", "-f", "{{.Path}}", "all"))
		assert.LessOrEqual(t, len(all), mostConsumerModules, "%v", all)
		for _, m := range all {
			assert.False(t, strings.HasPrefix(m, "k8s.io/") || strings.Contains(m, "aws-sdk") || strings.Contains(m, "azure-sdk"), m)
		}
		t.Logf("go list -m all: %d", len(all))
	})
	t.Run("versions that a consumer pins", func(t *testing.T) {
		c := release.consumer(t, map[string]string{module: release.version, pinned: pinnedVersion})
		c.write(t, "main.go", fmt.Sprintf(source, imports([]string{pinned + "/core/v1"})))
		c.run(t, "build", "-o", os.DevNull, ".")
		assert.Equal(t, pinnedVersion, strings.TrimSpace(c.run(t, "list", "-m", "-f", "{{.Version}}", pinned)))
	})
}

func imports(packages []string) string {
	var b strings.Builder
	for _, p := range packages {
		fmt.Fprintf(&b, "\t_ %q\n", p)
	}
	return b.String()
}

// published is the working tree in the form of a module proxy.
type published struct {
	proxy   string // a directory
	version string // version of all modules
	modules []publishedModule
}

type publishedModule struct{ Path, Dir string }

// publish writes all modules of the workspace to a proxy. The version contains a hash of their
// content, so Go's caches never have another tree for it.
func publish(t *testing.T) *published {
	t.Helper()
	p := &published{proxy: t.TempDir()}
	for line := range strings.SplitSeq(strings.TrimSpace(goCommand(t, "../..", "list", "-m", "-f", "{{.Path}} {{.Dir}}")), "\n") {
		name, dir, _ := strings.Cut(line, " ")
		p.modules = append(p.modules, publishedModule{name, dir})
	}
	sum := sha256.New()
	files := map[string][]string{}
	for _, m := range p.modules {
		files[m.Path] = m.files(t)
		for _, f := range files[m.Path] {
			content, err := os.ReadFile(filepath.Join(m.Dir, f))
			require.NoError(t, err)
			_, _ = fmt.Fprintln(sum, m.Path, f, len(content))
			_, _ = sum.Write(content)
		}
	}
	p.version = "v0.0.0-tree." + hex.EncodeToString(sum.Sum(nil))[:12]
	for _, m := range p.modules {
		p.add(t, m, files[m.Path])
	}
	cache := strings.TrimSpace(goCommand(t, ".", "env", "GOMODCACHE"))
	t.Cleanup(func() { p.forget(t, cache) })
	return p
}

// files lists the files of a module that git tracks or would track, without nested modules.
func (m publishedModule) files(t *testing.T) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = m.Dir
	out, err := cmd.Output()
	if err != nil {
		testbed.Unavailable(t, "git", "the files of a module cannot be listed: %v", err)
	}
	all := strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
	var nested []string
	for _, f := range all {
		if dir, name := path.Split(f); name == "go.mod" && dir != "" {
			nested = append(nested, dir)
		}
	}
	files := slices.DeleteFunc(all, func(f string) bool {
		if slices.ContainsFunc(nested, func(dir string) bool { return strings.HasPrefix(f, dir) }) {
			return true
		}
		info, err := os.Lstat(filepath.Join(m.Dir, f))
		return err != nil || !info.Mode().IsRegular() // removed, or not a regular file
	})
	slices.Sort(files)
	return slices.Compact(files)
}

// add writes a module to the proxy.
func (p *published) add(t *testing.T, m publishedModule, files []string) {
	t.Helper()
	dir := filepath.Join(p.proxy, filepath.FromSlash(m.Path), "@v")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	write := func(name string, content []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	mod := p.requirements(t, m)
	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	for _, f := range files {
		content, err := os.ReadFile(filepath.Join(m.Dir, f))
		require.NoError(t, err)
		if f == "go.mod" {
			content = mod
		}
		w, err := z.Create(m.Path + "@" + p.version + "/" + f)
		require.NoError(t, err)
		_, err = w.Write(content)
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	info, err := json.Marshal(map[string]string{"Version": p.version, "Time": "2020-01-01T00:00:00Z"})
	require.NoError(t, err)
	write("list", []byte(p.version+"\n"))
	write(p.version+".info", info)
	write(p.version+".mod", mod)
	write(p.version+".zip", archive.Bytes())
}

// requirements returns the go.mod of a module. It requires our modules at this version, as in
// a release.
func (p *published) requirements(t *testing.T, m publishedModule) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "go.mod")
	text, err := os.ReadFile(filepath.Join(m.Dir, "go.mod"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, text, 0o600))
	var args []string
	for _, other := range p.modules {
		if strings.Contains(string(text), "\t"+other.Path+" v") {
			args = append(args, "-require="+other.Path+"@"+p.version)
		}
	}
	if len(args) > 0 {
		goCommand(t, m.Dir, append(append([]string{"mod", "edit"}, args...), file)...)
	}
	text, err = os.ReadFile(file)
	require.NoError(t, err)
	return text
}

// forget removes the version from the module cache.
func (p *published) forget(t *testing.T, cache string) {
	for _, m := range p.modules {
		assert.NoError(t, removeReadOnly(filepath.Join(cache, filepath.FromSlash(m.Path)+"@"+p.version)))
		found, _ := filepath.Glob(filepath.Join(cache, "cache", "download", filepath.FromSlash(m.Path), "@v", p.version+".*"))
		for _, f := range found {
			assert.NoError(t, os.Remove(f))
		}
	}
}

// removeReadOnly removes a directory of the module cache, which is read-only.
func removeReadOnly(dir string) error {
	_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = os.Chmod(name, 0o700) //nolint:gosec // to be removed
		}
		return err
	})
	return os.RemoveAll(dir)
}

// publicPackages lists the packages that a consumer can import, and the commands.
func (m publishedModule) publicPackages(t *testing.T) (packages, programs []string) {
	t.Helper()
	for line := range strings.SplitSeq(strings.TrimSpace(goCommand(t, m.Dir, "list", "-f", "{{.Name}} {{.ImportPath}} {{len .GoFiles}}", "./...")), "\n") {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[2] == "0" || strings.Contains(fields[1]+"/", "/internal/") {
			continue
		}
		if fields[0] == "main" {
			programs = append(programs, fields[1])
		} else {
			packages = append(packages, fields[1])
		}
	}
	return packages, programs
}

// consumer is a module outside the workspace.
type consumer struct {
	dir   string
	proxy string
}

func (p *published) consumer(t *testing.T, requirements map[string]string) *consumer {
	t.Helper()
	c := &consumer{dir: t.TempDir(), proxy: p.proxy}
	var mod strings.Builder
	mod.WriteString("module example.test/consumer\n\ngo 1.26.0\n\n")
	for name, version := range requirements {
		fmt.Fprintf(&mod, "require %s %s\n", name, version)
	}
	c.write(t, "go.mod", mod.String())
	return c
}

func (c *consumer) write(t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600))
}

// run runs a go command in the consumer's module.
func (c *consumer) run(t *testing.T, args ...string) string {
	t.Helper()
	return goCommandWith(t, c.dir, []string{
		"GOWORK=off", "GOFLAGS=-mod=mod", "CGO_ENABLED=0", "GONOSUMDB=" + module + "," + module + "/*",
		"GOPROXY=file://" + filepath.ToSlash(c.proxy) + "," + strings.TrimSpace(goCommand(t, ".", "env", "GOPROXY")),
	}, args...)
}

func goCommand(t *testing.T, dir string, args ...string) string {
	t.Helper()
	return goCommandWith(t, dir, nil, args...)
}

func goCommandWith(t *testing.T, dir string, environ []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), environ...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		text, _ := io.ReadAll(io.LimitReader(&stderr, 8<<10))
		require.NoError(t, err, "go %s\n%s", strings.Join(args, " "), text)
	}
	require.NoError(t, err)
	return string(out)
}
