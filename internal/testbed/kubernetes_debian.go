package testbed

import (
	"bytes"
	"context"
	"testing"
)

// Debian gives the node an image as [Engine.Debian] makes it, of these packages and
// what they depend on, and returns its name. The node keeps it for as long as the
// cluster lasts; the packages are kept for longer.
func (c *Cluster) Debian(tb testing.TB, packages ...string) string {
	tb.Helper()
	packages = debianPackages(packages)
	ref := "test.invalid/debian:" + hashOf(packages...)
	c.debian.Lock()
	defer c.debian.Unlock()
	if c.debian.images[ref] {
		return ref
	}
	ctx, cancel := context.WithTimeout(context.Background(), debianTimeout)
	defer cancel()
	d := NewDebian(tb)
	unlock, err := d.lock()
	if err != nil {
		tb.Fatal(err)
	}
	defer unlock()
	files, err := d.packages(ctx, packages)
	if err != nil {
		Unavailable(tb, "debian", "packages cannot be fetched: %v", err)
	}
	var root bytes.Buffer
	err = debianRoot(ctx, &root, files)
	if err == nil {
		err = c.importLayer(ctx, ref, root.Bytes(), imageConfig{Env: []string{debianPath}, Cmd: []string{"/bin/bash"}})
	}
	if err != nil {
		tb.Fatalf("make image %s: %v", ref, err)
	}
	if c.debian.images == nil {
		c.debian.images = map[string]bool{}
	}
	c.debian.images[ref] = true
	return ref
}
