// Package google fetches secrets from Google Secret Manager (rule S1).
//
//	p, err := google.New(ctx, google.Config{})
//	defer p.Close()
//	cfg := secrets.ResolverConfig{Providers: secrets.Providers{"gcp-sm": p}}
//
// A reference has the project, the name of the secret, and a field if the secret is a
// JSON object, see [secrets.Field]:
//
//	${{secrets.gcp-sm://my-project/database#password}}
//	${{secrets.gcp-sm://my-project/token?version=7}}
//
// Without a version, the latest one counts. A version may be an alias. The provider
// uses the application default credentials: a file, the login of gcloud, workload
// identity, or the service account of the machine. They need the role Secret Manager
// Secret Accessor.
//
// The provider calls the service over REST and logs in with Google's library. The
// official client would add a dependency on gRPC.
package google

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/delegate-io/dlite/secrets"
)

const (
	defaultEndpoint = "https://secretmanager.googleapis.com"
	scope           = "https://www.googleapis.com/auth/cloud-platform"
	maxAnswer       = 1 << 20 // bytes; a secret has at most 64 KiB
)

// Config configures a [Provider]. The zero value uses the application default
// credentials.
type Config struct {
	// CredentialsFile is a JSON file with the key of a service account. Empty means
	// the application default credentials.
	CredentialsFile string
	// Endpoint is the URL of the service. Empty means the public global endpoint.
	Endpoint string
	// Timeout bounds each request. 0 means 10 seconds.
	Timeout time.Duration
}

// Provider fetches secrets from Google Secret Manager. It is safe for concurrent
// use.
type Provider struct {
	endpoint string
	tokens   oauth2.TokenSource
	http     *http.Client
}

// New returns a provider. It reads the credentials. It does not call the service.
func New(ctx context.Context, cfg Config) (*Provider, error) {
	if cfg.Timeout <= 0 {
		cfg.Timeout = 10 * time.Second
	}
	if cfg.Endpoint == "" {
		cfg.Endpoint = defaultEndpoint
	}
	hc := &http.Client{
		Transport: http.DefaultTransport.(*http.Transport).Clone(), Timeout: cfg.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	// The token source is used after this call, so it must not end with ctx.
	tokens, err := tokenSource(context.WithValue(context.WithoutCancel(ctx), oauth2.HTTPClient, hc), cfg.CredentialsFile)
	if err != nil {
		return nil, err
	}
	return &Provider{strings.TrimSuffix(cfg.Endpoint, "/"), tokens, hc}, nil
}

// tokenSource finds the credentials. Its errors quote no part of a file, because the
// file contains a private key.
func tokenSource(ctx context.Context, file string) (oauth2.TokenSource, error) {
	if file == "" {
		c, err := google.FindDefaultCredentials(ctx, scope)
		if err != nil {
			return nil, fmt.Errorf("google: %w", err)
		}
		return c.TokenSource, nil
	}
	key, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("google: the credentials: %w", err)
	}
	c, err := google.JWTConfigFromJSON(key, scope)
	if err != nil {
		return nil, fmt.Errorf("google: %s is not the key of a service account", file)
	}
	return c.TokenSource(ctx), nil
}

// Close closes idle connections.
func (p *Provider) Close() error {
	p.http.CloseIdleConnections()
	return nil
}

// Fetch implements [secrets.Provider].
func (p *Provider) Fetch(ctx context.Context, ref *url.URL) (string, error) {
	address, err := p.address(ref)
	if err != nil {
		return "", err
	}
	token, err := p.tokens.Token()
	if err != nil {
		return "", loginError(err)
	}
	secrets.FromContext(ctx).Add(token.AccessToken)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", errors.New("it must be of the form gcp-sm://project/name#field")
	}
	token.SetAuthHeader(req)
	resp, err := p.http.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return "", fmt.Errorf("reading the service's answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", explain(resp.StatusCode, body)
	}
	value, err := payload(body)
	if err != nil {
		return "", err
	}
	return secrets.Field(value, ref.Fragment)
}

// address returns the URL of a version of a secret.
func (p *Provider) address(ref *url.URL) (string, error) {
	name, version := strings.TrimPrefix(ref.Path, "/"), "latest"
	for key, values := range ref.Query() {
		if key != "version" || len(values) != 1 {
			return "", errors.New("it may have one parameter, version")
		}
		version = values[0]
	}
	for _, part := range []string{ref.Host, name, version} {
		if part == "" || strings.Trim(part, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
			return "", errors.New("it must be of the form gcp-sm://project/name#field")
		}
	}
	return p.endpoint + "/v1/projects/" + ref.Host + "/secrets/" + name + "/versions/" + version + ":access", nil
}

// payload returns the value in an answer, after checking its checksum.
func payload(body []byte) (string, error) {
	var a struct {
		Payload struct {
			Data []byte `json:"data"`
			CRC  string `json:"dataCrc32c"`
		} `json:"payload"`
	}
	if json.Unmarshal(body, &a) != nil {
		return "", errors.New("the service's answer cannot be read")
	}
	if a.Payload.CRC != "" {
		sum := crc32.Checksum(a.Payload.Data, crc32.MakeTable(crc32.Castagnoli))
		if a.Payload.CRC != strconv.FormatUint(uint64(sum), 10) {
			return "", errors.New("the service's answer has a wrong checksum")
		}
	}
	return string(a.Payload.Data), nil
}

// explain returns an error with the reason that the service gave.
func explain(status int, body []byte) error {
	var a struct {
		Error struct {
			Status  string `json:"status"`
			Message string `json:"message"`
		} `json:"error"`
	}
	_ = json.Unmarshal(body, &a) // if the body is something else, the error does not quote it
	switch {
	case status == http.StatusNotFound:
		return secrets.ErrNotFound
	case a.Error.Status == "":
		return fmt.Errorf("the service answered %d", status)
	default:
		return fmt.Errorf("the service answered %d %s: %s", status, a.Error.Status, a.Error.Message)
	}
}

// loginError returns an error with the reason for a refused login, without the answer.
func loginError(err error) error {
	var e *oauth2.RetrieveError
	if !errors.As(err, &e) {
		return fmt.Errorf("the login failed: %w", err)
	}
	status := 0
	if e.Response != nil {
		status = e.Response.StatusCode
	}
	var body struct {
		Code string `json:"error"` // a word such as invalid_grant
	}
	_ = json.Unmarshal(e.Body, &body)
	return fmt.Errorf("the login was refused: %d %s", status, cmp.Or(e.ErrorCode, body.Code))
}
