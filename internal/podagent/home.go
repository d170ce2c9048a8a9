package podagent

import (
	"fmt"
	"os"
	"strings"
)

// WithHome returns environ with a HOME that the step can write to. If the process cannot
// write to the home of the image, WithHome creates dir and uses it. Most images have only
// the home of root.
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
		return nil, fmt.Errorf("create the home directory: %w", err)
	}
	return append(others, name+dir), nil
}
