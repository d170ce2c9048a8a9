// Package azure fetches secrets from Azure Key Vault (rule S1).
//
//	p, err := azure.New(azure.Config{})
//	defer p.Close()
//	cfg := secrets.ResolverConfig{Providers: secrets.Providers{"azure-kv": p}}
//
// A reference has the name of the vault, the name of the secret, and a field if the
// secret is a JSON object, see [secrets.Field]:
//
//	${{secrets.azure-kv://my-vault/database#password}}
//	${{secrets.azure-kv://my-vault/token?version=<version>}}
//
// Without a version, the newest one counts. The provider finds credentials as the
// libraries of Azure do: in the environment, from workload identity, from managed
// identity, and from the login of the command line tools. They need the permission to
// get secrets.
package azure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azsecrets"

	"github.com/delegate-io/dlite/secrets"
)

// Config configures a [Provider]. The zero value is for the public cloud.
type Config struct {
	// Domain is the DNS domain of the vaults. Empty means "vault.azure.net".
	Domain string
	// Credential provides tokens. Nil means the default credential.
	Credential azcore.TokenCredential
	// HTTP sends the requests. Nil means a new client.
	HTTP *http.Client
	// Timeout bounds each request of the new client. 0 means 10 seconds.
	Timeout time.Duration
}

// Provider fetches secrets from Azure Key Vaults. It is safe for concurrent use.
type Provider struct {
	cfg Config

	mu      sync.Mutex
	clients map[string]*azsecrets.Client // guarded by mu; the key is the name of the vault
}

// New returns a provider. It does not call the service.
func New(cfg Config) (*Provider, error) {
	if cfg.Domain == "" {
		cfg.Domain = "vault.azure.net"
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 10 * time.Second
	}
	if cfg.HTTP == nil {
		cfg.HTTP = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone(), Timeout: cfg.Timeout}
	}
	if cfg.Credential == nil {
		c, err := azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{
			ClientOptions: azcore.ClientOptions{Transport: cfg.HTTP},
		})
		if err != nil {
			return nil, fmt.Errorf("azure: %w", err)
		}
		cfg.Credential = c
	}
	return &Provider{cfg: cfg, clients: map[string]*azsecrets.Client{}}, nil
}

// Close closes idle connections.
func (p *Provider) Close() error {
	p.cfg.HTTP.CloseIdleConnections()
	return nil
}

// Fetch implements [secrets.Provider].
func (p *Provider) Fetch(ctx context.Context, ref *url.URL) (string, error) {
	name, version := strings.TrimPrefix(ref.Path, "/"), ""
	for key, values := range ref.Query() {
		if key != "version" || len(values) != 1 {
			return "", errors.New("it may have one parameter, version")
		}
		version = values[0]
	}
	// The vault's name becomes part of the host name that receives the token, so it
	// must not contain other characters.
	if !isName(ref.Host) || !isName(name) || version != "" && !isName(version) {
		return "", errors.New("it must be of the form azure-kv://vault/name#field")
	}
	c, err := p.client(ref.Host)
	if err != nil {
		return "", err
	}
	resp, err := c.GetSecret(ctx, name, version, nil)
	if err != nil {
		return "", explain(err)
	}
	if resp.Value == nil {
		return "", errors.New("the service's answer has no value")
	}
	return secrets.Field(*resp.Value, ref.Fragment)
}

func isName(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") == ""
}

// client returns the client for a vault. It reuses a client and its login.
func (p *Provider) client(vault string) (*azsecrets.Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.clients[vault]; c != nil {
		return c, nil
	}
	options := &azsecrets.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: p.cfg.HTTP}}
	options.Retry.MaxRetries, options.Retry.RetryDelay = 2, 200*time.Millisecond
	c, err := azsecrets.NewClient("https://"+vault+"."+p.cfg.Domain, p.cfg.Credential, options)
	if err != nil {
		return nil, fmt.Errorf("azure: %w", err)
	}
	p.clients[vault] = c
	return c, nil
}

// explain returns an error with the reason that the service gave. The text of the
// library's error would quote the whole answer.
func explain(err error) error {
	var answer *azcore.ResponseError
	var network *url.Error
	switch {
	case !errors.As(err, &answer):
		if errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			return err
		}
		var login *azidentity.AuthenticationFailedError
		if errors.As(err, &login) {
			return errors.New("the login failed")
		}
		return errors.New("the request failed, or the service's answer cannot be read")
	case answer.StatusCode == http.StatusNotFound:
		return secrets.ErrNotFound
	default:
		return fmt.Errorf("the service answered %d %s", answer.StatusCode, answer.ErrorCode)
	}
}
