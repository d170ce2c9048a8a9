package definition

import (
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
)

// The bounds of a folder of templates.
const (
	maxTemplates      = 1000
	maxTemplatesBytes = 64 << 20
)

// Folder returns a function for Options.Templates that finds the templates of a folder and of
// those below it. Files of other content are left out. A reference without a version finds the
// only version of the template.
func Folder(files fs.FS) (func(ref, version string) (Source, bool), error) {
	f := folder{versions: map[string]map[string]Source{}}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ext := filepath.Ext(name); entry.Type().IsRegular() && (ext == ".yaml" || ext == ".yml") {
			return f.add(files, name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the folder of templates: %w", err)
	}
	return f.find, nil
}

type folder struct {
	versions map[string]map[string]Source // identifier, version
	count    int
	bytes    int
}

func (f *folder) add(files fs.FS, name string) error {
	text, err := readBounded(files, name)
	if err != nil {
		return err
	}
	f.count++
	if f.bytes += len(text); f.count > maxTemplates || f.bytes > maxTemplatesBytes {
		return fmt.Errorf("the folder has more than %d files or %d bytes", maxTemplates, maxTemplatesBytes)
	}
	source := Source{Name: name, Text: text}
	root, problem := parse(source)
	if problem != nil || root.Get("template") == nil {
		return nil // Read reports the file if a pipeline needs it
	}
	id, version := root.Get("template").Get("identifier").Text(), root.Get("template").Get("versionLabel").Text()
	if id == "" {
		return fmt.Errorf("%s: the template has no identifier", name)
	}
	if f.versions[id] == nil {
		f.versions[id] = map[string]Source{}
	}
	if first, twice := f.versions[id][version]; twice {
		return fmt.Errorf("%s: the template %s of the version %q is already in %s", name, id, version, first.Name)
	}
	f.versions[id][version] = source
	return nil
}

// readBounded reads a file, at most one byte more than a pipeline may have.
func readBounded(files fs.FS, name string) ([]byte, error) {
	file, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	return io.ReadAll(io.LimitReader(file, maxText+1))
}

func (f *folder) find(ref, version string) (Source, bool) {
	versions := f.versions[strings.TrimSpace(ref)]
	if source, ok := versions[version]; ok {
		return source, true
	}
	if version == "" && len(versions) == 1 {
		for _, source := range versions {
			return source, true
		}
	}
	return Source{}, false
}
