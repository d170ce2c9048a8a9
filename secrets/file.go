package secrets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
)

// maxFileSize is the size of the largest secret file that is read, in bytes.
const maxFileSize = 1 << 20

// File returns a provider for the files in a directory (rule S1), for example
// /run/secrets. The directory must exist. The provider is safe for concurrent use.
// A reference names a file by its path in the directory:
//
//	${{secrets.file://token}}                     the whole text, without the newline at its end
//	${{secrets.file://team/ci.env#PASSWORD}}      a variable of a dotenv file: *.env
//	${{secrets.file://team/ci.json#db.password}}  a field of a JSON or YAML file: *.json, *.yaml, *.yml
//
// A field that is a list or an object has its JSON text as value, see [Field].
// Files with other extensions have no fields.
//
// A reference cannot reach a file outside of the directory: not with "..", an
// absolute path or a symbolic link. Links inside the directory work; mounted
// secrets need them. File refuses a file that is not regular, because reading a
// pipe could block the task. It also refuses a file larger than 1 MiB. It reads a
// file again for each task.
func File(directory string) (ProviderFunc, error) {
	directory, err := filepath.Abs(directory)
	if err == nil {
		var root *os.Root
		if root, err = os.OpenRoot(directory); err == nil {
			err = root.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("opening the directory of secrets: %w", err)
	}
	return func(_ context.Context, ref *url.URL) (string, error) { return fetchFile(directory, ref) }, nil
}

func fetchFile(directory string, ref *url.URL) (string, error) {
	name := strings.TrimPrefix(ref.Host+ref.Path, "/")
	if name == "" || ref.RawQuery != "" {
		return "", errors.New("it must be of the form file://path or file://path#field")
	}
	if !fs.ValidPath(name) {
		return "", errors.New("its path must lie in the directory of secrets")
	}
	b, err := readSecretFile(directory, filepath.FromSlash(name))
	if err != nil {
		return "", err
	}
	if ref.Fragment == "" {
		return strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r"), nil
	}
	switch ext := strings.ToLower(path.Ext(name)); ext {
	case ".env":
		return dotenvVariable(string(b), ref.Fragment)
	case ".json":
		return Field(string(b), ref.Fragment)
	case ".yaml", ".yml":
		return yamlField(b, ref.Fragment)
	default:
		return "", fmt.Errorf("a file with the extension %q has no fields", ext)
	}
}

// readSecretFile reads a regular file in the directory.
func readSecretFile(directory, name string) ([]byte, error) {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer root.Close()           //nolint:errcheck // only read
	info, err := root.Stat(name) // before opening it: opening a pipe blocks
	if err != nil {
		return nil, withoutPath(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer f.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	switch {
	case err != nil:
		return nil, withoutPath(err)
	case len(b) > maxFileSize:
		return nil, fmt.Errorf("the file is larger than %d bytes", maxFileSize)
	}
	return b, nil
}

// withoutPath removes the path from an error: the reference names it already.
func withoutPath(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: there is no such file", ErrNotFound)
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

func yamlField(b []byte, name string) (string, error) {
	// The error omits the parser's text, which quotes the file.
	asJSON, err := yaml.YAMLToJSON(b)
	if err != nil || !json.Valid(asJSON) {
		return "", errors.New("the file is not YAML")
	}
	return Field(string(asJSON), name)
}
