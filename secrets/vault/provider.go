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

// Scheme is what references to Vault normally begin with.
const Scheme = "vault"

// Config configures a [Provider]. Address and one way to log in are needed.
type Config struct {
	// Address is the server's URL.
	Address string
	// Namespace is where everything is looked for, the login included (Vault
	// Enterprise). None by default.
	Namespace string

	// Token is a ready-made token. TokenFile is a file with one, which may be
	// replaced while the provider runs. AppRole logs in. Set one of the three.
	Token     string
	TokenFile string
	AppRole   *AppRole

	// CAFile holds PEM certificates to trust instead of the system's.
	CAFile string
	// ClientCert and ClientKey are PEM files for mutual TLS.
	ClientCert, ClientKey string
	// Timeout bounds each request. 0 means 10 seconds.
	Timeout time.Duration
}

// AppRole are the credentials of an AppRole.
type AppRole struct {
	// Mount is where the login method is mounted. Empty means "approle".
	Mount string
	// RoleID is the role's id.
	RoleID string
	// SecretID is the secret id, SecretIDFile a file with it. Neither is right
	// for a role that wants none.
	SecretID     string
	SecretIDFile string
	// Wrapped says that the secret id is a wrapping token, which stands for the
	// real one and can be used once.
	Wrapped bool
}

// Provider fetches secrets from one Vault. It is safe for concurrent use.
type Provider struct {
	client *api.Client // has no token: each call brings the one of its session
	cfg    Config
	http   *http.Client

	turn chan struct{} // holds one: who logs in or renews now, and has what follows

	session   *session
	unwrapped string // the secret id
}

// maxAnswer bounds an answer of the server, in bytes.
const maxAnswer = 4 << 20

// New makes a provider. It does not call the server: that may come later. Its
// errors are mistakes in the configuration.
func New(cfg Config) (*Provider, error) {
	ways := 0
	for _, set := range []bool{cfg.Token != "", cfg.TokenFile != "", cfg.AppRole != nil} {
		if set {
			ways++
		}
	}
	switch {
	case cfg.Address == "":
		return nil, errors.New("vault: no address")
	case ways != 1:
		return nil, errors.New("vault: set exactly one of token, token file and AppRole")
	case cfg.AppRole != nil && cfg.AppRole.RoleID == "":
		return nil, errors.New("vault: the AppRole has no role id")
	case cfg.AppRole != nil && cfg.AppRole.SecretID != "" && cfg.AppRole.SecretIDFile != "":
		return nil, errors.New("vault: the AppRole has a secret id and a file with one")
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 10 * time.Second
	}
	client, hc, err := newClient(cfg)
	if err != nil {
		return nil, err
	}
	return &Provider{client: client, cfg: cfg, http: hc, turn: make(chan struct{}, 1)}, nil
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
	client.ClearToken() // the library takes both from the environment
	client.ClearNamespace()
	if cfg.Namespace != "" {
		client.SetNamespace(cfg.Namespace)
	}
	return client, c.HttpClient, nil
}

// Close forgets the token and the secret id, and closes idle connections. The
// token stays valid: another process may have it too.
func (p *Provider) Close() error {
	p.turn <- struct{}{}
	p.session, p.unwrapped = nil, ""
	<-p.turn
	p.http.CloseIdleConnections()
	return nil
}

// Fetch implements [secrets.Provider]; the package documentation says what a
// reference looks like.
func (p *Provider) Fetch(ctx context.Context, ref *url.URL) (string, error) {
	name, version, err := parse(ref)
	if err != nil {
		return "", err
	}
	var value string
	err = p.with(ctx, func(c *api.Client) error {
		data, err := read(ctx, c, name, version)
		if err == nil {
			value, err = field(data, ref.Fragment)
		}
		return err
	})
	return value, err
}

// parse reads a reference's path and version.
func parse(ref *url.URL) (name string, version int, err error) {
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

// read reads a secret of a key-value engine, of whichever version.
func read(ctx context.Context, c *api.Client, name string, version int) (map[string]any, error) {
	mount, v2, err := mountOf(ctx, c, name)
	if err != nil {
		return nil, err
	}
	rest := strings.TrimPrefix(name+"/", mount)
	if rest = strings.Trim(rest, "/"); rest == "" {
		return nil, fmt.Errorf("%s is a mount, not a secret", name)
	}
	if !v2 {
		if version != 0 {
			return nil, fmt.Errorf("the engine at %s keeps no versions", mount)
		}
		return readRaw(ctx, c, mount+rest, nil)
	}
	var query map[string][]string
	if version != 0 {
		query = map[string][]string{"version": {strconv.Itoa(version)}}
	}
	return readRaw(ctx, c, mount+"data/"+rest, query)
}

// mountOf asks which mount a path lies in. It ends with a slash.
func mountOf(ctx context.Context, c *api.Client, name string) (mount string, v2 bool, err error) {
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

// readRaw reads a path of the API. What has the form of version 2 is unpacked.
func readRaw(ctx context.Context, c *api.Client, name string, query map[string][]string) (map[string]any, error) {
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
		return nil, fmt.Errorf("%w: this version of it is deleted", secrets.ErrNotFound)
	default:
		return data, nil
	}
}

// field takes one field of a secret.
func field(data map[string]any, name string) (string, error) {
	if name == "" {
		if len(data) != 1 {
			return "", fmt.Errorf("the secret has %d fields: say which one with #field", len(data))
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
