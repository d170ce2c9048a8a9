package vault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/vault/api"

	"github.com/delegate-io/dlite/secrets"
)

// Config configures a [Provider]. Address and one of Token, TokenFile and AppRole are
// required.
type Config struct {
	// Address is the URL of the server.
	Address string
	// Namespace is the namespace of the secrets and of the login (Vault Enterprise).
	// Empty means none.
	Namespace string

	// Token is a token. TokenFile is a file with a token; it may be replaced while
	// the provider runs. AppRole has credentials for a login. Set one of the three.
	Token     string
	TokenFile string
	AppRole   *AppRole

	// CAFile is a file with PEM certificates that replace the system's CAs.
	CAFile string
	// ClientCert and ClientKey are PEM files for mutual TLS.
	ClientCert, ClientKey string
	// Timeout bounds each request. 0 means 10 seconds.
	Timeout time.Duration
}

// AppRole has the credentials of an AppRole.
type AppRole struct {
	// Mount is the mount path of the login method. Empty means "approle".
	Mount string
	// RoleID is the id of the role.
	RoleID string
	// SecretID is the secret id. SecretIDFile is a file with the secret id. Set
	// neither if the role requires no secret id.
	SecretID     string
	SecretIDFile string
	// Wrapped means that the secret id is a wrapping token. The provider exchanges
	// it for the real secret id, which is possible only once.
	Wrapped bool
}

// Provider fetches secrets from one Vault. It is safe for concurrent use.
type Provider struct {
	client *api.Client // without a token: each call adds the token of its session
	cfg    Config
	http   *http.Client

	// login is a semaphore of size 1. Its holder may log in or renew, and may use
	// the fields below.
	login chan struct{}

	session   *session
	unwrapped string // the unwrapped secret id, or empty
}

// maxAnswer is the largest answer that is read, in bytes.
const maxAnswer = 4 << 20

// New returns a provider. It does not call the server, which may start later. An error
// means that the configuration is invalid.
func New(cfg Config) (*Provider, error) {
	logins := 0
	for _, set := range []bool{cfg.Token != "", cfg.TokenFile != "", cfg.AppRole != nil} {
		if set {
			logins++
		}
	}
	switch {
	case cfg.Address == "":
		return nil, errors.New("vault: no address")
	case logins != 1:
		return nil, errors.New("vault: set exactly one of token, token file and AppRole")
	case cfg.AppRole != nil && cfg.AppRole.RoleID == "":
		return nil, errors.New("vault: the AppRole has no role id")
	case cfg.AppRole != nil && cfg.AppRole.SecretID != "" && cfg.AppRole.SecretIDFile != "":
		return nil, errors.New("vault: the AppRole has both a secret id and a file with a secret id")
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 10 * time.Second
	}
	client, hc, err := newClient(cfg)
	if err != nil {
		return nil, err
	}
	return &Provider{client: client, cfg: cfg, http: hc, login: make(chan struct{}, 1)}, nil
}

func newClient(cfg Config) (*api.Client, *http.Client, error) {
	c := api.DefaultConfig()
	if c.Error != nil {
		return nil, nil, fmt.Errorf("vault: %w", c.Error)
	}
	c.Address, c.AgentAddress, c.Timeout, c.SRVLookup = cfg.Address, "", cfg.Timeout, false
	c.MaxRetries, c.MinRetryWait, c.MaxRetryWait = 2, 200*time.Millisecond, time.Second
	c.HttpClient = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone(), CheckRedirect: c.HttpClient.CheckRedirect}
	if err := c.ConfigureTLS(&api.TLSConfig{CACert: cfg.CAFile, ClientCert: cfg.ClientCert, ClientKey: cfg.ClientKey}); err != nil {
		return nil, nil, fmt.Errorf("vault: TLS: %w", err)
	}
	c.HttpClient.Transport = limited{c.HttpClient.Transport}
	client, err := api.NewClient(c)
	if err != nil {
		return nil, nil, fmt.Errorf("vault: the address is not valid: %w", err)
	}
	client.ClearToken() // the library has read both from the environment
	client.ClearNamespace()
	if cfg.Namespace != "" {
		client.SetNamespace(cfg.Namespace)
	}
	return client, c.HttpClient, nil
}

