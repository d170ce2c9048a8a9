package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/secrets/aws"
	"github.com/delegate-io/dlite/secrets/azure"
	"github.com/delegate-io/dlite/secrets/google"
	"github.com/delegate-io/dlite/secrets/kubernetes"
	"github.com/delegate-io/dlite/secrets/vault"
)

// SecretConfig configures the secret providers for tasks (rule S1). It is exported so that the config can embed it.
type SecretConfig struct {
	EnvPrefix string `env:"SECRETS_ENV_PREFIX" envDefault:"DLITE_SECRET_" help:"prefix of the environment variables that tasks may refer to as env://NAME"`
	Dir       string `env:"SECRETS_DIR" help:"folder of files that tasks may refer to as file://PATH#FIELD; default: none"`

	VaultAddr         string `env:"VAULT_ADDR" help:"HashiCorp Vault's address, for vault://MOUNT/PATH#FIELD; default: none"`
	VaultNamespace    string `env:"VAULT_NAMESPACE" help:"namespace in Vault"`
	VaultCACert       string `env:"VAULT_CACERT" help:"file of CA certificates for Vault"`
	VaultToken        string `env:"VAULT_TOKEN" help:"token for Vault"`
	VaultTokenFile    string `env:"VAULT_TOKEN_FILE" help:"file with a token for Vault"`
	VaultRoleID       string `env:"VAULT_ROLE_ID" help:"role id of an AppRole, instead of a token"`
	VaultSecretID     string `env:"VAULT_SECRET_ID" help:"the AppRole's secret id"`
	VaultSecretIDFile string `env:"VAULT_SECRET_ID_FILE" help:"file with the AppRole's secret id"`
	VaultWrapped      bool   `env:"VAULT_SECRET_ID_WRAPPED" envDefault:"false" help:"whether the secret id is a wrapping token"`
	VaultMount        string `env:"VAULT_APPROLE_MOUNT" envDefault:"approle" help:"where the AppRole login is mounted"`

	Managers      []string `env:"SECRET_MANAGERS" help:"comma-separated secret managers that tasks may refer to, with the login that their own tools have: aws, google, azure, kubernetes"`
	AWSRegion     string   `env:"AWS_REGION" help:"region of aws-sm:///NAME#FIELD"`
	Kubeconfig    string   `env:"KUBECONFIG" help:"cluster of k8s://NAMESPACE/NAME#KEY and of the pods of DRIVERS=kubernetes; default: the one that the delegate runs in"`
	KubeNamespace []string `env:"SECRET_NAMESPACES" help:"comma-separated namespaces that tasks may refer to; default: all that the cluster allows"`
}

// secretManagers lists the valid values of SECRET_MANAGERS.
var secretManagers = []string{"aws", "google", "azure", "kubernetes"}

// check sets defaults and reports wrong settings.
func (c *SecretConfig) check(wrong func(setting string, bad bool, must string)) {
	trim := func(list []string) []string {
		for i := range list {
			list[i] = strings.TrimSpace(list[i])
		}
		return slices.DeleteFunc(list, func(s string) bool { return s == "" })
	}
	c.Managers, c.KubeNamespace = trim(c.Managers), trim(c.KubeNamespace)
	for _, m := range c.Managers {
		wrong("SECRET_MANAGERS", !slices.Contains(secretManagers, m), "a list of "+strings.Join(secretManagers, ", "))
	}
	ways := 0
	for _, s := range []string{c.VaultToken, c.VaultTokenFile, c.VaultRoleID} {
		if s != "" {
			ways++
		}
	}
	wrong("VAULT_ADDR", c.VaultAddr != "" && ways != 1, "set together with exactly one of VAULT_TOKEN, VAULT_TOKEN_FILE and VAULT_ROLE_ID")
	wrong("VAULT_SECRET_ID", c.VaultSecretID != "" && c.VaultSecretIDFile != "", "set without VAULT_SECRET_ID_FILE, or the other way round")
}

// values returns the settings that are secrets.
func (c *SecretConfig) values() []string { return []string{c.VaultToken, c.VaultSecretID} }

// secretSources holds the providers, the handlers of secret tasks, and the values to close at the end.
type secretSources struct {
	providers secrets.Providers
	routes    router.RouteMap
	closers   []func() error
}

// openSecrets creates the configured providers. It calls none of them, because each may be unreachable at any time.
func openSecrets(ctx context.Context, c SecretConfig) (_ *secretSources, err error) {
	s := &secretSources{providers: secrets.Providers{"env": secrets.Env(c.EnvPrefix)}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if c.Dir != "" {
		p, err := secrets.File(c.Dir)
		if err != nil {
			return nil, fmt.Errorf("SECRETS_DIR: %w", err)
		}
		s.providers["file"] = p
	}
	own, err := s.openVault(ctx, c)
	if err != nil {
		return nil, err
	}
	s.routes = vault.Routes(own)
	for _, name := range c.Managers {
		if err := s.openManager(ctx, name, c); err != nil {
			return nil, fmt.Errorf("SECRET_MANAGERS: %w", err)
		}
	}
	return s, nil
}

func (s *secretSources) add(scheme string, p secrets.Provider, close func() error) {
	s.providers[scheme] = p
	s.closers = append(s.closers, close)
}

// openVault creates the delegate's own Vault provider and renews its token. It returns nil if none is configured.
func (s *secretSources) openVault(ctx context.Context, c SecretConfig) (*vault.Provider, error) {
	if c.VaultAddr == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	cfg := vault.Config{
		Address: c.VaultAddr, Namespace: c.VaultNamespace, CAFile: c.VaultCACert, Token: c.VaultToken, TokenFile: c.VaultTokenFile,
	}
	if c.VaultRoleID != "" {
		cfg.AppRole = &vault.AppRole{
			Mount: c.VaultMount, RoleID: c.VaultRoleID, SecretID: c.VaultSecretID, SecretIDFile: c.VaultSecretIDFile, Wrapped: c.VaultWrapped,
		}
	}
	p, err := vault.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("VAULT_ADDR: %w", err)
	}
	renewing, stop := context.WithCancel(ctx)
	var renewals sync.WaitGroup
	renewals.Go(func() { p.RenewToken(renewing) })
	s.add("vault", p, func() error {
		stop()
		renewals.Wait()
		return p.Close()
	})
	return p, nil
}

func (s *secretSources) openManager(ctx context.Context, name string, c SecretConfig) error {
	switch name {
	case "aws":
		p, err := aws.New(ctx, aws.Config{Region: c.AWSRegion})
		if err != nil {
			return err
		}
		s.add("aws-sm", p, p.Close)
	case "google":
		p, err := google.New(ctx, google.Config{})
		if err != nil {
			return err
		}
		s.add("gcp-sm", p, p.Close)
	case "azure":
		p, err := azure.New(azure.Config{})
		if err != nil {
			return err
		}
		s.add("azure-kv", p, p.Close)
	case "kubernetes":
		p, err := kubernetes.New(kubernetes.Config{Kubeconfig: c.Kubeconfig, Namespaces: c.KubeNamespace})
		if err != nil {
			return err
		}
		s.add("k8s", p, p.Close)
	}
	return nil
}

func (s *secretSources) close() error {
	var errs []error
	for _, f := range slices.Backward(s.closers) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}
