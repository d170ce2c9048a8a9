package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/subtle"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"aead.dev/minisign"
	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/blake2b"
	"golang.org/x/crypto/scrypt"
)

const (
	testVersion  = "v9.8.7"
	testRevision = "0123456789abcdef0123456789abcdef01234567"
	testPassword = "visibly-fake"
)

// copyTree copies the repository as git knows it, without its history, to a new directory.
func copyTree(t *testing.T) string {
	t.Helper()
	const root = "../.."
	cmd := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	require.NoError(t, err)
	to := t.TempDir()
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed, but not committed
		}
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(to, name), text, 0o600))
	}
	return to
}

// newKey writes a key of minisign with a password. Unlike the keys of minisign -G, its derivation takes no second of a
// processor and no gigabyte: 1024, 8 and 1 are the parameters of scrypt that follow from the file's limits of 2^15 operations and 1 MiB.
func newKey(t *testing.T) (file string, public minisign.PublicKey) {
	t.Helper()
	public, private, err := minisign.GenerateKey(nil)
	require.NoError(t, err)
	text, err := private.MarshalText()
	require.NoError(t, err)
	const kind, salt, limits, secret, end = 0, 6, 38, 54, 126 // offsets in the file
	head, encoded, _ := strings.Cut(string(text), "\n")
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
	require.NoError(t, err)
	copy(raw[kind:], "EdScB2")
	binary.LittleEndian.PutUint64(raw[limits:], 1<<15)
	binary.LittleEndian.PutUint64(raw[limits+8:], 1<<20)
	check := blake2b.Sum256(append([]byte("Ed"), raw[secret:end]...))
	copy(raw[end:], check[:])
	stream, err := scrypt.Key([]byte(testPassword), raw[salt:limits], 1024, 8, 1, len(raw)-secret)
	require.NoError(t, err)
	subtle.XORBytes(raw[secret:], raw[secret:], stream)
	file = filepath.Join(t.TempDir(), "minisign.key")
	require.NoError(t, os.WriteFile(file, []byte(head+"\n"+base64.StdEncoding.EncodeToString(raw)+"\n"), 0o600))
	return file, public
}

// contents returns all files below a directory.
func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	require.NoError(t, filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, file)
		require.NoError(t, err)
		files[filepath.ToSlash(name)], err = os.ReadFile(file)
		return err
	}))
	return files
}

// A release depends on nothing but its sources: a second one, of a copy in another directory, by a user with another
// name, umask, time zone and locale, and with settings of the Go command, has the same files to the bit. Without the
// network, it needs only the modules. The test takes some programs for one platform; "make release" has all.
func TestASecondReleaseIsIdentical(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the test runs programs for linux/amd64 and a shell")
	}
	tool := filepath.Join(t.TempDir(), "release")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", tool, ".")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	key, public := newKey(t)
	make := func(before string, env ...string) string {
		tree := copyTree(t)
		args := before + `; exec "$0" all -version ` + testVersion + ` -programs delegate,agent -platforms linux/amd64 -out dist -key "$1"`
		cmd := exec.CommandContext(t.Context(), "sh", "-c", args, tool, key)
		cmd.Dir = tree
		cmd.Env = append(os.Environ(), append(env, "GOPROXY=off", passwordVariable+"="+testPassword, revisionVariable+"="+testRevision, dateVariable+"=1700000000")...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return tree
	}
	one := make("umask 022")
	two := make("umask 077", "USER=other", "LOGNAME=other", "LC_ALL=tr_TR.UTF-8", "LANG=tr_TR.UTF-8", "TZ=Asia/Tokyo", "HOSTNAME=other",
		"GOFLAGS=-ldflags=-X=main.x=y", "GOAMD64=v3", "GOEXPERIMENT=arenas", "GOGC=200", "CGO_ENABLED=1")

	first, second := contents(t, one+"/dist"), contents(t, two+"/dist")
	assert.Equal(t, slices.Sorted(maps.Keys(first)), slices.Sorted(maps.Keys(second)))
	for name, text := range first {
		assert.True(t, bytes.Equal(text, second[name]), "%s differs", name)
	}
	for name := range second {
		info, err := os.Stat(filepath.Join(two, "dist", name))
		require.NoError(t, err)
		assert.Equal(t, fs.FileMode(0o644), info.Mode().Perm(), "a web server cannot read %s", name)
	}
	checkNames(t, first)
	checkSignatures(t, first, public)
	programs := unpack(t, one+"/dist/"+testVersion)
	for name, program := range programs {
		for _, place := range append(goDirectories(t), one, two, filepath.Dir(tool), filepath.Join(os.TempDir(), "go-build"), "/pkg/mod/") {
			assert.False(t, bytes.Contains(program, []byte(place)), "%s has the path %s inside", name, place)
		}
		checkVersion(t, name, program)
	}
	t.Run("bill of materials", func(t *testing.T) {
		checkSBOM(t, first[testVersion+"/dlite-delegate_"+testVersion+"_linux_amd64.cdx.json"])
	})
	t.Run("image", func(t *testing.T) {
		checkImage(t, one+"/dist/"+testVersion+"/dlite-delegate-image_"+testVersion+"_linux_amd64.tar", programs["delegate"])
	})
	t.Run("deb", func(t *testing.T) {
		checkDeb(t, one+"/dist/"+testVersion+"/dlite-delegate_9.8.7_amd64.deb", programs["delegate"])
	})
	t.Run("chart", func(t *testing.T) { checkChart(t, first[testVersion+"/dlite-9.8.7.tgz"]) })
}

