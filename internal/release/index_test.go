package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// need returns the path of a tool that internal/testbed/run.sh installs. Without the tool it ends the test.
func need(t *testing.T, tool string) string {
	t.Helper()
	path, err := exec.LookPath(tool)
	if err != nil {
		unavailable(t, tool+" is not installed")
	}
	return path
}

// unavailable ends a test for which this machine lacks a part. The test fails if all parts are required.
func unavailable(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("DLITE_TEST_REQUIRE") == "all" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// newRegistry starts a real registry and returns its address.
func newRegistry(t *testing.T) string {
	t.Helper()
	program := need(t, "docker-registry")
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	file := filepath.Join(t.TempDir(), "config.yml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: %s}}\nhttp: {addr: %q}\n", t.TempDir(), address), 0o600))
	cmd := exec.Command(program, "serve", file) //nolint:noctx // the cleanup ends it
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	require.Eventually(t, func() bool {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		return err == nil && conn.Close() == nil
	}, time.Minute, 10*time.Millisecond)
	return address
}

// writeIndexOfTwo writes the images of the agent for both architectures, and their index. Only the program for this
// machine is one: it prints a line.
func writeIndexOfTwo(t *testing.T) (dir string) {
	t.Helper()
	dir, built := t.TempDir(), t.TempDir()
	text := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(text, []byte("package main\n\nfunc main() { println(\"the program runs\") }\n"), 0o600))
	agent, _ := selectPrograms("agent")
	r := &release{source: source{version: testVersion, revision: testRevision, date: time.Unix(1700000000, 0).UTC()}, programs: agent}
	for _, arch := range []string{"amd64", "arm64"} {
		on := platform{"linux", arch}
		file := filepath.Join(built, arch, "agent")
		require.NoError(t, os.Mkdir(filepath.Dir(file), 0o755))
		if arch == runtime.GOARCH {
			cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", file, text)
			cmd.Env = append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0", "GOWORK=off")
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
		} else {
			require.NoError(t, os.WriteFile(file, []byte("the program for "+arch), 0o755))
		}
		require.NoError(t, r.writeImages(dir, filepath.Dir(file), on))
	}
	require.NoError(t, r.writeIndexes(dir, t.TempDir()))
	return dir
}

// readIndex unpacks the file of an index and returns the one entry of its layout.
func readIndex(t *testing.T, file string) v1.ImageIndex {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "tar", "-xf", file, "-C", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	all, err := layout.ImageIndexFromPath(dir)
	require.NoError(t, err)
	list, err := all.IndexManifest()
	require.NoError(t, err)
	require.Len(t, list.Manifests, 1, "tools of registries take the only entry")
	assert.Equal(t, types.OCIImageIndex, list.Manifests[0].MediaType)
	assert.Equal(t, testVersion, list.Manifests[0].Annotations[refName])
	index, err := all.ImageIndex(list.Manifests[0].Digest)
	require.NoError(t, err)
	return index
}

// A registry with the index of a release serves each platform its image, which is the one of the files for a single
// platform. A second index is equal to the bit.
func TestAnIndexServesEachPlatformItsImage(t *testing.T) {
	t.Parallel()
	one, two := writeIndexOfTwo(t), writeIndexOfTwo(t)
	const file = "/dlite-agent-image_" + testVersion
	first, err := os.ReadFile(one + file + ".oci.tar")
	require.NoError(t, err)
	second, err := os.ReadFile(two + file + ".oci.tar")
	require.NoError(t, err)
	assert.True(t, bytes.Equal(first, second), "the second index differs")

	address := newRegistry(t)
	reference := address + "/tools/dlite-agent:9.8.7"
	tag, err := name.NewTag(reference, name.Insecure)
	require.NoError(t, err)
	require.NoError(t, remote.WriteIndex(tag, readIndex(t, one+file+".oci.tar"), remote.WithContext(t.Context())))
	for _, arch := range []string{"amd64", "arm64"} {
		pulled, err := remote.Image(tag, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}), remote.WithContext(t.Context()))
		require.NoError(t, err, arch)
		single, err := tarball.ImageFromPath(one+file+"_linux_"+arch+".tar", nil)
		require.NoError(t, err)
		want, err := single.ConfigName() // it covers the layers
		require.NoError(t, err)
		got, err := pulled.ConfigName()
		require.NoError(t, err)
		assert.Equal(t, want, got, arch)
	}
	need(t, "docker")
	if out, err := exec.CommandContext(t.Context(), "docker", "version").CombinedOutput(); err != nil {
		unavailable(t, "no Docker engine answers: "+string(out))
	}
	docker := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), "docker", args...).CombinedOutput()
		require.NoError(t, err, "docker %s: %s", args[0], out)
		return strings.TrimSpace(string(out))
	}
	t.Cleanup(func() { _ = exec.Command("docker", "rmi", "--force", reference).Run() }) //nolint:noctx // nothing is left if it fails
	for _, arch := range []string{"arm64", "amd64"} {
		docker("pull", "--quiet", "--platform", "linux/"+arch, reference)
		assert.Equal(t, arch, docker("image", "inspect", "--format", "{{.Architecture}}", reference))
		if arch == runtime.GOARCH {
			assert.Equal(t, "the program runs", docker("run", "--rm", "--network", "none", reference))
		}
		docker("rmi", "--force", reference)
	}
}
