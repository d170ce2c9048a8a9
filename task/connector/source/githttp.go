package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/delegate-io/dlite/internal/retryafter"
	"github.com/delegate-io/dlite/internal/source"
)

// A poll over HTTP is one request: ls-refs of version 2 of the protocol, without the announcement of the server before
// it. If the server does not understand that, the announcement is read, and what it says is remembered.

const pollTimeout = 30 * time.Second

// gitWay is how a server is asked for its refs.
type gitWay struct {
	url    string // of the repository, after redirections
	format string
	old    bool // the server has no version 2
}

// errNotVersion2 means that an answer to ls-refs is not one of version 2.
var errNotVersion2 = errors.New("the server does not answer in version 2 of the protocol")

func (s *Sources) listHTTP(ctx context.Context, cfg *source.GitConfig, address string, prefixes []string, keep func(string) bool) (map[string]string, error) {
	way, known := s.ways.get(address)
	if !known {
		way = gitWay{url: address, format: "sha1"}
	}
	if !way.old {
		refs, err := s.lsRefsHTTP(ctx, cfg, way, prefixes, keep)
		if !errors.Is(err, errNotVersion2) {
			return refs, err
		}
	}
	way, announced, err := s.announced(ctx, cfg, address, keep)
	if err != nil {
		return nil, err
	}
	s.ways.put(address, way)
	if way.old {
		return announced.refs, nil
	}
	refs, err := s.lsRefsHTTP(ctx, cfg, way, prefixes, keep)
	if errors.Is(err, errNotVersion2) {
		return nil, fmt.Errorf("the Git server %s announces version 2 of the protocol, but does not answer in it", hostOf(address))
	}
	return refs, err
}

// lsRefsHTTP asks for refs in version 2. It fails with errNotVersion2 if the answer is something else, for example a
// redirection.
func (s *Sources) lsRefsHTTP(ctx context.Context, cfg *source.GitConfig, way gitWay, prefixes []string, keep func(string) bool) (map[string]string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, way.url+"/git-upload-pack", bytes.NewReader(lsRefs(way.format, prefixes)))
	if err != nil {
		return nil, errors.New("the url is not valid")
	}
	req.Header.Set("Content-Type", "application/x-git-upload-pack-request")
	req.Header.Set("Accept", "application/x-git-upload-pack-result")
	resp, err := s.sendGit(cfg, req) //nolint:bodyclose // drain closes it
	if err != nil {
		return nil, err
	}
	defer drain(resp.Body)
	if err := refusal(resp); err != nil && (resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= http.StatusInternalServerError) {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/x-git-upload-pack-result") {
		return nil, errNotVersion2
	}
	refs, err := readRefs(newPackets(resp.Body), keep)
	var refused *serverError
	if errors.As(err, &refused) || errors.Is(err, io.ErrUnexpectedEOF) { // for example another format of ids
		return nil, fmt.Errorf("%w: %w", errNotVersion2, err)
	}
	return refs, err
}

// announced reads the announcement of a server.
func (s *Sources) announced(ctx context.Context, cfg *source.GitConfig, address string, keep func(string) bool) (gitWay, *advertisement, error) {
	const service = "/info/refs?service=git-upload-pack"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+service, nil)
	if err != nil {
		return gitWay{}, nil, errors.New("the url is not valid")
	}
	resp, err := s.sendGit(cfg, req) //nolint:bodyclose // drain closes it
	if err != nil {
		return gitWay{}, nil, err
	}
	defer drain(resp.Body)
	if err := refusal(resp); err != nil {
		return gitWay{}, nil, err
	}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/x-git-upload-pack-advertisement") {
		return gitWay{}, nil, fmt.Errorf("%s is not the address of a Git repository: the answer is a document of the type %q", hostOf(address), printable(resp.Header.Get("Content-Type")))
	}
	a, err := readAdvertisement(newPackets(resp.Body), keep)
	if err != nil {
		return gitWay{}, nil, err
	}
	way := gitWay{url: address, format: a.format, old: !a.version2}
	if final, ok := strings.CutSuffix(resp.Request.URL.String(), service); ok && resp.Request.URL.Host == req.URL.Host {
		way.url = final // the repository was renamed
	}
	return way, a, nil
}

// sendGit sends a request with the credentials. A POST follows no redirection.
func (s *Sources) sendGit(cfg *source.GitConfig, req *http.Request) (*http.Response, error) {
	req.Header.Set("Git-Protocol", "version=2")
	req.Header.Set("User-Agent", "git/2 dlite")
	if a := cfg.Auth; a != nil && (a.Username != "" || a.Password != "") {
		user := a.Username
		if user == "" {
			user = "git" // some servers refuse a token without a name
		}
		req.SetBasicAuth(user, a.Password)
	}
	client := http.Client{Transport: s.transport, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		const mostHops = 5
		if via[0].Method == http.MethodPost || len(via) > mostHops || via[0].URL.Scheme == "https" && next.URL.Scheme != "https" {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	s.requests.Add(1)
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("calling the Git server %s: %w", req.URL.Host, withoutURL(err))
	}
	return resp, nil
}

// drain reads the rest of an answer, so that its connection can be used again.
func drain(body io.ReadCloser) {
	_, _ = io.Copy(io.Discard, io.LimitReader(body, 64<<10))
	_ = body.Close()
}

// refusal returns the error of an answer that is not a success, with a remedy.
func refusal(resp *http.Response) error {
	host := resp.Request.URL.Host
	switch code := resp.StatusCode; {
	case code == http.StatusOK || code == http.StatusNotModified:
		return nil
	case code == http.StatusUnauthorized:
		return fmt.Errorf("%s refuses the credentials (401): check the secrets of the connector", host)
	case code == http.StatusForbidden:
		return fmt.Errorf("%s forbids the access (403): give the account of the connector permission to read the repository", host)
	case code == http.StatusNotFound:
		return fmt.Errorf("%s has no such repository, or the credentials may not see it (404)", host)
	case code == http.StatusTooManyRequests:
		return fmt.Errorf("%s limits the rate of requests (429), and wants a pause of %s: poll less often", host, retryafter.Parse(resp.Header, time.Now()))
	case code >= 300 && code < 400:
		return fmt.Errorf("%s redirects to %s, which is not followed: set the new address", host, printable(hostOf(resp.Header.Get("Location"))))
	default:
		return fmt.Errorf("%s answers with the status %d", host, code)
	}
}