// checkNames checks that the release has the files that others look for, and no others.
func checkNames(t *testing.T, files map[string][]byte) {
	t.Helper()
	want := []string{"stable", "stable.minisig"}
	for _, name := range []string{
		"SHA256SUMS", "SHA256SUMS.minisig", "dlite-9.8.7.tgz", "dlite-agent.rb", "dlite-delegate.rb",
		"dlite-agent-9.8.7-1.x86_64.rpm", "dlite-agent_9.8.7_amd64.deb", "dlite-delegate-9.8.7-1.x86_64.rpm", "dlite-delegate_9.8.7_amd64.deb",
		"dlite-agent-image_v9.8.7_linux_amd64.tar", "dlite-agent-image_v9.8.7.oci.tar", "dlite-delegate-image_v9.8.7.oci.tar", "dlite-agent_v9.8.7_linux_amd64.tar.gz", "dlite-agent_v9.8.7_linux_amd64.cdx.json",
		"dlite-delegate-image_v9.8.7_linux_amd64.tar", "dlite-delegate_v9.8.7_linux_amd64.tar.gz", "dlite-delegate_v9.8.7_linux_amd64.cdx.json",
	} {
		want = append(want, testVersion+"/"+name)
	}
	slices.Sort(want)
	assert.Equal(t, want, slices.Sorted(maps.Keys(files)))
	assert.Equal(t, testVersion+"\n", string(files["stable"]))
}

// checkSignatures checks that the sums cover all files, and that both signatures are valid, prehashed, and name
// the version.
func checkSignatures(t *testing.T, files map[string][]byte, public minisign.PublicKey) {
	t.Helper()
	for _, name := range []string{"stable", testVersion + "/SHA256SUMS"} {
		assert.True(t, minisign.Verify(public, files[name], files[name+".minisig"]), name)
		var s minisign.Signature
		require.NoError(t, s.UnmarshalText(files[name+".minisig"]))
		assert.Equal(t, "dlite "+testVersion, s.TrustedComment)
		assert.EqualValues(t, minisign.HashEdDSA, s.Algorithm)
	}
	lines := strings.Split(strings.TrimSpace(string(files[testVersion+"/SHA256SUMS"])), "\n")
	assert.Len(t, lines, len(files)-4, "all files but the sums, the pointer and their signatures")
}

// goDirectories returns the directories of the Go command on this machine.
func goDirectories(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT", "GOCACHE", "GOMODCACHE").Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}

// unpack returns the programs of the archives for linux/amd64.
func unpack(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	programs := map[string][]byte{}
	archives, err := filepath.Glob(dir + "/*.tar.gz")
	require.NoError(t, err)
	require.Len(t, archives, 2)
	for _, archive := range archives {
		text, err := os.ReadFile(archive)
		require.NoError(t, err)
		var names []string
		for name, content := range untar(t, text) {
			if names = append(names, name); name != "LICENSE" {
				programs[name] = content
			}
		}
		assert.Len(t, names, 2)
		assert.Contains(t, names, "LICENSE")
	}
	return programs
}

func untar(t *testing.T, text []byte) map[string][]byte {
	t.Helper()
	unpacked, err := gzip.NewReader(bytes.NewReader(text))
	require.NoError(t, err)
	files := map[string][]byte{}
	for archive := tar.NewReader(unpacked); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		files[h.Name], err = io.ReadAll(archive)
		require.NoError(t, err)
	}
}

