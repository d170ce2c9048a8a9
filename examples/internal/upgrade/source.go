package upgrade

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// Limits of the files from the address of the releases.
const (
	maxStable    = maxVersion + 2
	maxSignature = 4 << 10
	maxSums      = 1 << 20
	maxArchive   = 512 << 20

	// fetchTimeout limits the download of each small file, archiveTimeout the download of the archive.
	fetchTimeout   = time.Minute
	archiveTimeout = 30 * time.Minute
	maxRedirects   = 5
)

// source is the address of the releases.
type source struct {
	base   *url.URL
	client *http.Client
}

// newSource checks the address. Its errors do not quote it, because it may contain a password.
func newSource(address string, client *http.Client) (*source, error) {
	u, err := url.Parse(strings.TrimSpace(address))
	switch {
	case address == "":
		return nil, errors.New("it is not set: set it to the address of the releases, such as https://releases.example/dlite")
	case err != nil:
		return nil, errors.New("it is not a URL: it must look like https://releases.example/dlite")
	case u.User != nil:
		return nil, errors.New("it contains a user or password: remove it")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, errors.New("it contains a query or a fragment: remove the ? or # and the text after it")
	case u.Scheme == "file" && (u.Host != "" || !path.IsAbs(u.Path)):
		return nil, errors.New("it must have an absolute path: file:///path/of/releases")
	case u.Scheme == "file":
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return nil, errors.New("it must begin with https://, http:// or file:///")
	}
	if client == nil {
		client = http.DefaultClient
	}
	own := *client
	own.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		switch {
		case len(via) > maxRedirects:
			return fmt.Errorf("more than %d redirects", maxRedirects)
		case via[0].URL.Scheme == "https" && r.URL.Scheme != "https":
			return errors.New("it redirects from https to " + r.URL.Scheme)
		}
		return nil
	}
	return &source{base: u, client: &own}, nil
}

// small returns the content of a small file.
func (s *source) small(ctx context.Context, limit int64, elements ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	var b strings.Builder
	err := s.copy(ctx, &b, limit, elements...)
	return []byte(b.String()), err
}

// copy copies a file of at most limit bytes.
func (s *source) copy(ctx context.Context, to io.Writer, limit int64, elements ...string) (err error) {
	at := s.base.JoinPath(elements...)
	defer func() {
		if err != nil {
			err = fmt.Errorf("get %s: %w", at.Redacted(), err)
		}
	}()
	from, size, err := s.open(ctx, at)
	if err != nil {
		return err
	}
	defer from.Close() //nolint:errcheck // nothing was written
	if size > limit {
		return fmt.Errorf("it has %d bytes, more than the limit of %d", size, limit)
	}
	n, err := io.Copy(to, io.LimitReader(from, limit+1))
	switch {
	case err != nil:
		return err
	case n > limit:
		return fmt.Errorf("it has more than the limit of %d bytes", limit)
	case size >= 0 && n != size:
		return fmt.Errorf("it ended after %d of %d bytes", n, size)
	}
	return nil
}

// open returns a file and its size, or -1 if the size is not known.
func (s *source) open(ctx context.Context, at *url.URL) (io.ReadCloser, int64, error) {
	if at.Scheme == "file" {
		f, err := os.Open(filepath.FromSlash(at.Path))
		if err != nil {
			return nil, 0, err
		}
		info, err := f.Stat()
		if err == nil && !info.Mode().IsRegular() {
			err = errors.New("it is not a regular file")
		}
		if err != nil {
			return nil, 0, errors.Join(err, f.Close())
		}
		return f, info.Size(), nil
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, 0, err
	}
	r.Header.Set("Accept-Encoding", "identity") // Content-Length must be the size of the file
	resp, err := s.client.Do(r)
	if err != nil {
		var e *url.Error
		if errors.As(err, &e) {
			err = e.Err
		}
		return nil, 0, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusNotFound {
			return nil, 0, errors.New("there is no such file: check the version and the address of the releases")
		}
		return nil, 0, fmt.Errorf("the server answered %s", resp.Status)
	}
	return resp.Body, resp.ContentLength, nil
}
