// Package aws fetches secrets from AWS Secrets Manager (rule S1).
//
//	p, err := aws.New(ctx, aws.Config{Region: "eu-central-1"})
//	defer p.Close()
//	cfg := secrets.ResolverConfig{Providers: secrets.Providers{"aws-sm": p}}
//
// A reference has the region, the name or ARN of the secret, and a field if the
// secret is a JSON object, see [secrets.Field]. An empty region means the configured
// one.
//
//	${{secrets.aws-sm://eu-west-1/prod/db#password}}
//	${{secrets.aws-sm:///prod/db?stage=AWSPREVIOUS#password}}
//	${{secrets.aws-sm:///prod/key?version=<version id>}}
//
// The provider finds credentials as the tools of AWS do: in the environment, in
// shared files, from web identity, and from container and instance roles. They need
// the permission secretsmanager:GetSecretValue, and kms:Decrypt for a customer
// managed key.
package aws

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"
	"github.com/aws/smithy-go"

	"github.com/delegate-io/dlite/secrets"
)

// Config configures a [Provider]. The zero value uses the configuration of the tools
// of AWS.
type Config struct {
	// Region is the region of references with an empty region.
	Region string
	// Endpoint is the URL of the service. Empty means the region's public endpoint.
	Endpoint string
	// Credentials provides the credentials. Nil means the default credentials.
	Credentials aws.CredentialsProvider
	// Timeout bounds each request. 0 means 10 seconds.
	Timeout time.Duration
}

// Provider fetches secrets from AWS Secrets Manager. It is safe for concurrent
// use.
type Provider struct {
	client *secretsmanager.Client
	http   *http.Client
}

// New returns a provider. It reads the configuration of the tools of AWS. It does not
// call the service.
func New(ctx context.Context, cfg Config) (*Provider, error) {
	if cfg.Timeout <= 0 {
		cfg.Timeout = 10 * time.Second
	}
	options := []func(*config.LoadOptions) error{config.WithHTTPClient(awshttp.NewBuildableClient().WithTimeout(cfg.Timeout))}
	if cfg.Region != "" {
		options = append(options, config.WithRegion(cfg.Region))
	}
	if cfg.Credentials != nil {
		options = append(options, config.WithCredentialsProvider(cfg.Credentials))
	}
	ac, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("aws: %w", err)
	}
	// This client has the configured TLS settings, and its idle connections can be
	// closed.
	hc := &http.Client{Timeout: cfg.Timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if b, ok := ac.HTTPClient.(*awshttp.BuildableClient); ok {
		hc.Transport = b.GetTransport()
	}
	ac.HTTPClient = hc
	client := secretsmanager.NewFromConfig(ac, func(o *secretsmanager.Options) {
		if cfg.Endpoint != "" {
			o.BaseEndpoint = aws.String(cfg.Endpoint)
		}
	})
	return &Provider{client: client, http: hc}, nil
}

// Close closes idle connections.
func (p *Provider) Close() error {
	p.http.CloseIdleConnections()
	return nil
}

// Fetch implements [secrets.Provider].
func (p *Provider) Fetch(ctx context.Context, ref *url.URL) (string, error) {
	in, err := parse(ref)
	if err != nil {
		return "", err
	}
	out, err := p.client.GetSecretValue(ctx, in, func(o *secretsmanager.Options) {
		if ref.Host != "" {
			o.Region = ref.Host
		}
	})
	if err != nil {
		return "", explain(err)
	}
	value := string(out.SecretBinary)
	if out.SecretString != nil {
		value = *out.SecretString
	}
	return secrets.Field(value, ref.Fragment)
}

func parse(ref *url.URL) (*secretsmanager.GetSecretValueInput, error) {
	name := strings.TrimPrefix(ref.Path, "/")
	if name == "" || strings.ContainsFunc(ref.Host, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' }) {
		return nil, errors.New("it must be of the form aws-sm://region/name#field")
	}
	in := &secretsmanager.GetSecretValueInput{SecretId: &name}
	for key, values := range ref.Query() {
		switch {
		case key == "stage" && len(values) == 1:
			in.VersionStage = &values[0]
		case key == "version" && len(values) == 1:
			in.VersionId = &values[0]
		default:
			return nil, errors.New("it may have the parameters stage and version")
		}
	}
	return in, nil
}

// explain returns an error with the reason that the service gave.
func explain(err error) error {
	var missing *types.ResourceNotFoundException
	var api smithy.APIError
	var broken *smithy.DeserializationError
	switch {
	case errors.As(err, &missing):
		return secrets.ErrNotFound
	case errors.As(err, &broken): // its text quotes the answer
		return errors.New("the service's answer cannot be read")
	case errors.As(err, &api):
		return fmt.Errorf("the service answered %s: %s", api.ErrorCode(), api.ErrorMessage())
	default:
		return err
	}
}
