package main

import (
	"bytes"
	"compress/gzip"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// packaging has the scripts of packages, and the first settings of the programs that are services.
//
//go:embed packaging
var packaging embed.FS

// writePackages writes a deb and an rpm with the program. The unit of systemd is not in them: the command install of
// the program writes it, and finds that a package has installed the program.
func (r *release) writePackages(dir, scratch, built string, p program, on platform) error {
	if on.os != "linux" {
		return nil
	}
	for _, format := range []string{"deb", "rpm"} {
		packager, err := nfpm.Get(format)
		if err != nil {
			return err
		}
		info, err := r.packageInfo(scratch, filepath.Join(built, p.name), p, on)
		if err != nil {
			return err
		}
		if err := nfpm.PrepareForPackager(info, format); err != nil {
			return err
		}
		file := filepath.Join(dir, packager.ConventionalFileName(info))
		if err := create(file, func(w io.Writer) error { return packager.Package(info, w) }); err != nil {
			return err
		}
	}
	return nil
}

// packageInfo describes the package of a program. It depends on the program and the release alone: each field that has
// a default from this machine, such as its name and the time, is set.
func (r *release) packageInfo(scratch, executable string, p program, on platform) (*nfpm.Info, error) {
	name := commandName(p.name)
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: name, Arch: on.arch, Platform: on.os, Version: r.version, Section: "devel", Priority: "optional",
		Maintainer: maintainer, Vendor: "dlite", Homepage: homepage, License: license,
		Description: p.about + "\n" + p.more, MTime: r.date, DisableGlobbing: true,
	})
	info.Recommends = []string{"ca-certificates"}
	info.RPM = nfpm.RPM{BuildHost: "reproducible", Summary: p.about, Group: "Development/Tools", Compression: "zstd"}
	info.Deb.Compression = "gzip"
	texts, err := r.packageTexts(scratch, p)
	if err != nil {
		return nil, err
	}
	doc, licenses := "/usr/share/doc/"+name, "/usr/share/licenses/"+name
	info.Contents = files.Contents{
		{Source: executable, Destination: "/usr/bin/" + name, FileInfo: r.file(0o755)},
		{Source: filepath.Join(texts, "copyright"), Destination: doc + "/copyright", Packager: "deb", FileInfo: r.file(0o644)},
		{Source: filepath.Join(texts, "changelog.gz"), Destination: doc + "/changelog.gz", Packager: "deb", FileInfo: r.file(0o644)},
		{Source: filepath.Join(texts, "overrides"), Destination: "/usr/share/lintian/overrides/" + name, Packager: "deb", FileInfo: r.file(0o644)},
		{Destination: licenses, Type: files.TypeDir, Packager: "rpm", FileInfo: r.file(0o755)},
		{Source: filepath.Join(r.root, "LICENSE"), Destination: licenses + "/LICENSE", Type: files.TypeRPMLicense, Packager: "rpm", FileInfo: r.file(0o644)},
	}
	if p.service {
		info.Contents = append(info.Contents,
			&files.Content{Destination: "/etc/" + name, Type: files.TypeDir, FileInfo: r.file(0o755)},
			// Only root reads the settings: they have the token.
			&files.Content{Source: filepath.Join(texts, "config.env"), Destination: "/etc/" + name + "/config.env", Type: files.TypeConfigNoReplace, FileInfo: r.file(0o600)})
		info.Scripts = nfpm.Scripts{PostInstall: filepath.Join(texts, "installed.sh"), PreRemove: filepath.Join(texts, "removing.sh")}
	}
	return info, nil
}

// packageTexts writes the texts of the package of a program into a new directory.
func (r *release) packageTexts(scratch string, p program) (string, error) {
	dir, err := os.MkdirTemp(scratch, "package-")
	if err != nil {
		return "", err
	}
	texts := map[string]string{"copyright": "copyright", "overrides": "overrides"}
	if p.service {
		texts["installed.sh"], texts["removing.sh"], texts[p.name+".env"] = "installed.sh", "removing.sh", "config.env"
	}
	for from, to := range texts {
		text, err := packaging.ReadFile("packaging/" + from)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, to), bytes.ReplaceAll(text, []byte("@NAME@"), []byte(commandName(p.name))), 0o600); err != nil {
			return "", err
		}
	}
	return dir, create(filepath.Join(dir, "changelog.gz"), func(w io.Writer) error {
		packed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(packed, "%s (%s) stable; urgency=medium\n\n  * Release %s: see CHANGELOG.md in %s\n\n -- %s  %s\n",
			commandName(p.name), strings.TrimPrefix(r.version, "v"), r.version, homepage, maintainer, r.date.Format(time.RFC1123Z))
		return errors.Join(err, packed.Close())
	})
}

func (r *release) file(mode os.FileMode) *files.ContentFileInfo {
	return &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: r.date}
}
