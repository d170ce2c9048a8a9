// Package gitrefs lists the refs of a git repository over HTTP, without git.
package gitrefs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Refs holds the refs of a repository.
type Refs struct {
	// Head is the default branch, such as "refs/heads/main". It is empty if the server does
	// not report it.
	Head string
	// Commits maps each ref to its commit. A tag with a message has a second entry "<tag>^{}",
	// which is the commit.
	Commits map[string]string
}

// StatusError is an answer without a list, because of its HTTP status.
type StatusError struct{ Status int }

// Error returns the meaning of the status.
func (e *StatusError) Error() string {
	switch e.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Sprintf("the credentials are wrong, missing or do not suffice (status %d)", e.Status)
	case http.StatusNotFound:
		return "the repository was not found, or the credentials may not see it (status 404)"
	}
	return fmt.Sprintf("the server answers %d", e.Status)
}

// maxRefs limits the size of an answer, in bytes.
const maxRefs = 64 << 20

// List returns the refs of a repository. Its errors contain no credentials.
func List(ctx context.Context, client *http.Client, repository, username, password string) (*Refs, error) {
	u, err := url.Parse(strings.TrimRight(repository, "/"))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("the url must begin with http:// or https:// and a host")
	}
	u.User, u.RawQuery, u.Fragment = nil, "service=git-upload-pack", ""
	u.Path += "/info/refs"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	if username != "" || password != "" {
		req.SetBasicAuth(username, password)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, &StatusError{Status: resp.StatusCode}
	}
	if resp.Header.Get("Content-Type") != "application/x-git-upload-pack-advertisement" {
		return nil, errors.New("the server answers, but not as a git server does")
	}
	return parse(bufio.NewReader(io.LimitReader(resp.Body, maxRefs)))
}

// parse reads the advertisement of git's smart HTTP protocol: the service's name, a flush
// packet, and a line for each ref. The first line also has the server's capabilities.
func parse(r *bufio.Reader) (*Refs, error) {
	refs := &Refs{Commits: map[string]string{}}
	first, err := packet(r)
	if err != nil || strings.TrimSuffix(first, "\n") != "# service=git-upload-pack" {
		return nil, errors.New("the server answers, but not as a git server does")
	}
	if _, err := packet(r); err != nil { // the flush packet
		return nil, fmt.Errorf("the list of refs: %w", err)
	}
	for {
		line, err := packet(r)
		if err != nil {
			return nil, fmt.Errorf("the list of refs: %w", err)
		}
		if line == "" {
			return refs, nil
		}
		line, abilities, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\x00")
		for ability := range strings.FieldsSeq(abilities) {
			if head, ok := strings.CutPrefix(ability, "symref=HEAD:"); ok {
				refs.Head = head
			}
		}
		commit, ref, ok := strings.Cut(line, " ")
		if !ok {
			return nil, errors.New("the list of refs: a line is malformed")
		}
		if ref != "capabilities^{}" { // an empty repository
			refs.Commits[ref] = commit
		}
	}
}

// packet reads one pkt-line. A flush packet is empty.
func packet(r *bufio.Reader) (string, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return "", err
	}
	n, err := strconv.ParseUint(string(head[:]), 16, 16)
	if err != nil || n > 0 && n < 4 {
		return "", errors.New("a length is malformed")
	}
	if n == 0 {
		return "", nil
	}
	b := make([]byte, n-4)
	_, err = io.ReadFull(r, b)
	return string(b), err
}

// Find returns the ref and the commit for a branch, a tag or a full ref name, with git's order
// of search. The empty name means the default branch.
func (r *Refs) Find(name string) (ref, commit string, ok bool) {
	candidates := []string{name, "refs/tags/" + name, "refs/heads/" + name}
	if name == "" {
		candidates = []string{"HEAD"}
	}
	for _, ref := range candidates {
		commit, ok := r.Commits[ref+"^{}"]
		if !ok {
			commit, ok = r.Commits[ref]
		}
		if ok {
			return ref, commit, true
		}
	}
	return "", "", false
}
