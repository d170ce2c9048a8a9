package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// refName is the annotation with which a layout names an image.
const refName = "org.opencontainers.image.ref.name"

// addToIndex adds an image to the index of its program.
func (r *release) addToIndex(image v1.Image, p program, on platform) {
	if r.indexes == nil {
		r.indexes = map[string]v1.ImageIndex{}
	}
	index, ok := r.indexes[p.name]
	if !ok {
		index = empty.Index
	}
	r.indexes[p.name] = mutate.AppendManifests(index, mutate.IndexAddendum{
		Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: on.os, Architecture: on.arch}},
	})
}

// writeIndexes writes the indexes with the images for all platforms.
func (r *release) writeIndexes(dir, scratch string) error {
	for _, p := range withImage(r.programs) {
		index, ok := r.indexes[p.name]
		if !ok {
			continue // no platform has an image
		}
		if err := r.writeIndex(filepath.Join(dir, imageBase(p.name, r.version)+".oci.tar"), filepath.Join(scratch, "index-"+p.name), index); err != nil {
			return fmt.Errorf("index of the images of %s: %w", p.name, err)
		}
	}
	return nil
}

// writeIndex writes an index as the archive of an OCI layout. The tools of registries take the only entry of the
// layout, so this is the index and not its images.
func (r *release) writeIndex(file, scratch string, index v1.ImageIndex) error {
	_, err := layout.Write(scratch, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
		Add: index, Descriptor: v1.Descriptor{Annotations: map[string]string{refName: r.version}},
	}))
	if err != nil {
		return err
	}
	var members []member
	err = filepath.WalkDir(scratch, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(scratch, path)
		members = append(members, member{name: filepath.ToSlash(name), path: path, mode: 0o644})
		return err
	})
	if err != nil {
		return err
	}
	if err := create(file, func(w io.Writer) error { return writeTar(w, members, r.date) }); err != nil {
		return err
	}
	return os.RemoveAll(scratch)
}
