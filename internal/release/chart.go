package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// chartVersions matches the versions in Chart.yaml. The images of the chart have the tag appVersion.
var chartVersions = regexp.MustCompile(`(?m)^(version|appVersion): .*$`)

// writeChart packs deploy/chart as "helm package" does, with the version of the release.
func (r *release) writeChart(dir string) error {
	chart := filepath.Join(r.root, "deploy", "chart")
	files := []string{"Chart.yaml"} // Helm reads it first
	err := filepath.WalkDir(chart, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(chart, file)
		if name != "Chart.yaml" {
			files = append(files, name)
		}
		return err
	})
	if err != nil {
		return err
	}
	version := strings.TrimPrefix(r.version, "v")
	return create(filepath.Join(dir, "dlite-"+version+".tgz"), func(w io.Writer) error {
		packed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
		if err != nil {
			return err
		}
		archive := tar.NewWriter(packed)
		for _, name := range files {
			text, err := os.ReadFile(filepath.Join(chart, name))
			if err != nil {
				return err
			}
			if name == "Chart.yaml" {
				if len(chartVersions.FindAll(text, -1)) != 2 {
					return fmt.Errorf("%s/Chart.yaml must have one version and one appVersion", chart)
				}
				text = chartVersions.ReplaceAll(text, []byte(`$1: "`+version+`"`))
			}
			h := &tar.Header{Name: "dlite/" + filepath.ToSlash(name), Mode: 0o644, Size: int64(len(text)), ModTime: r.date, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
			if err := archive.WriteHeader(h); err != nil {
				return err
			}
			if _, err := archive.Write(text); err != nil {
				return err
			}
		}
		return errors.Join(archive.Close(), packed.Close())
	})
}
