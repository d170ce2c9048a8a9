package testbed

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"

	"github.com/delegate-io/dlite/driver"
)

// Image is created once per engine and stays there. It contains only busybox.
const Image = "dlite-test/busybox:1"

// callTimeout limits each series of calls to the engine.
const callTimeout = time.Minute

// Engine is a real Docker engine.
type Engine struct {
	// Client is closed at the end of the test.
	Client *client.Client
	// Image is a small image with a shell.
	Image string

	private bool                         // the engine is removed with everything on it
	listen  func() (net.Listener, error) // on the engine's loopback; nil means this process's loopback
}

// Docker returns the engine at DOCKER_HOST or at the usual address, and creates [Image] if it
// is missing. Without an engine the test ends, see [Unavailable]. It is safe in parallel
// tests, also of several processes.
func Docker(tb testing.TB) *Engine {
	tb.Helper()
	cli, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		tb.Fatalf("docker client: %v", err)
	}
	tb.Cleanup(func() { _ = cli.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if _, err := cli.Ping(ctx); err != nil {
		Unavailable(tb, "docker", "no engine answers: %v", err)
	}
	e := &Engine{Client: cli, Image: Image}
	if err := e.ensureImage(ctx); err != nil {
		if errors.Is(err, errNoBusybox) {
			Unavailable(tb, "docker", "%v", err)
		}
		tb.Fatalf("make image %s: %v", Image, err)
	}
	return e
}

// ImageWith creates an image like [Image] with changes in the syntax of a Dockerfile, such as
// "VOLUME /data". The image is removed at the end of the test.
func (e *Engine) ImageWith(tb testing.TB, changes ...string) string {
	tb.Helper()
	b := make([]byte, 6)
	_, _ = rand.Read(b)
	ref := "dlite-test/" + hex.EncodeToString(b) + ":1"
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if err := e.importImage(ctx, ref, changes); err != nil {
		tb.Fatalf("make image %s: %v", ref, err)
	}
	if !e.private {
		tb.Cleanup(func() { e.RemoveImage(tb, ref) })
	}
	return ref
}

// RemoveImage removes an image. A missing image is no failure.
func (e *Engine) RemoveImage(tb testing.TB, ref string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	_, err := e.Client.ImageRemove(ctx, ref, image.RemoveOptions{Force: true, PruneChildren: true})
	if err != nil && !errdefs.IsNotFound(err) {
		tb.Errorf("remove image %s: %v", ref, err)
	}
}

// LeavesNothing fails the test, at its end, if the engine still has resources of these
// transactions. It removes them.
func (e *Engine) LeavesNothing(tb testing.TB, transactions ...string) {
	tb.Helper()
	tb.Cleanup(func() {
		for _, what := range e.Leftovers(tb, transactions...) {
			tb.Errorf("left behind: %s", what)
		}
		e.removeAll(tb, transactions)
	})
}

// Leftovers lists the containers, networks and volumes with the label of one of the
// transactions.
func (e *Engine) Leftovers(tb testing.TB, transactions ...string) []string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	var found []string
	for _, id := range transactions {
		f := labelFilter(id)
		containers, err := e.Client.ContainerList(ctx, container.ListOptions{All: true, Filters: f})
		if err != nil {
			tb.Fatalf("list containers: %v", err)
		}
		for _, c := range containers {
			found = append(found, fmt.Sprintf("container %s %v (%s)", c.ID, c.Names, c.State))
		}
		networks, err := e.Client.NetworkList(ctx, network.ListOptions{Filters: f})
		if err != nil {
			tb.Fatalf("list networks: %v", err)
		}
		for _, n := range networks {
			found = append(found, "network "+n.Name)
		}
		volumes, err := e.Client.VolumeList(ctx, volume.ListOptions{Filters: f})
		if err != nil {
			tb.Fatalf("list volumes: %v", err)
		}
		for _, v := range volumes.Volumes {
			found = append(found, "volume "+v.Name)
		}
	}
	return found
}

func labelFilter(transaction string) filters.Args {
	return filters.NewArgs(filters.Arg("label", driver.LabelTransaction+"="+transaction))
}