// checkVersion checks that a program prints the version and the commit.
func checkVersion(t *testing.T, name string, program []byte) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		return
	}
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, program, 0o755))
	out, err := exec.CommandContext(t.Context(), file, "version").CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), name+" "+testVersion+" (revision "+testRevision[:12]+", "+runtime.Version())
}

func checkSBOM(t *testing.T, text []byte) {
	t.Helper()
	var bom cyclonedx.BOM
	require.NoError(t, json.Unmarshal(text, &bom))
	assert.Equal(t, "dlite-delegate", bom.Metadata.Component.Name)
	versions := map[string]string{}
	for _, c := range *bom.Components {
		assert.Regexp(t, `^pkg:golang/.+@v?\d+\.\d+`, c.PackageURL)
		versions[c.Name] = c.Version
	}
	assert.Equal(t, runtime.Version(), versions["stdlib"])
	assert.Equal(t, testVersion, versions["github.com/delegate-io/dlite/driver/kubernetes"])
	assert.NotEmpty(t, versions["k8s.io/client-go"])
}

func checkImage(t *testing.T, file string, program []byte) {
	t.Helper()
	image, err := tarball.ImageFromPath(file, nil)
	require.NoError(t, err)
	config, err := image.ConfigFile()
	require.NoError(t, err)
	assert.Equal(t, "65532:65532", config.Config.User)
	assert.Equal(t, []string{"/delegate"}, config.Config.Entrypoint)
	assert.Equal(t, "amd64", config.Architecture)
	files := map[string][]byte{}
	flat := mutate.Extract(image)
	defer func() { _ = flat.Close() }()
	for archive := tar.NewReader(flat); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		files[h.Name], err = io.ReadAll(archive)
		require.NoError(t, err)
	}
	assert.True(t, bytes.Equal(program, files["delegate"]), "the program of the archive")
	certificates, count := files["etc/ssl/certs/ca-certificates.crt"], 0
	for block, rest := pem.Decode(certificates); block != nil; block, rest = pem.Decode(rest) {
		_, err := x509.ParseCertificate(block.Bytes)
		require.NoError(t, err)
		count++
	}
	assert.Greater(t, count, 50)
}

// checkDeb compares the package with the list that dpkg prints.
func checkDeb(t *testing.T, file string, program []byte) {
	t.Helper()
	need(t, "dpkg-deb")
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "dpkg-deb", "--raw-extract", file, dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	files := contents(t, dir)
	assert.True(t, bytes.Equal(program, files["usr/bin/dlite-delegate"]), "the program of the archive")
	assert.Equal(t, "/etc/dlite-delegate/config.env\n", string(files["DEBIAN/conffiles"]))
	assert.Contains(t, string(files["DEBIAN/control"]), "\nVersion: 9.8.7\n")
	info, err := os.Stat(dir + "/etc/dlite-delegate/config.env")
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), "the token is a secret")
	for _, script := range []string{"postinst", "prerm"} {
		out, err := exec.CommandContext(t.Context(), "sh", "-n", dir+"/DEBIAN/"+script).CombinedOutput()
		require.NoError(t, err, "%s", out)
		assert.NotContains(t, string(files["DEBIAN/"+script]), "@NAME@")
	}
}

// checkChart compares the package with the chart of the repository: only the versions differ.
func checkChart(t *testing.T, text []byte) {
	t.Helper()
	files := untar(t, text)
	chart := contents(t, "../../deploy/chart")
	require.Len(t, files, len(chart))
	for name, want := range chart {
		if name == "Chart.yaml" {
			want = bytes.Replace(want, []byte("\nversion: 0.1.0\n"), []byte("\nversion: \"9.8.7\"\n"), 1)
			want = bytes.Replace(want, []byte(`appVersion: "0.1.0"`), []byte(`appVersion: "9.8.7"`), 1)
		}
		assert.Equal(t, string(want), string(files["dlite/"+name]), name)
	}
}
