package steps

import (
	"fmt"
	"maps"
	"strings"
)

// Config are the settings of a Table. The zero value has no connectors and the default tables.
type Config struct {
	// Connectors by their id, without the scope (account. or org.).
	Connectors map[string]Connector `json:"connectors" yaml:"connectors"`
	// Codebase is the id of the git connector of codebases that name none, such as those in the
	// code repositories of Harness.
	Codebase string `json:"codebase" yaml:"codebase"`
	// Infrastructure replaces entries of the default table of kinds: KubernetesDirect, VM,
	// Docker and Cloud.
	Infrastructure map[string]Infrastructure `json:"infrastructure" yaml:"infrastructure"`
	// Types adds step types, and replaces those that are plugins.
	Types map[string]Plugin `json:"types" yaml:"types"`
	// Secrets are the addresses of secrets by their id, for example vault://kv/app#password. The
	// delegate fetches them.
	Secrets map[string]string `json:"secrets" yaml:"secrets"`
	// SecretURL is the address of all other secrets, with {id} for the id. Defaults to
	// env://{id}.
	SecretURL string `json:"secret_url" yaml:"secret_url"`
	// Cache is where the caches of stages with caching are. Nil means that such stages have none.
	Cache *Cache `json:"cache,omitempty" yaml:"cache"`
}

// Cache is a place in a bucket of an S3-compatible service.
type Cache struct {
	// Connector is the id of a connector of the kind aws. Without one, the steps take the credentials
	// of their environment or their machine.
	Connector string `json:"connector,omitempty" yaml:"connector"`
	// Bucket is required, and one of Region and Endpoint. Endpoint is the URL of the service, by
	// default Amazon S3 of the region. PathStyle puts the bucket into the path of URLs.
	Bucket    string `json:"bucket" yaml:"bucket"`
	Region    string `json:"region,omitempty" yaml:"region"`
	Endpoint  string `json:"endpoint,omitempty" yaml:"endpoint"`
	PathStyle bool   `json:"path_style,omitempty" yaml:"path_style"`
	// Prefix begins the names of all objects. The account and the pipeline follow it.
	Prefix string `json:"prefix,omitempty" yaml:"prefix"`
}

// Infrastructure is where the stages of a kind run.
type Infrastructure struct {
	// Driver is local, vm or kubernetes.
	Driver string `json:"driver" yaml:"driver"`
	// Selectors are tags that the delegate must have, beside those of the stage's platform.
	Selectors []string `json:"selectors" yaml:"selectors"`
	// AnyPlatform leaves out the selectors for operating system and architecture, which only the
	// driver local has.
	AnyPlatform bool `json:"any_platform" yaml:"any_platform"`
	// Pool is the pool of machines for the driver vm. {os}, {arch} and {size} are replaced; the
	// size of a runtime without one is "default". A pool that the pipeline names has precedence.
	Pool string `json:"pool" yaml:"pool"`
}

// defaultInfrastructure are the kinds of infrastructure of pipelines.
var defaultInfrastructure = map[string]Infrastructure{
	"KubernetesDirect": {Driver: driverKubernetes},
	"VM":               {Driver: driverVM},
	"Docker":           {Driver: driverLocal},
	"Cloud":            {Driver: driverVM, Pool: "{os}-{arch}"},
}

// The drivers, as the manager names them.
const (
	driverLocal      = "local"
	driverVM         = "vm"
	driverKubernetes = "kubernetes"
)

// Table maps stages and steps. It is immutable and safe for concurrent use.
type Table struct {
	connectors     map[string]Connector
	codebase       string
	infrastructure map[string]Infrastructure
	plugins        map[string]Plugin
	secrets        map[string]string
	anySecret      string
	cache          *Cache
	// missing collects the connectors that the settings do not have, with their kinds. Nil makes them errors.
	missing map[string]string
}

// Assuming returns a table that assumes the connectors that the settings do not have. It adds them to missing by
// their id, with the kind that they need. The table is not safe for concurrent use.
func (t *Table) Assuming(missing map[string]string) *Table {
	assuming := *t
	assuming.missing = missing
	return &assuming
}

// New checks the settings and returns their table.
func New(cfg Config) (*Table, error) {
	t := &Table{
		connectors:     maps.Clone(cfg.Connectors),
		codebase:       cfg.Codebase,
		infrastructure: maps.Clone(defaultInfrastructure),
		plugins:        make(map[string]Plugin, len(builtinPlugins)+len(cfg.Types)),
		secrets:        maps.Clone(cfg.Secrets),
		anySecret:      orElse(cfg.SecretURL, defaultSecretURL),
		cache:          cfg.Cache,
	}
	if err := cfg.checkSecrets(); err != nil {
		return nil, err
	}
	for _, list := range []map[string]Plugin{builtinPlugins, cacheTypes()} {
		for name, p := range list {
			p.builtin = true
			t.plugins[name] = p
		}
	}
	for id, c := range cfg.Connectors {
		if err := c.check(id); err != nil {
			return nil, err
		}
	}
	if c, ok := cfg.Connectors[cfg.Codebase]; cfg.Codebase != "" && (!ok || c.Kind != GitConnector) {
		return nil, fmt.Errorf("codebase is %q: name one of the connectors of the kind git", cfg.Codebase)
	}
	if err := cfg.checkCache(); err != nil {
		return nil, err
	}
	for kind, i := range cfg.Infrastructure {
		if _, ok := defaultInfrastructure[kind]; !ok {
			return nil, fmt.Errorf("infrastructure.%s is not a kind of infrastructure: use %s", kind, strings.Join(sortedKeys(defaultInfrastructure), ", "))
		}
		if i.Driver != driverLocal && i.Driver != driverVM && i.Driver != driverKubernetes {
			return nil, fmt.Errorf("infrastructure.%s.driver is %q: use local, vm or kubernetes", kind, i.Driver)
		}
		t.infrastructure[kind] = i
	}
	for name, p := range cfg.Types {
		if err := p.check(name); err != nil {
			return nil, err
		}
		t.plugins[name] = p
	}
	return t, nil
}
