// Package kubernetes fetches secrets from the Secret objects of a Kubernetes
// cluster (rule S1).
//
//	p, err := kubernetes.New(kubernetes.Config{Namespaces: []string{"ci"}})
//	defer p.Close()
//	cfg := secrets.ResolverConfig{Providers: secrets.Providers{"k8s": p}}
//
// A reference has the namespace, the name of the object, and a key in it:
//
//	${{secrets.k8s://ci/database#password}}
//
// If the object has only one key, the reference may omit it. The cluster decides
// which objects the provider may read. Namespaces restricts tasks further, because a
// delegate's account often may read more than its tasks should.
package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/delegate-io/dlite/secrets"
)

// Config configures a [Provider].
type Config struct {
	// Kubeconfig is a file with the address of the cluster and the credentials.
	// Empty means the service account of the pod in which the process runs. Context
	// selects a context in the file. Empty means the current context.
	Kubeconfig, Context string
	// Namespaces are the namespaces to which tasks may refer. Empty means all that
	// the cluster allows.
	Namespaces []string
	// Timeout bounds each request. 0 means 10 seconds.
	Timeout time.Duration
}

// Provider fetches secrets from one cluster. It is safe for concurrent use.
type Provider struct {
	api        rest.Interface
	http       *http.Client
	namespaces []string
}

// New returns a provider. It does not call the cluster.
func New(cfg Config) (*Provider, error) {
	rc, err := restConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	if rc.Timeout = cfg.Timeout; rc.Timeout <= 0 {
		rc.Timeout = 10 * time.Second
	}
	hc, err := rest.HTTPClientFor(rc)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	api, err := newAPI(rc, hc)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	return &Provider{api, hc, slices.Clone(cfg.Namespaces)}, nil
}

// newAPI returns a client that decodes only the errors of an API server. The generated
// client links the types of all API groups.
func newAPI(rc *rest.Config, hc *http.Client) (rest.Interface, error) {
	version := schema.GroupVersion{Version: "v1"}
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, version)
	c := rest.CopyConfig(rc)
	c.APIPath, c.GroupVersion = "/api", &version
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	c.NegotiatedSerializer = runtime.NewSimpleNegotiatedSerializer(runtime.SerializerInfo{
		MediaType:  runtime.ContentTypeJSON,
		Serializer: serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, scheme, scheme, serializer.SerializerOptions{}),
	})
	return rest.RESTClientForConfigAndClient(c, hc)
}

func restConfig(cfg Config) (*rest.Config, error) {
	if cfg.Kubeconfig == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: cfg.Kubeconfig},
		&clientcmd.ConfigOverrides{CurrentContext: cfg.Context},
	).ClientConfig()
}

// Close closes idle connections.
func (p *Provider) Close() error {
	// The method of http.Client does not reach the wrapped transport.
	utilnet.CloseIdleConnectionsFor(p.http.Transport)
	return nil
}

// Fetch implements [secrets.Provider].
func (p *Provider) Fetch(ctx context.Context, ref *url.URL) (string, error) {
	namespace, name := ref.Host, strings.TrimPrefix(ref.Path, "/")
	if namespace == "" || name == "" || strings.Contains(name, "/") || ref.RawQuery != "" {
		return "", errors.New("it must be of the form k8s://namespace/name#key")
	}
	if len(p.namespaces) > 0 && !slices.Contains(p.namespaces, namespace) {
		return "", fmt.Errorf("tasks may not refer to the namespace %q", namespace)
	}
	s, err := p.secret(ctx, namespace, name)
	switch {
	case apierrors.IsNotFound(err):
		return "", secrets.ErrNotFound
	case err != nil:
		return "", explain(err)
	}
	key := ref.Fragment
	if key == "" {
		if len(s.Data) != 1 {
			return "", fmt.Errorf("the secret has %d keys: select one with #key", len(s.Data))
		}
		for key = range s.Data {
		}
	}
	v, ok := s.Data[key]
	if !ok {
		return "", fmt.Errorf("%w: it has no key %q", secrets.ErrNotFound, key)
	}
	return string(v), nil
}

// secretObject has the members of a Secret that the provider needs.
type secretObject struct {
	Kind string            `json:"kind"`
	Data map[string][]byte `json:"data"`
}

// secret gets an object. Its error for an answer that cannot be decoded is no APIStatus.
func (p *Provider) secret(ctx context.Context, namespace, name string) (*secretObject, error) {
	answer := p.api.Get().Namespace(namespace).Resource("secrets").Name(name).Do(ctx)
	if err := answer.Error(); err != nil {
		return nil, err
	}
	body, err := answer.Raw()
	if err != nil {
		return nil, err
	}
	s := &secretObject{}
	if err := json.Unmarshal(body, s); err != nil || s.Kind != "Secret" {
		return nil, errUnreadable
	}
	return s, nil
}

// errUnreadable quotes nothing of the answer.
var errUnreadable = errors.New("the cluster's answer cannot be read")

// explain returns an error with the reason that the API server gave. It quotes no
// answer of another server.
func explain(err error) error {
	var status apierrors.APIStatus
	var network *url.Error
	switch {
	case errors.As(err, &network), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err
	case !errors.As(err, &status):
		return errUnreadable
	}
	s := status.Status()
	if s.Details != nil && len(s.Details.Causes) > 0 { // the client made this message, which quotes the answer
		return fmt.Errorf("the cluster answered %d %s", s.Code, s.Reason)
	}
	return fmt.Errorf("the cluster answered %d: %s", s.Code, s.Message)
}
