package drone

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"runtime"
	"strings"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/client/drone/yaml"
	"github.com/delegate-io/dlite/task/capacity"
)

// Config configures a [Client]. Endpoint and Secret are required.
type Config struct {
	// Endpoint is the address of the server, such as "https://drone.example". It may have a
	// path.
	Endpoint string
	// Secret is the secret that the server shares with its runners (DRONE_RPC_SECRET).
	Secret string
	// Name is the machine under which stages are accepted. It must be unique among the
	// runners of the server. Empty means the host name.
	Name string
	// Types are the types of the pipelines to take. Nil means docker and exec.
	Types []string
	// OS, Arch, Variant and Kernel are the platform of the pipelines to take. An empty OS and
	// Arch mean the platform of this process.
	OS, Arch, Variant, Kernel string
	// Labels are the labels of the pipelines to take. A pipeline must have exactly these.
	Labels map[string]string
	// Slots bounds the stages that run at once: the client asks the server for stages only
	// while one is free. Use the slots of the poller. Nil means no bound.
	Slots *capacity.Slots
	// Dir is a directory for the progress of the open stages, so that a process that starts
	// after this one was killed ends them. It holds ids, versions, statuses and the masked
	// logs of running steps, and no secrets. Empty stores nothing. Only one client at a time may use it.
	Dir string
	// Compile returns the plan of the pipeline called name in a configuration. Its error ends
	// the stage with the status error. Nil means the pipelines of package yaml.
	Compile func(config []byte, name string, in yaml.Input) (*yaml.Plan, error)
	// Options are the settings of the runner for all pipelines.
	Options yaml.Options
	// Repositories are patterns of the repositories whose builds run, such as "octo/*", and Events
	// are the events. Nil means all. TrustedOnly runs only builds of trusted repositories. The
	// stages of other builds end with an error.
	Repositories, Events []string
	TrustedOnly          bool
	// SecretPlugin, RegistryPlugin and EnvironmentPlugin are servers that the extensions of
	// Drone's runners are: they have the values of the secrets with "get", credentials of
	// registries, and variables of all steps. The token signs the requests. With 32 bytes or more
	// the answers are encrypted too. Without an endpoint there is no such server.
	SecretPlugin, RegistryPlugin, EnvironmentPlugin struct{ Endpoint, Token string }
	// HTTPClient makes the requests. Redirects are not followed. Nil means a client that uses
	// HTTP_PROXY, HTTPS_PROXY and NO_PROXY.
	HTTPClient *http.Client
	// Log receives events outside of tasks. The zero value discards.
	Log zerolog.Logger
}

// complete checks the configuration and sets the defaults.
func (c *Config) complete() error {
	u, err := url.Parse(c.Endpoint)
	switch {
	case err != nil:
		return errors.New("drone: the endpoint is not a URL")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("drone: the endpoint %q must be an http or https URL without credentials and query", u.Redacted())
	case c.Secret == "":
		return errors.New("drone: the secret is empty: set it to DRONE_RPC_SECRET of the server")
	case strings.ContainsFunc(c.Secret, func(r rune) bool { return r < ' ' || r > '~' }):
		return errors.New("drone: the secret has a character that no HTTP header may have")
	}
	c.Endpoint = strings.TrimRight(c.Endpoint, "/")
	if err := c.checkRest(); err != nil {
		return err
	}
	if c.Name == "" {
		if c.Name, err = os.Hostname(); err != nil {
			return fmt.Errorf("drone: the name is empty: %w", err)
		}
	}
	if c.Types == nil {
		c.Types = []string{"docker", "exec"}
	}
	if c.OS == "" && c.Arch == "" {
		c.OS, c.Arch = runtime.GOOS, runtime.GOARCH
	}
	if c.Slots == nil {
		c.Slots = capacity.NewSlots(0)
	}
	if c.Compile == nil {
		c.Compile = yaml.Compile
	}
	if c.HTTPClient == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = 32
		c.HTTPClient = &http.Client{Transport: t}
	}
	return nil
}

// checkRest checks the plugins and the limits.
func (c *Config) checkRest() error {
	for name, p := range map[string]struct{ Endpoint, Token string }{
		"secret": c.SecretPlugin, "registry": c.RegistryPlugin, "environment": c.EnvironmentPlugin,
	} {
		if p.Endpoint == "" {
			continue
		}
		u, err := url.Parse(p.Endpoint)
		switch {
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "":
			return fmt.Errorf("drone: the endpoint of the %s plugin must be an http or https URL without credentials", name)
		case p.Token == "":
			return fmt.Errorf("drone: the token of the %s plugin is empty: set it to the secret of the plugin", name)
		}
	}
	for _, pattern := range c.Repositories {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("drone: the pattern %q of repositories is not valid", pattern)
		}
	}
	return nil
}
