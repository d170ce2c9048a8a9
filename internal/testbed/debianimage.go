package testbed

import (
	"archive/tar"
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

// debianRecipe must change when debianRoot makes another root of the same packages.
const debianRecipe = "1"

// debianPath lists the directories of the programs.
const debianPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// debianBase lists the packages of every image: a shell, and the tools that scripts expect.
var debianBase = []string{
	"base-files", "bash", "coreutils", "dash", "diffutils", "findutils", "grep", "gzip", "libc-bin", "mawk", "sed", "tar",
}

// Debian creates an image of [debianBase], these packages, and their dependencies. The
// maintainers' scripts do not run, which is enough for compilers, tools and servers. The image
// stays on the engine, under a name that identifies the packages. While it exists, nothing is
// downloaded. See [NewDebian] for the requirements.
func (e *Engine) Debian(tb testing.TB, packages ...string) string {
	tb.Helper()
	packages = debianPackages(packages)
	ref := "dlite-test/debian:" + hashOf(append([]string{debianRecipe, debianRelease}, packages...)...)
	ctx, cancel := context.WithTimeout(context.Background(), debianTimeout)
	defer cancel()
	if _, err := e.Client.ImageInspect(ctx, ref); !errdefs.IsNotFound(err) {
		if err != nil {
			tb.Fatalf("look for image %s: %v", ref, err)
		}
		return ref
	}
	d := NewDebian(tb)
	unlock, err := d.lock()
	if err != nil {
		tb.Fatal(err)
	}
	defer unlock()
	if _, err := e.Client.ImageInspect(ctx, ref); err == nil {
		return ref // another process created it meanwhile
	}
	files, err := d.packages(ctx, packages)
	if err != nil {
		Unavailable(tb, "debian", "packages cannot be fetched: %v", err)
	}
	root, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := debianRoot(ctx, w, files)
		_ = w.CloseWithError(err) // always nil
		written <- err
	}()
	err = e.importRoot(ctx, ref, root, []string{
		`ENV ` + debianPath, `CMD ["/bin/bash"]`,
	})
	_ = root.CloseWithError(errors.New("the engine takes no more"))
	if err := errors.Join(<-written, err); err != nil {
		tb.Fatalf("make image %s: %v", ref, err)
	}
	return ref
}

// debianPackages returns the packages of an image without duplicates.
func debianPackages(wanted []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(debianBase), wanted...))))
}

// merged lists the directories that are links into /usr in an installed system, and real
// directories in some packages.
var merged = []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"}

// unread lists directories that no program reads.
var unread = []string{"usr/share/doc/", "usr/share/man/", "usr/share/locale/", "usr/share/info/", "usr/share/lintian/"}

// rootWriter writes each path once.
type rootWriter struct {
	*tar.Writer
	seen map[string]bool
}

// debianRoot writes the root file system of these packages as a tar.
func debianRoot(ctx context.Context, to io.Writer, packages []string) error {
	buffered := bufio.NewWriterSize(to, 1<<20)
	w := &rootWriter{Writer: tar.NewWriter(buffered), seen: map[string]bool{}}
	add := func(h *tar.Header, content string) error {
		h.Size = int64(len(content))
		return w.add(h, strings.NewReader(content))
	}
	var errs []error
	for _, dir := range merged {
		errs = append(errs, add(&tar.Header{Typeflag: tar.TypeSymlink, Name: dir, Linkname: "usr/" + dir, Mode: 0o777}, ""))
	}
	// Links that the maintainers' scripts create on an installed system.
	for name, target := range map[string]string{"awk": "mawk", "cc": "gcc", "sh": "dash"} {
		errs = append(errs, add(&tar.Header{Typeflag: tar.TypeSymlink, Name: "usr/bin/" + name, Linkname: target, Mode: 0o777}, ""))
	}
	for name, text := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"etc/group":  "root:x:0:\nnogroup:x:65534:\n",
	} {
		errs = append(errs, add(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, text))
	}
	for _, file := range packages {
		if err := w.addPackage(ctx, file); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", file, err))
		}
	}
	return errors.Join(append(errs, w.Close(), buffered.Flush())...)
}

func (w *rootWriter) addPackage(ctx context.Context, file string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", file)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = w.copy(tar.NewReader(out))
	if err == nil {
		_, err = io.Copy(io.Discard, out)
	}
	if err != nil {
		cancel()
	}
	return errors.Join(err, cmd.Wait())
}

func (w *rootWriter) copy(r *tar.Reader) error {
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		h.Name = usrPath(h.Name)
		if h.Typeflag == tar.TypeLink {
			h.Linkname = usrPath(h.Linkname)
		}
		if err := w.add(h, r); err != nil {
			return err
		}
	}
}

func (w *rootWriter) add(h *tar.Header, content io.Reader) error {
	name := strings.TrimSuffix(h.Name, "/")
	if name == "" || w.seen[name] || slices.ContainsFunc(unread, func(dir string) bool { return strings.HasPrefix(name, dir) }) {
		return nil
	}
	w.seen[name] = true
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	if h.Typeflag != tar.TypeReg {
		return nil
	}
	_, err := io.Copy(w, content)
	return err
}

// usrPath converts a path in a package to the path on an installed system.
func usrPath(name string) string {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "./"), "/")
	if first, _, _ := strings.Cut(name, "/"); slices.Contains(merged, first) {
		return "usr/" + name
	}
	return name
}

func hashOf(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p) //nolint:errcheck // a hash never fails
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}
