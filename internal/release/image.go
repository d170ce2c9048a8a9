package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// imageOf describes the image of a program.
type imageOf struct {
	user    string // "" is root
	command []string
	env     []string
	ports   []string
	state   bool // has a directory for files that last, which the user owns
}

// nobody is the user of the programs in images. The chart names it too.
const nobody = 65532

// stateDir is the directory of an image for files that last.
const stateDir = "/var/lib/dlite"

// images lists the programs that have an image. The agent is copied into each pod, whose security context names a user.
var images = map[string]imageOf{
	"delegate": {user: "65532:65532", command: []string{"server"}, state: true},
	"manager":  {user: "65532:65532", command: []string{"server"}, state: true, env: []string{"LISTEN=0.0.0.0:3460"}, ports: []string{"3460/tcp"}},
	"agent":    {},
}

// imageBase returns the begin of the names of the files with the image of a program.
func imageBase(program, version string) string { return "dlite-" + program + "-image_" + version }

// imageTag returns the name of an image with its tag, such as dlite-delegate:1.2.3.
func imageTag(program, version string) string {
	return "dlite-" + program + ":" + strings.TrimPrefix(version, "v")
}

// image returns an image: the executable, the certificates of public authorities, and empty directories. It has no
// shell and no package.
func (r *release) image(executable string, p program, on platform) (v1.Image, error) {
	what := images[p.name]
	base, err := r.layer(r.baseFiles(what))
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(executable)
	if err != nil {
		return nil, err
	}
	top, err := r.layer([]entry{{header: tar.Header{Name: p.name, Mode: 0o755}, text: text}})
	if err != nil {
		return nil, err
	}
	blank := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.ConfigFile(blank, r.imageConfig(what, p, on))
	if err != nil {
		return nil, err
	}
	return mutate.Append(image,
		mutate.Addendum{Layer: base, History: r.history("certificates and directories")},
		mutate.Addendum{Layer: top, History: r.history(p.name)})
}

// writeImage writes an image that "docker load" reads.
func (r *release) writeImage(file string, image v1.Image, p program) error {
	tag, err := name.NewTag(imageTag(p.name, r.version))
	if err != nil {
		return err
	}
	return create(file, func(w io.Writer) error { return tarball.Write(tag, image, w) })
}

func (r *release) history(what string) v1.History {
	return v1.History{Created: v1.Time{Time: r.date}, CreatedBy: "internal/release: " + what}
}

func (r *release) imageConfig(what imageOf, p program, on platform) *v1.ConfigFile {
	c := &v1.ConfigFile{OS: on.os, Architecture: on.arch, Created: v1.Time{Time: r.date}, RootFS: v1.RootFS{Type: "layers"}}
	c.Config = v1.Config{
		User: what.user, Entrypoint: []string{"/" + p.name}, Cmd: what.command, Env: append([]string{"PATH=/"}, what.env...),
		Labels: map[string]string{
			"org.opencontainers.image.title": "dlite-" + p.name, "org.opencontainers.image.description": p.about,
			"org.opencontainers.image.version": r.version, "org.opencontainers.image.revision": r.revision,
			"org.opencontainers.image.source": homepage, "org.opencontainers.image.licenses": license,
		},
	}
	if what.state {
		c.Config.Env = append(c.Config.Env, "HOME="+stateDir, "XDG_STATE_HOME="+stateDir)
		c.Config.WorkingDir = stateDir
		c.Config.Volumes = map[string]struct{}{stateDir: {}}
	}
	for _, port := range what.ports {
		if c.Config.ExposedPorts == nil {
			c.Config.ExposedPorts = map[string]struct{}{}
		}
		c.Config.ExposedPorts[port] = struct{}{}
	}
	return c
}

// entry is a file or a directory of a layer.
type entry struct {
	header tar.Header
	text   []byte
}

func (r *release) baseFiles(what imageOf) []entry {
	entries := []entry{
		{header: tar.Header{Name: "etc/", Mode: 0o755}}, {header: tar.Header{Name: "etc/ssl/", Mode: 0o755}},
		{header: tar.Header{Name: "etc/ssl/certs/", Mode: 0o755}},
		{header: tar.Header{Name: "etc/ssl/certs/ca-certificates.crt", Mode: 0o644}, text: certificates()},
		{header: tar.Header{Name: "tmp/", Mode: 0o1777}},
	}
	if what.state {
		entries = append(entries, entry{header: tar.Header{Name: "var/", Mode: 0o755}}, entry{header: tar.Header{Name: "var/lib/", Mode: 0o755}},
			entry{header: tar.Header{Name: strings.TrimPrefix(stateDir, "/") + "/", Mode: 0o700, Uid: nobody, Gid: nobody}})
	}
	return entries
}

// certificates returns the public authorities that Mozilla trusts without a condition, in PEM. A file cannot express
// the condition "for certificates issued before a date", so that such authorities are left out.
func certificates() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a Buffer takes everything
		}
	}
	return text.Bytes()
}

// layer returns a compressed layer. All its files have the release's date.
func (r *release) layer(entries []entry) (v1.Layer, error) {
	var raw bytes.Buffer
	archive := tar.NewWriter(&raw)
	for _, e := range entries {
		h := e.header
		h.Format, h.ModTime, h.Size, h.Typeflag = tar.FormatUSTAR, r.date, int64(len(e.text)), tar.TypeReg
		if strings.HasSuffix(h.Name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := archive.WriteHeader(&h); err != nil {
			return nil, err
		}
		if _, err := archive.Write(e.text); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw.Bytes())), nil },
		tarball.WithCompressedCaching, tarball.WithMediaType(types.OCILayer))
}

// writeImages writes the images of the programs that have one into a directory.
func (r *release) writeImages(dir, built string, on platform) (err error) {
	if on.os != "linux" {
		return nil
	}
	for _, p := range withImage(r.programs) {
		image, imageErr := r.image(filepath.Join(built, p.name), p, on)
		if imageErr == nil {
			file := filepath.Join(dir, imageBase(p.name, r.version)+"_"+on.os+"_"+on.arch+".tar")
			imageErr = r.writeImage(file, image, p)
		}
		if imageErr == nil {
			r.addToIndex(image, p, on)
		}
		err = errors.Join(err, imageErr)
	}
	return err
}

// withImage returns the programs that have an image.
func withImage(programs []program) (with []program) {
	for _, p := range programs {
		if _, has := images[p.name]; has {
			with = append(with, p)
		}
	}
	return with
}
