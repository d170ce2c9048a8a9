package storage

import (
	"errors"
	"os"
	"strings"
)

// cacheKey returns the key of the cache and the name of its object. If the settings have no
// key or no paths, they come from the projects in the workspace.
func (w *work) cacheKey() (key, object string, err error) {
	root, err := os.OpenRoot(w.places.workspace)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = root.Close() }()
	workspace := root.FS()
	if key, err = expandKey(w.key, keyFunctions{workspace: workspace, env: w.env}); err != nil {
		return "", "", err
	}
	if key == "" || len(w.paths) == 0 && w.detects() {
		d, err := detect(workspace)
		if err != nil {
			return "", "", err
		}
		if len(d.files) == 0 && key == "" {
			return "", "", errors.New("the workspace has no file with dependencies that is known here, such as go.sum or package-lock.json: set the key and the paths")
		}
		if len(w.paths) == 0 {
			w.paths = d.paths
		}
		if key == "" {
			if key, err = d.key(workspace); err != nil {
				return "", "", err
			}
		}
	}
	object, err = indexObject(strings.TrimSpace(key))
	return key, object, err
}
