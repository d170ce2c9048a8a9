package testbed

import (
	"bytes"
	"context"
	"testing"
)

// Debian gives the node an image as [Engine.Debian] creates it, of these packages and their
// dependencies. It returns the image's name. The node has the image until the cluster ends.
// The downloaded packages stay in the cache.
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
