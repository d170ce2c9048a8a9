// Package file fetches secrets from files in one folder (SPEC S1), such as those
// that a container's secrets are mounted as.
//
//	p, err := file.New("/run/secrets")
//	defer p.Close()
//	cfg := secrets.ResolverConfig{Providers: secrets.Providers{file.Scheme: p}}
//
// A reference names a file by its path within the folder, and what of it:
//
//	${{secrets.file://token}}                     the whole text, without a newline at its end
//	${{secrets.file://team/ci.env#PASSWORD}}      a line of a dotenv file: *.env
//	${{secrets.file://team/ci.json#db.password}}  a field of a JSON or YAML file: *.json, *.yaml, *.yml
//
// A field that is a list or an object is its JSON text. A file without such an
// ending has no fields.
//
// Nothing outside of the folder can be reached: neither "..", nor an absolute
// path, nor a symbolic link that leads out of it. Links within the folder, which
// mounted secrets are made of, work. What is no regular file is refused, so that
// a pipe cannot hold a task up, and so is a file over 1 MiB. Files are read anew
// for every task.
package file

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

	"github.com/delegate-io/dlite/secrets"
)

// Scheme is what references to files normally begin with.
const Scheme = "file"

// MaxSize is the size of the largest file that is read, in bytes.
const MaxSize = 1 << 20

// Provider fetches secrets from the files of a folder. It is safe for concurrent
// use.
type Provider struct{ root *os.Root }

// New makes a provider for a folder, which must be there.
func New(folder string) (*Provider, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("the folder of secrets: %w", err)
	}
	return &Provider{root}, nil
}

// Close closes the folder.
func (p *Provider) Close() error { return p.root.Close() }

// Fetch implements [secrets.Provider].
func (p *Provider) Fetch(_ context.Context, ref *url.URL) (string, error) {
	name := strings.TrimPrefix(ref.Host+ref.Path, "/")
	if name == "" || ref.RawQuery != "" {
		return "", errors.New("it must be of the form file://path or file://path#field")
	}
	if !fs.ValidPath(name) {
		return "", errors.New("its path must lie in the folder of secrets")
	}
	b, err := p.read(filepath.FromSlash(name))
	if err != nil {
		return "", err
	}
	if ref.Fragment == "" {
		return strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r"), nil
	}
	switch ext := strings.ToLower(path.Ext(name)); ext {
	case ".env":
		return dotenv(string(b), ref.Fragment)
	case ".json":
		return secrets.Field(string(b), ref.Fragment)
	case ".yaml", ".yml":
		return field(b, ref.Fragment)
	default:
		return "", fmt.Errorf("a file with the ending %q has no fields", ext)
	}
}

// read reads a regular file.
func (p *Provider) read(name string) ([]byte, error) {
	info, err := p.root.Stat(name) // before it is opened: that of a pipe would wait
	if err != nil {
		return nil, reason(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	f, err := p.root.Open(name)
	if err != nil {
		return nil, reason(err)
	}
	defer f.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	switch {
	case err != nil:
		return nil, reason(err)
	case len(b) > MaxSize:
		return nil, fmt.Errorf("the file is larger than %d bytes", MaxSize)
	}
	return b, nil
}

// reason leaves out the path, which the reference has.
func reason(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: there is no such file", secrets.ErrNotFound)
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

func field(b []byte, name string) (string, error) {
	// The parser's errors quote what it has read, so they are not passed on.
	asJSON, err := yaml.YAMLToJSON(b)
	if err != nil || !json.Valid(asJSON) {
		return "", errors.New("the file is not YAML")
	}
	return secrets.Field(string(asJSON), name)
}
