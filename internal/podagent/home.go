package podagent

import (
	"fmt"
	"os"
	"strings"
)

// WithHome gives environ a home that the step can write to: dir, which is made, where
// the image's is somebody else's. Most images have root's alone.
func WithHome(environ []string, dir string) ([]string, error) {
	const name = "HOME="
	var others []string
	for _, v := range environ {
		home, ok := strings.CutPrefix(v, name)
		if !ok {
			others = append(others, v)
		} else if writable(home) {
			return environ, nil
		}
	}
	if os.Geteuid() == 0 {
		return environ, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make a home: %w", err)
	}
	return append(others, name+dir), nil
}
