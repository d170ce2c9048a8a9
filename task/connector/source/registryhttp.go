package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/delegate-io/dlite/internal/source"
)

const (
	// mostTags bounds the tags of a repository that are read, and maxList the list's size in bytes.
	mostTags = 100_000
	maxList  = 16 << 20
	mostETag = 256
)

// repository is a repository of images with its authenticated connection, which the polls of it share.
type repository struct {
	name      string // without the host of the registry
	base      string // scheme and host
	transport http.RoundTripper
}

// repository returns a repository. The first time, it asks the registry for its way of authentication.
func (s *Sources) repository(ctx context.Context, cfg *source.RegistryConfig) (*repository, error) {
	key := registryKey(cfg)
	if r, ok := s.registries.get(key); ok {
		return r, nil
	}
	var options []name.Option
	if cfg.Insecure {
		options = append(options, name.Insecure)
	}
	repo, err := name.NewRepository(cfg.Repository, options...)
	if err != nil {
		return nil, fmt.Errorf("repository is not the name of an image without a tag: %s", printable(err.Error()))
	}
	auth := authn.Anonymous
	if a := cfg.Auth; a != nil && (a.Username != "" || a.Password != "") {
		auth = &authn.Basic{Username: a.Username, Password: a.Password}
	}
	t, err := transport.NewWithContext(ctx, repo.Registry, auth, &counted{s.transport, &s.requests}, []string{repo.Scope(transport.PullScope)})
	if err != nil {
		return nil, registryError(repo.RegistryStr(), err)
	}
	r := &repository{name: repo.RepositoryStr(), base: "https://" + repo.RegistryStr(), transport: t}
	s.registries.put(key, r)
	return r, nil
}

// forget lets the next poll authenticate again after a refusal.
func (s *Sources) forget(cfg *source.RegistryConfig, err error) {
	var refused *registryRefusal
	if errors.As(err, &refused) {
		s.registries.remove(registryKey(cfg))
	}
}

func registryKey(cfg *source.RegistryConfig) string {
	data, _ := json.Marshal([]any{cfg.Repository, cfg.Auth, cfg.Insecure}) // texts
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// counted counts requests.
type counted struct {
	next http.RoundTripper
	n    *atomic.Int64
}

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.next.RoundTrip(r)
}

// registryRefusal is a refusal that new credentials or a new token may change.
type registryRefusal struct{ error }

func (e *registryRefusal) Unwrap() error { return e.error }

func registryError(host string, err error) error {
	var e *transport.Error
	if errors.As(err, &e) {
		switch e.StatusCode {
		case http.StatusUnauthorized:
			return &registryRefusal{fmt.Errorf("%s refuses the credentials (401): check the secrets of the connector", host)}
		case http.StatusForbidden:
			return &registryRefusal{fmt.Errorf("%s forbids the access (403): give the account of the connector permission to pull", host)}
		case http.StatusTooManyRequests:
			return fmt.Errorf("%s limits the rate of requests (429): poll less often", host)
		}
		return fmt.Errorf("the registry %s answers with the status %d", host, e.StatusCode)
	}
	return fmt.Errorf("calling the registry %s: %w", host, withoutURL(err))
}

// send sends a request. The answer is 200, 304, or 404.
func (r *repository) send(ctx context.Context, method, address, etag string, accept ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, errors.New("the registry gives an address that is not valid")
	}
	if etag != "" {
		req.Header.Set("If-None-Match", etag)
	}
	if len(accept) > 0 {
		req.Header.Set("Accept", strings.Join(accept, ", "))
	}
	client := http.Client{Transport: r.transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return nil, registryError(req.URL.Host, err)
	}
	if resp.StatusCode == http.StatusNotFound {
		return resp, nil
	}
	if err := refusal(resp); err != nil {
		drain(resp.Body)
		if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
			err = &registryRefusal{err}
		}
		return nil, err
	}
	return resp, nil
}

