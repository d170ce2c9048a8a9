package storage

import (
	"crypto/md5" //nolint:gosec // see foreignChecksum
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strings"
)

// expandKey replaces the functions of a key, for example
//
//	node-{{ os }}-{{ checksum "package-lock.json" }}
//
// checksum takes files of the workspace, also as patterns of package path.
func expandKey(template string, with keyFunctions) (string, error) {
	var key strings.Builder
	for rest := template; ; {
		before, after, found := strings.Cut(rest, "{{")
		key.WriteString(before)
		if !found {
			return key.String(), nil
		}
		call, after, found := strings.Cut(after, "}}")
		if !found {
			return "", wrong("key: {{ without }}")
		}
		value, err := with.call(call)
		if err != nil {
			return "", err
		}
		key.WriteString(value)
		rest = after
	}
}

// keyFunctions are the functions of keys.
type keyFunctions struct {
	workspace fs.FS
	env       func(string) string
	// foreign takes the checksums of the plugin for caches.
	foreign bool
}

// keyValues are values of the run in keys, by the variables that have them.
var keyValues = map[string]string{
	".Repo.Name": "DRONE_REPO_NAME", ".Repo.Owner": "DRONE_REPO_NAMESPACE", ".Repo.Namespace": "DRONE_REPO_NAMESPACE", ".Commit.Branch": "DRONE_COMMIT_BRANCH",
	".Commit.Sha": "DRONE_COMMIT_SHA", ".Commit.Ref": "DRONE_COMMIT_REF", ".Build.Number": "DRONE_BUILD_NUMBER", ".Build.Event": "DRONE_BUILD_EVENT",
}

func (k keyFunctions) call(call string) (string, error) {
	name, rest, _ := strings.Cut(strings.TrimSpace(call), " ")
	args, ok := quoted(rest)
	switch {
	case !ok:
	case name == "os" && len(args) == 0:
		return runtime.GOOS, nil
	case name == "arch" && len(args) == 0:
		return runtime.GOARCH, nil
	case keyValues[name] != "" && len(args) == 0:
		return k.env(keyValues[name]), nil
	case name == "checksum" && len(args) == 1 && k.foreign:
		return foreignChecksum(k.workspace, args[0])
	case name == "checksum" && len(args) > 0:
		return checksum(k.workspace, args)
	}
	return "", wrong(`key: {{%.100s}} is not known: use {{ checksum "FILE" }}, {{ os }}, {{ arch }}, {{ .Repo.Name }} or {{ .Commit.Branch }}`, call)
}

// quoted returns the arguments of a list. They stand in quotes of either kind, or are words.
func quoted(text string) (args []string, ok bool) {
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		quote := text[:1]
		if quote != `"` && quote != "'" {
			word, rest, _ := strings.Cut(text, " ")
			if strings.ContainsAny(word, "\"'") {
				return nil, false
			}
			args, text = append(args, word), rest
			continue
		}
		arg, rest, found := strings.Cut(text[1:], quote)
		if !found {
			return nil, false
		}
		args, text = append(args, arg), rest
	}
	return args, true
}

// foreignChecksum is the checksum of the plugin for caches: MD5 of one file.
func foreignChecksum(workspace fs.FS, name string) (string, error) {
	clean := path.Clean(strings.TrimPrefix(name, workspaceMount+"/"))
	if !fs.ValidPath(clean) {
		return "", wrong("key: the file %.100q is not in the workspace", name)
	}
	info, err := fs.Stat(workspace, clean)
	if err != nil || !info.Mode().IsRegular() { // to open a pipe would wait for a writer
		return "", fmt.Errorf("the checksum of its key needs the file %.100q", name)
	}
	f, err := workspace.Open(clean)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	sum := md5.New() //nolint:gosec // the name of a cache, not its protection
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// checksum returns a checksum of the names and the contents of files.
func checksum(workspace fs.FS, patterns []string) (string, error) {
	var files []string
	for _, p := range patterns {
		clean := path.Clean(strings.TrimPrefix(p, workspaceMount+"/"))
		if !fs.ValidPath(clean) {
			return "", wrong("key: the file %.100q is not in the workspace", p)
		}
		found, err := fs.Glob(workspace, clean)
		if err != nil {
			return "", wrong("key: the pattern %.100q is not valid", p)
		}
		if len(found) == 0 {
			return "", fmt.Errorf("the checksum of its key needs the file %.100q, which does not exist", p)
		}
		files = append(files, found...)
	}
	return digest(workspace, files)
}

// digest returns 32 characters.
func digest(workspace fs.FS, files []string) (string, error) {
	slices.Sort(files)
	all := sha256.New()
	for _, name := range slices.Compact(files) {
		// To open a pipe would wait for a writer.
		info, err := fs.Stat(workspace, name)
		if err != nil {
			return "", err
		}
		if !info.Mode().IsRegular() {
			return "", fmt.Errorf("the checksum of its key needs files, and %.100q is not a file", name)
		}
		f, err := workspace.Open(name)
		if err != nil {
			return "", err
		}
		one := sha256.New()
		_, err = io.Copy(one, f)
		_ = f.Close()
		if err != nil {
			return "", err
		}
		_, _ = fmt.Fprintf(all, "%s\x00%x\n", name, one.Sum(nil)) // a hash accepts everything
	}
	return hex.EncodeToString(all.Sum(nil))[:32], nil
}