// Close deletes the token and the secret id from memory, and closes idle connections.
// It does not revoke the token, because another process may use it.
func (p *Provider) Close() error {
	p.login <- struct{}{}
	p.session, p.unwrapped = nil, ""
	<-p.login
	p.http.CloseIdleConnections()
	return nil
}

// Fetch implements [secrets.Provider]. The package documentation describes the
// references.
func (p *Provider) Fetch(ctx context.Context, ref *url.URL) (string, error) {
	name, version, err := parseReference(ref)
	if err != nil {
		return "", err
	}
	var value string
	err = p.withClient(ctx, func(c *api.Client) error {
		data, err := readKV(ctx, c, name, version)
		if err == nil {
			value, err = field(data, ref.Fragment)
		}
		return err
	})
	return value, err
}

// parseReference returns the path and the version in a reference.
func parseReference(ref *url.URL) (name string, version int, err error) {
	name = strings.Trim(ref.Host+ref.Path, "/")
	if name == "" || path.Clean("/"+name) != "/"+name {
		return "", 0, errors.New("it must be of the form vault://mount/path#field")
	}
	for key, values := range ref.Query() {
		if key != "version" || len(values) != 1 {
			return "", 0, errors.New("it may have one parameter, version")
		}
		if version, err = strconv.Atoi(values[0]); err != nil || version < 1 {
			return "", 0, errors.New("its version must be a positive number")
		}
	}
	return name, version, nil
}

// readKV reads a secret of a key-value engine, version 1 or 2.
func readKV(ctx context.Context, c *api.Client, name string, version int) (map[string]any, error) {
	mount, v2, err := findMount(ctx, c, name)
	if err != nil {
		return nil, err
	}
	rest := strings.TrimPrefix(name+"/", mount)
	if rest = strings.Trim(rest, "/"); rest == "" {
		return nil, fmt.Errorf("%s is a mount, not a secret", name)
	}
	if !v2 {
		if version != 0 {
			return nil, fmt.Errorf("the engine at %s has no versions", mount)
		}
		return readPath(ctx, c, mount+rest, nil)
	}
	var query map[string][]string
	if version != 0 {
		query = map[string][]string{"version": {strconv.Itoa(version)}}
	}
	return readPath(ctx, c, mount+"data/"+rest, query)
}

// findMount asks the server for the mount of a path, which ends with a slash, and
// reports whether the engine has version 2.
func findMount(ctx context.Context, c *api.Client, name string) (mount string, v2 bool, err error) {
	s, err := c.Logical().ReadWithContext(ctx, "sys/internal/ui/mounts/"+name)
	if err != nil {
		return "", false, err
	}
	if s == nil {
		return "", false, secrets.ErrNotFound
	}
	mount, _ = s.Data["path"].(string)
	kind, _ := s.Data["type"].(string)
	if mount == "" || kind != "kv" && kind != "generic" {
		return "", false, fmt.Errorf("the engine there is of type %q, not kv", kind)
	}
	options, _ := s.Data["options"].(map[string]any)
	return mount, options["version"] == "2", nil
}

// readPath reads a path of the API. It unpacks an answer of version 2.
func readPath(ctx context.Context, c *api.Client, name string, query map[string][]string) (map[string]any, error) {
	s, err := c.Logical().ReadWithDataWithContext(ctx, name, query)
	if err != nil {
		return nil, err
	}
	if s == nil || s.Data == nil {
		return nil, secrets.ErrNotFound
	}
	_, v2 := s.Data["metadata"].(map[string]any)
	data, isMap := s.Data["data"].(map[string]any)
	switch {
	case !v2:
		return s.Data, nil
	case !isMap:
		return nil, fmt.Errorf("%w: this version is deleted", secrets.ErrNotFound)
	default:
		return data, nil
	}
}

// field returns one field of a secret.
func field(data map[string]any, name string) (string, error) {
	if name == "" {
		if len(data) != 1 {
			return "", fmt.Errorf("the secret has %d fields: select one with #field", len(data))
		}
		for name = range data {
		}
		if s, ok := data[name].(string); ok {
			return s, nil
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(data); err != nil {
		return "", errors.New("the secret cannot be read as JSON")
	}
	return secrets.Field(b.String(), name)
}
