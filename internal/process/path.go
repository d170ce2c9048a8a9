package process

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// LookPath finds a program in the PATH of an environment, relative to dir. It ignores empty elements of
// PATH: they would mean a directory that steps can write to.
func LookPath(name, dir string, env []string) (string, error) {
	if strings.ContainsRune(name, '/') || strings.ContainsRune(name, filepath.Separator) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return name, nil
	}
	extensions := []string{""}
	if runtime.GOOS == "windows" {
		extensions = append(extensions, ".exe", ".com", ".bat", ".cmd")
	}
	for _, p := range filepath.SplitList(pathOf(env)) {
		if p == "" {
			continue
		}
		if !filepath.IsAbs(p) {
			p = filepath.Join(dir, p)
		}
		for _, ext := range extensions {
			file := filepath.Join(p, name+ext)
			info, err := os.Stat(file)
			if err == nil && info.Mode().IsRegular() && (runtime.GOOS == "windows" || info.Mode()&0o111 != 0) {
				return file, nil
			}
		}
	}
	return "", fmt.Errorf("%q is not in the step's PATH", name)
}

// pathOf returns the variable PATH.
func pathOf(env []string) string {
	for _, v := range env {
		if value, ok := strings.CutPrefix(v, "PATH="); ok {
			return value
		}
	}
	return ""
}
