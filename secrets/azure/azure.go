// Package azure fetches secrets from Azure Key Vault (SPEC S1).
//
//	p, err := azure.New(azure.Config{})
//	defer p.Close()
//	cfg := secrets.ResolverConfig{Providers: secrets.Providers{azure.Scheme: p}}
//
// A reference names the vault, the secret, and a field when the secret is a JSON
// object, see [secrets.Field]:
//
//	${{secrets.azure-kv://my-vault/database#password}}
//	${{secrets.azure-kv://my-vault/token?version=<version>}}
//
// Without version it is the newest one. Credentials are found as Azure's libraries
// find them: environment, workload identity, managed identity, the command line
// tools' login. They need the permission to get secrets.
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

// Scheme is what references to Azure normally begin with.
const Scheme = "azure-kv"

// Config configures a [Provider]. The zero value is right for the public cloud.
type Config struct {
	// Domain is that of the vaults. Empty means "vault.azure.net".
	Domain string
	// Credential goes before the one that would be found.
	Credential azcore.TokenCredential
	// HTTP sends the requests. Nil means a client of the provider's own.
	HTTP *http.Client
	// Timeout bounds each request of its own client. 0 means 10 seconds.
	Timeout time.Duration
}

// Provider fetches secrets from Azure Key Vaults. It is safe for concurrent use.
type Provider struct {
	cfg Config

	mu      sync.Mutex
	clients map[string]*azsecrets.Client // guarded by mu; by vault
}

// New makes a provider. It does not call the service.
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
	// What a name may have is checked here: it becomes a part of the host's name
	// that gets our token.
	if !plain(ref.Host) || !plain(name) || version != "" && !plain(version) {
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

func plain(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") == ""
}

// client is the client for a vault. It is kept, with the login that it has.
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

// explain keeps the service's own reason. The library's text would quote the
// whole answer.
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
