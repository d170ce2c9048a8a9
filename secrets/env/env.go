// Package env fetches secrets from environment variables (SPEC S1).
//
//	cfg := secrets.ResolverConfig{Providers: secrets.Providers{env.Scheme: env.New(env.Config{})}}
//
// A reference is
//
//	${{secrets.env://NAME}}
//	${{secrets.env://NAME#field}}
//
// and stands for the variable DLITE_SECRET_NAME; with a field the variable holds
// a JSON object, see [secrets.Field]. The prefix says which variables are meant
// for tasks: without it, whoever can submit a task could read all that the
// delegate was started with, its own token included.
package env

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/delegate-io/dlite/secrets"
)

// Scheme is what references to the environment normally begin with.
const Scheme = "env"

// DefaultPrefix is the prefix of the variables that tasks may have.
const DefaultPrefix = "DLITE_SECRET_"

// Config configures a [Provider].
type Config struct {
	// Prefix comes before every name. Empty means [DefaultPrefix].
	Prefix string
	// Lookup finds a variable. Nil means [os.LookupEnv].
	Lookup func(name string) (value string, ok bool)
}

// Provider fetches secrets from environment variables. It is safe for concurrent
// use, as far as Lookup is.
type Provider struct{ cfg Config }

// New makes a provider.
func New(cfg Config) *Provider {
	if cfg.Prefix == "" {
		cfg.Prefix = DefaultPrefix
	}
	if cfg.Lookup == nil {
		cfg.Lookup = os.LookupEnv
	}
	return &Provider{cfg}
}

// Fetch implements [secrets.Provider].
func (p *Provider) Fetch(_ context.Context, ref *url.URL) (string, error) {
	name := ref.Host
	if name == "" || ref.Path != "" || ref.RawQuery != "" {
		return "", errors.New("it must be of the form env://NAME or env://NAME#field")
	}
	v, ok := p.cfg.Lookup(p.cfg.Prefix + name)
	if !ok {
		return "", fmt.Errorf("%w: the delegate has no variable %s%s", secrets.ErrNotFound, p.cfg.Prefix, name)
	}
	return secrets.Field(v, ref.Fragment)
}
