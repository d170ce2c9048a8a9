package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"aead.dev/minisign"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/mod/semver"
)

// unsigned is printed if there is no key.
const unsigned = `
************************************************************************
*  THIS RELEASE IS NOT SIGNED. Delegates refuse to upgrade to it, and  *
*  users cannot verify it. Name a minisign key: make release KEY=...   *
************************************************************************
`

var validVersion = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z]+(\.[0-9A-Za-z]+)*)?$`)

// release is a release that is made.
type release struct {
	source
	programs  []program
	platforms []platform
	out       string               // the directory of all releases
	address   string               // where the formulas download them
	key       *minisign.PrivateKey // nil: not signed
	log       io.Writer
	indexes   map[string]v1.ImageIndex // the images of each program, for all platforms so far
}

func allCommand(ctx context.Context, c *command, args []string) error {
	version := c.fs.String("version", "", "version such as v1.2.3")
	keyFile := c.fs.String("key", "", "file with the minisign secret key; its password comes from "+passwordVariable+" or the terminal")
	address := c.fs.String("address", homepage+"/releases/download", "address of the directory of all releases, for the formulas of Homebrew")
	dirty := c.fs.Bool("dirty", false, "release a working tree with changes that are not committed")
	chosen, on, err := c.parse(args)
	if err != nil {
		return err
	}
	if !validVersion.MatchString(*version) {
		return fmt.Errorf("version %q is not a version such as v1.2.3 or v1.2.3-rc.1: make release VERSION=v1.2.3", *version)
	}
	src, err := readSource(ctx, c.root, *version, *dirty)
	if err != nil {
		return err
	}
	r := &release{source: src, programs: chosen, platforms: on, out: c.out, address: strings.TrimRight(*address, "/"), log: os.Stdout}
	if *keyFile != "" {
		key, err := readKey(*keyFile)
		if err != nil {
			return err
		}
		r.key = &key
	}
	begin := time.Now()
	if err := r.make(ctx); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(r.log, "%s is in %s (%.0f s)\n", r.version, filepath.Join(r.out, r.version), time.Since(begin).Seconds())
	if r.key == nil {
		fmt.Fprint(os.Stderr, unsigned)
	}
	return nil
}

// make builds the release in a temporary directory, and renames it when it is complete.
func (r *release) make(ctx context.Context) error {
	final := filepath.Join(r.out, r.version)
	if _, err := os.Lstat(final); err == nil {
		return fmt.Errorf("%s exists: a published release never changes; remove the directory if it was not published, or name another one", final)
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp(r.out, ".release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	dir := filepath.Join(scratch, r.version)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	b, err := newBuilder(ctx, r.source, scratch)
	if err != nil {
		return err
	}
	for _, on := range r.platforms {
		_, _ = fmt.Fprintln(r.log, "build for", on)
		built := filepath.Join(scratch, on.os+"_"+on.arch)
		if err := b.build(ctx, r.programs, on, built); err != nil {
			return err
		}
		for _, p := range r.programs {
			if err := r.archive(dir, built, p, on); err != nil {
				return fmt.Errorf("%s for %s: %w", p.name, on, err)
			}
			if err := r.writePackages(dir, scratch, built, p, on); err != nil {
				return fmt.Errorf("packages of %s for %s: %w", p.name, on, err)
			}
		}
		if err := r.writeImages(dir, built, on); err != nil {
			return fmt.Errorf("images for %s: %w", on, err)
		}
		if err := os.RemoveAll(built); err != nil {
			return err
		}
	}
	if err := r.writeIndexes(dir, scratch); err != nil {
		return err
	}
	for _, p := range r.programs {
		if err := r.writeFormula(dir, p); err != nil {
			return fmt.Errorf("formula of %s: %w", p.name, err)
		}
	}
	if err := r.writeChart(dir); err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	if err := writeSums(dir); err != nil {
		return err
	}
	if r.key != nil {
		if err := sign(filepath.Join(dir, sumsFile), *r.key, "dlite "+r.version); err != nil {
			return err
		}
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Rename(dir, final)); err != nil {
		return err
	}
	return r.point()
}

// base returns the begin of the names of the files for a program and a platform.
func (r *release) base(p program, on platform) string {
	return fmt.Sprintf("dlite-%s_%s_%s_%s", p.name, r.version, on.os, on.arch)
}

// archive writes the archive of a program, and its bill of materials.
func (r *release) archive(dir, built string, p program, on platform) error {
	members := []member{
		{name: on.executable(p.name), path: filepath.Join(built, on.executable(p.name)), mode: 0o755},
		{name: "LICENSE", path: filepath.Join(r.root, "LICENSE"), mode: 0o644},
	}
	file := filepath.Join(dir, r.base(p, on))
	if err := r.writeSBOM(file+".cdx.json", members[0].path, p, on); err != nil {
		return err
	}
	if on.os == "windows" {
		return writeZip(file+".zip", members, r.date)
	}
	return writeTarGz(file+".tar.gz", members, r.date)
}

// point writes the file stable, which names the newest version. It keeps the file if that names a newer version, or if
// the release is a candidate such as v1.2.3-rc.1.
func (r *release) point() error {
	file := filepath.Join(r.out, "stable")
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if strings.Contains(r.version, "-") || semver.Compare(strings.TrimSpace(string(old)), r.version) > 0 {
		return nil
	}
	for _, old := range []string{file, file + ".minisig"} {
		if err := os.Remove(old); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	err = create(file, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, r.version)
		return err
	})
	if err != nil || r.key == nil {
		return err
	}
	return sign(file, *r.key, "dlite "+r.version)
}
