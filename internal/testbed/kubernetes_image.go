package testbed

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

const (
	// The registry of these names does not exist, so a pull of an image that the node already
	// has fails.
	clusterImage = "test.invalid/busybox:1"
	clusterPause = "test.invalid/pause:1"
	clusterAgent = "test.invalid/agent:1"
)

// imageConfig is the part of an image that describes how to run it.
type imageConfig struct {
	Entrypoint []string `json:",omitempty"`
	Cmd        []string `json:",omitempty"`
	Env        []string `json:",omitempty"`
	User       string   `json:",omitempty"`
}

// importOwn gives the node the images that every pod needs.
func (c *Cluster) importOwn(ctx context.Context) error {
	rootfs, err := busyboxTar(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnavailable, err)
	}
	layer, err := io.ReadAll(rootfs)
	if err != nil {
		return err
	}
	if err := c.importLayer(ctx, clusterImage, layer, imageConfig{Env: []string{"PATH=/bin"}, Cmd: []string{"/bin/sh"}}); err != nil {
		return err
	}
	// The container that holds a pod's namespaces only sleeps.
	return c.importLayer(ctx, clusterPause, layer, imageConfig{Entrypoint: []string{"/bin/sleep", "2147483647"}})
}

// Import gives the node the images in a tar in the format of "docker save".
func (c *Cluster) Import(tb testing.TB, path string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clusterTimeout)
	defer cancel()
	if err := c.importFile(ctx, path); err != nil {
		tb.Fatal(err)
	}
}

// ImportProgram gives the node an image with one static program, which is at /NAME and is its
// entry point.
func (c *Cluster) ImportProgram(tb testing.TB, ref, name, path string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clusterTimeout)
	defer cancel()
	if err := c.importProgram(ctx, ref, name, path); err != nil {
		tb.Fatalf("make image %s: %v", ref, err)
	}
}

// AgentImage builds the agent of this project and gives the node an image that contains only
// /agent. It returns the image's name.
func (c *Cluster) AgentImage(tb testing.TB) string {
	tb.Helper()
	c.agent.Lock()
	defer c.agent.Unlock()
	if c.agent.image == "" {
		c.ImportProgram(tb, clusterAgent, "agent", BuildStatic(tb, "./examples/agent"))
		c.agent.image = clusterAgent
	}
	return c.agent.image
}

// NewRegistry starts a registry that the node reaches without TLS. It requires these
// credentials, or none if user is empty. It ends with the test.
func (c *Cluster) NewRegistry(tb testing.TB, user, password string) *Registry {
	tb.Helper()
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", net.JoinHostPort(c.HostIP, "0"))
	if err != nil {
		tb.Fatalf("listen on the cluster's side: %v", err)
	}
	r := newRegistry(tb, l, user, password)
	dir := c.path("registries", r.Host)
	err = os.Mkdir(dir, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "hosts.toml"), fmt.Appendf(nil, "server = \"http://%[1]s\"\n[host.\"http://%[1]s\"]\n", r.Host), 0o600)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func (c *Cluster) importProgram(ctx context.Context, ref, name, path string) error {
	binary, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	layer, err := tarOf(map[string][]byte{name: binary}, 0o755)
	if err != nil {
		return err
	}
	return c.importLayer(ctx, ref, layer, imageConfig{Entrypoint: []string{"/" + name}})
}

// importLayer creates an image from a tar of its root file system.
func (c *Cluster) importLayer(ctx context.Context, ref string, layer []byte, config imageConfig) error {
	described, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": config,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
	})
	if err != nil {
		return err
	}
	list, err := json.Marshal([]any{map[string]any{"Config": "config.json", "RepoTags": []string{ref}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	archive, err := tarOf(map[string][]byte{"config.json": described, "manifest.json": list, "layer.tar": layer}, 0o644)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(c.dir, "image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	if _, err = f.Write(archive); err == nil {
		err = f.Close()
	}
	if err != nil {
		return err
	}
	return c.importFile(ctx, f.Name())
}

func (c *Cluster) importFile(ctx context.Context, path string) error {
	cmd := exec.CommandContext(ctx, "ctr", "--address", c.containerd(), "--namespace", "k8s.io", "images", "import", path)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("import images: %w: %s", err, out)
	}
	return nil
}

func tarOf(files map[string][]byte, mode int64) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
	}
	return buf.Bytes(), w.Close()
}