// list returns the tags that keep selects. With the ETag of an earlier list it may report that nothing has changed.
func (r *repository) list(ctx context.Context, known string, keep func(string) bool) (tags []string, etag string, unchanged bool, err error) {
	const page = 1000
	address := fmt.Sprintf("%s/v2/%s/tags/list?n=%d", r.base, r.name, page)
	read, pages := 0, 0
	for ; address != ""; pages++ {
		resp, err := r.send(ctx, http.MethodGet, address, known) //nolint:bodyclose // drain closes it
		if err != nil {
			return nil, "", false, err
		}
		if resp.StatusCode == http.StatusNotModified {
			drain(resp.Body)
			return nil, "", true, nil
		}
		if resp.StatusCode == http.StatusNotFound {
			drain(resp.Body)
			return nil, "", false, fmt.Errorf("the registry %s has no repository %s, or the credentials may not see it (404)", hostOf(address), printable(r.name))
		}
		known = ""
		found, err := readTags(resp)
		if err != nil {
			return nil, "", false, err
		}
		if read += len(found); read > mostTags {
			return nil, "", false, fmt.Errorf("the repository has more than %d tags: watch single tags by digests", mostTags)
		}
		for _, tag := range found {
			if validTag(tag) && keep(tag) {
				tags = append(tags, tag)
			}
		}
		etag = usableETag(resp.Header)
		next, err := nextPage(resp, address)
		if err != nil {
			return nil, "", false, err
		}
		if next != "" && len(found) == 0 {
			return nil, "", false, errors.New("the registry gives an empty page of tags with a next one")
		}
		address = next
	}
	if pages > 1 {
		etag = "" // it is for a page
	}
	return tags, etag, false, nil
}

func readTags(resp *http.Response) ([]string, error) {
	defer drain(resp.Body)
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxList+1))
	if err != nil {
		return nil, fmt.Errorf("reading the list of tags: %w", err)
	}
	if len(data) > maxList {
		return nil, fmt.Errorf("the list of tags has more than %d bytes", maxList)
	}
	var list struct{ Tags []string }
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, errors.New("the answer is not a list of tags: is this the address of a registry?")
	}
	return list.Tags, nil
}

var linkForm = regexp.MustCompile(`^\s*<([^>]+)>\s*;\s*rel="?next"?`)

// nextPage returns the address of the next page. It must be on the same server.
func nextPage(resp *http.Response, current string) (string, error) {
	m := linkForm.FindStringSubmatch(resp.Header.Get("Link"))
	if m == nil {
		return "", nil
	}
	base, err := url.Parse(current)
	if err != nil {
		return "", err
	}
	next, err := base.Parse(m[1])
	if err == nil {
		next.Scheme, next.User = base.Scheme, nil // the connector has the credentials
	}
	if err != nil || next.Host != base.Host || next.String() == current {
		return "", errors.New("the registry gives an address for the next tags that is not valid")
	}
	return next.String(), nil
}

var digestForm = regexp.MustCompile(`^[a-z0-9]+:[0-9a-f]{32,128}$`)

// digest returns the digest of a tag, or nothing if the tag does not exist.
func (r *repository) digest(ctx context.Context, tag, known string) (digest, etag string, unchanged bool, err error) {
	if !validTag(tag) {
		return "", "", false, fmt.Errorf("digests: %q is not a tag", printable(tag))
	}
	resp, err := r.send(ctx, http.MethodHead, fmt.Sprintf("%s/v2/%s/manifests/%s", r.base, r.name, tag), known, //nolint:bodyclose // drain closes it
		"application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json",
		"application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
	if err != nil {
		return "", "", false, err
	}
	drain(resp.Body)
	switch resp.StatusCode {
	case http.StatusNotModified:
		return "", "", true, nil
	case http.StatusNotFound:
		return "", "", false, nil
	}
	digest = resp.Header.Get("Docker-Content-Digest")
	if !digestForm.MatchString(digest) {
		return "", "", false, errors.New("the registry gives no digest of the tag (header Docker-Content-Digest)")
	}
	return digest, usableETag(resp.Header), false, nil
}

// usableETag returns the ETag of an answer, if it is short.
func usableETag(h http.Header) string {
	if etag := h.Get("ETag"); len(etag) <= mostETag {
		return etag
	}
	return ""
}