func (e *Engine) removeAll(tb testing.TB, transactions []string) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	for _, id := range transactions {
		f := labelFilter(id)
		containers, _ := e.Client.ContainerList(ctx, container.ListOptions{All: true, Filters: f})
		for _, c := range containers {
			if err := e.Client.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}); err != nil {
				tb.Logf("remove container %s: %v", c.ID, err)
			}
		}
		networks, _ := e.Client.NetworkList(ctx, network.ListOptions{Filters: f})
		for _, n := range networks {
			if err := e.Client.NetworkRemove(ctx, n.ID); err != nil {
				tb.Logf("remove network %s: %v", n.Name, err)
			}
		}
	}
}

func (e *Engine) ensureImage(ctx context.Context) error {
	_, err := e.Client.ImageInspect(ctx, Image)
	if !errdefs.IsNotFound(err) {
		return err
	}
	// Tests of several packages run at the same time. Two imports would leave an image without
	// a name.
	unlock, err := lockFile(filepath.Join(os.TempDir(), "dlite-test-image.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := e.Client.ImageInspect(ctx, Image); !errdefs.IsNotFound(err) {
		return err
	}
	return e.importImage(ctx, Image, nil)
}

func (e *Engine) importImage(ctx context.Context, ref string, changes []string) error {
	rootfs, err := busyboxTar(ctx)
	if err != nil {
		return err
	}
	return e.importRoot(ctx, ref, rootfs, append([]string{`ENV PATH=/bin`, `CMD ["/bin/sh"]`}, changes...))
}

// importRoot creates an image from a tar of its root file system.
func (e *Engine) importRoot(ctx context.Context, ref string, rootfs io.Reader, changes []string) error {
	body, err := e.Client.ImageImport(ctx, image.ImportSource{Source: rootfs, SourceName: "-"}, ref, image.ImportOptions{Changes: changes})
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	for dec := json.NewDecoder(body); ; {
		var m struct {
			Error string `json:"error"`
		}
		switch err := dec.Decode(&m); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case m.Error != "":
			return errors.New(m.Error)
		}
	}
}

var errNoBusybox = errors.New("there is no static busybox (package busybox-static)")

// busyboxTar returns the root file system of an image with this machine's busybox.
func busyboxTar(ctx context.Context) (io.Reader, error) {
	binary, applets, err := staticBusybox(ctx)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	add := func(h *tar.Header, content []byte) error {
		h.Size = int64(len(content))
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err := w.Write(content)
		return err
	}
	var errs []error
	for dir, mode := range map[string]int64{"bin/": 0o755, "etc/": 0o755, "root/": 0o700, "tmp/": 0o1777} {
		errs = append(errs, add(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: mode}, nil))
	}
	errs = append(errs,
		add(&tar.Header{Typeflag: tar.TypeReg, Name: "bin/busybox", Mode: 0o755}, binary),
		add(&tar.Header{Typeflag: tar.TypeReg, Name: "etc/passwd", Mode: 0o644},
			[]byte("root:x:0:0:root:/root:/bin/sh\nbuilder:x:1000:1000:builder:/tmp:/bin/sh\n")),
		add(&tar.Header{Typeflag: tar.TypeReg, Name: "etc/group", Mode: 0o644}, []byte("root:x:0:\nbuilder:x:1000:\n")))
	for _, a := range applets {
		if a != "busybox" {
			errs = append(errs, add(&tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + a, Linkname: "busybox", Mode: 0o777}, nil))
		}
	}
	errs = append(errs, w.Close())
	return &buf, errors.Join(errs...)
}

// staticBusybox returns this machine's busybox and the names of its programs.
func staticBusybox(ctx context.Context) (binary []byte, applets []string, err error) {
	for _, p := range []string{"/bin/busybox", "/usr/bin/busybox"} {
		list, err := exec.CommandContext(ctx, p, "--list").Output()
		if err != nil {
			continue
		}
		binary, err := os.ReadFile(p)
		if applets := strings.Fields(string(list)); err == nil && len(applets) > 0 && !bytes.Contains(binary, []byte("/ld-linux")) {
			return binary, applets, nil
		}
	}
	return nil, nil, errNoBusybox
}
