package storage

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// maxName bounds the path of a file, in bytes.
const maxName = 4096

// place is a file or a directory of a cache.
type place struct {
	// name is the path in archives: relative to the workspace, "~/" and the path in the home, or the
	// absolute path in the containers of the stage or on the machine.
	name string
	// root is the directory of this machine, and rel the path below it, with slashes.
	root, rel string
	// outside reports that the place is neither in the workspace nor in the home nor in a directory
	// that the steps share.
	outside bool
}

func (p *place) path() string { return filepath.Join(p.root, filepath.FromSlash(p.rel)) }

// places finds the directories of paths.
type places struct {
	workspace, home string
	mounts          []mount  // the longest path first
	listed          []string // the shortest name first
}

// mount is a directory of this machine with its path in containers.
type mount struct{ at, dir string }

// workspaceMount is the path of the workspace in containers.
const workspaceMount = "/workspace"

func findPlaces(s *settings) (*places, error) {
	p := &places{workspace: s.mounts[workspaceMount]}
	if p.workspace == "" {
		var err error
		if p.workspace, err = os.Getwd(); err != nil {
			return nil, err
		}
	}
	home, err := s.home, error(nil)
	if home == "" {
		home, err = os.UserHomeDir()
	}
	if err == nil && filepath.IsAbs(home) {
		p.home = filepath.Clean(home)
	}
	for at, dir := range s.mounts {
		if at = path.Clean(at); at != workspaceMount && path.IsAbs(at) {
			p.mounts = append(p.mounts, mount{at, dir})
		}
	}
	slices.SortFunc(p.mounts, func(a, b mount) int { return cmp.Or(len(b.at)-len(a.at), strings.Compare(a.at, b.at)) })
	for _, text := range s.paths {
		one, err := p.find(text)
		if err != nil {
			return nil, err
		}
		p.listed = append(p.listed, one.name)
	}
	slices.SortFunc(p.listed, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
	return p, nil
}

// find returns the place of a path.
func (p *places) find(text string) (place, error) {
	if text == "" || len(text) > maxName || strings.ContainsRune(text, 0) {
		return place{}, wrong("the path %.100q is empty, too long, or has a zero byte", text)
	}
	if rest, ok := below("~", text); ok {
		if p.home == "" {
			return place{}, fmt.Errorf("the path %q cannot be found: the user has no home directory", text)
		}
		return local(place{name: path.Join("~", rest), root: p.home, rel: rest}, text)
	}
	if !path.IsAbs(text) && !filepath.IsAbs(text) {
		return local(place{name: path.Clean(text), root: p.workspace, rel: path.Clean(text)}, text)
	}
	text = path.Clean(filepath.ToSlash(text))
	if rest, ok := below(workspaceMount, text); ok {
		return place{name: rest, root: p.workspace, rel: rest}, nil
	}
	for _, m := range p.mounts {
		if rest, ok := below(m.at, text); ok && m.dir == p.workspace { // a further path of the workspace
			return place{name: rest, root: p.workspace, rel: rest}, nil
		} else if ok {
			return place{name: text, root: m.dir, rel: rest}, nil
		}
	}
	if rest, ok := below(filepath.ToSlash(p.workspace), text); ok {
		return place{name: rest, root: p.workspace, rel: rest}, nil
	}
	if rest, ok := below(filepath.ToSlash(p.home), text); ok && p.home != "" {
		return place{name: path.Join("~", rest), root: p.home, rel: rest}, nil
	}
	return place{name: text, root: filepath.FromSlash(text), rel: ".", outside: true}, nil
}

// below returns the rest of a path below a directory.
func below(dir, text string) (string, bool) {
	if text == dir {
		return ".", true
	}
	rest, ok := strings.CutPrefix(text, strings.TrimSuffix(dir, "/")+"/")
	return path.Clean(rest), ok
}

func local(p place, text string) (place, error) {
	if !filepath.IsLocal(filepath.FromSlash(p.rel)) {
		return place{}, wrong("the path %.100q leaves its directory", text)
	}
	return p, nil
}

// destination returns the place of an entry of an archive. The archive may be hostile: its entries
// must be in the listed paths, or else where the steps of the stage can write anyway.
func (p *places) destination(name string) (place, error) {
	found, err := p.find(strings.TrimSuffix(name, "/"))
	if err != nil {
		return place{}, errors.New(err.Error()) // of the archive, not of the settings
	}
	if len(p.listed) == 0 {
		if found.outside {
			return place{}, fmt.Errorf("the path %.100q is not in the workspace, the home, or a shared path of the stage", name)
		}
		return found, nil
	}
	// The outermost listed path comes first: entries in it may be links in the path of an inner one.
	for _, l := range p.listed {
		if rest, ok := below(l, found.name); ok || l == "." && !path.IsAbs(found.name) && !strings.HasPrefix(found.name, "~") {
			if found.outside {
				// Links must not lead out of the listed directory.
				found.root, found.rel = filepath.FromSlash(l), rest
			}
			return found, nil
		}
	}
	return place{}, fmt.Errorf("the path %.100q is not one of the paths of the cache", name)
}

// directories returns the directories of the stage, and the listed ones outside that exist.
func (p *places) directories() []string {
	all := []string{p.workspace}
	if p.home != "" {
		all = append(all, p.home)
	}
	for _, m := range p.mounts {
		all = append(all, m.dir)
	}
	for _, l := range p.listed {
		if info, err := os.Stat(l); path.IsAbs(l) && err == nil && info.IsDir() {
			all = append(all, filepath.FromSlash(l))
		}
	}
	return all
}
