package storage

import (
	"errors"
	"io/fs"
	"path"
	"runtime"
	"slices"
)

// known are the files that name the dependencies of a project, with the directories in which its tools keep
// them. A directory without "~" is beside the file.
var known = map[string][]string{
	"go.sum":                    {"~/go/pkg/mod", "~/.cache/go-build"},
	"package-lock.json":         {"node_modules"},
	"npm-shrinkwrap.json":       {"node_modules"},
	"yarn.lock":                 {"node_modules"},
	"pnpm-lock.yaml":            {"node_modules"},
	"pom.xml":                   {"~/.m2/repository"},
	"build.gradle":              {"~/.gradle/caches", "~/.gradle/wrapper"},
	"build.gradle.kts":          {"~/.gradle/caches", "~/.gradle/wrapper"},
	"gradle-wrapper.properties": {"~/.gradle/caches", "~/.gradle/wrapper"},
	"Cargo.lock":                {"~/.cargo/registry", "~/.cargo/git"},
	"requirements.txt":          {"~/.cache/pip"},
	"poetry.lock":               {"~/.cache/pypoetry", "~/.cache/pip"},
	"Pipfile.lock":              {"~/.cache/pip"},
	"Gemfile.lock":              {"vendor/bundle"},
	"composer.lock":             {"vendor"},
	"packages.lock.json":        {"~/.nuget/packages"},
}

const (
	// maxDepth bounds the depth of the search below the workspace, and maxFound the number of files.
	maxDepth = 3
	maxFound = 500
)

// detected lists the files of a workspace that decide on its cache, and the paths for it.
type detected struct {
	files []string // that name the dependencies
	paths []string // that exist or may exist
}

func detect(workspace fs.FS) (*detected, error) {
	d := &detected{}
	skipped := []string{".git", "node_modules", "vendor", "target", "build", "dist"}
	err := fs.WalkDir(workspace, ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil && name == ".":
			return err
		case err != nil:
			return fs.SkipDir // not readable: not a project of the pipeline
		case e.IsDir():
			if name != "." && (slices.Contains(skipped, e.Name()) || depth(name) > maxDepth) {
				return fs.SkipDir
			}
			return nil
		case known[e.Name()] == nil || !e.Type().IsRegular():
			return nil
		case len(d.files) == maxFound:
			return errors.New("the workspace has too many projects: set the key and the paths")
		}
		d.files = append(d.files, name)
		for _, p := range known[e.Name()] {
			if p[0] != '~' {
				p = path.Join(path.Dir(name), p)
			}
			if !slices.Contains(d.paths, p) {
				d.paths = append(d.paths, p)
			}
		}
		return nil
	})
	return d, err
}

func depth(name string) (n int) {
	for ; name != "."; name = path.Dir(name) {
		n++
	}
	return n
}

// key returns the key of a cache without one.
func (d *detected) key(workspace fs.FS) (string, error) {
	sum, err := digest(workspace, d.files)
	return "auto-" + runtime.GOOS + "-" + runtime.GOARCH + "-" + sum, err
}
