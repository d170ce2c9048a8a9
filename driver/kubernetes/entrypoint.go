package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"

	"github.com/delegate-io/dlite/task/stage"
)

// registryTransport returns the transport for requests to registries: that of the client, or
// a new one.
func registryTransport(hc *http.Client) http.RoundTripper {
	if hc != nil && hc.Transport != nil {
		return hc.Transport
	}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 30 * time.Second,
		IdleConnTimeout:       30 * time.Second,
		ForceAttemptHTTP2:     true,
	}
}

// commandOf returns the command of a step. Like in Docker, missing parts come from the image.
// The first process of the container is the agent, so the driver asks the registry for the
// configuration of the image. The agent finds the command of a plugin.
func (p *pod) commandOf(ctx context.Context, step *stage.Step) (stage.Run, error) {
	if len(step.Run.Entrypoint) > 0 || step.Plugin != nil {
		return step.Run, nil
	}
	image := firstOf(step.Image, p.d.cfg.StepImage)
	c, err := p.imageConfig(ctx, image, step.Auth)
	if err != nil {
		return stage.Run{}, fmt.Errorf("the step has no entrypoint, and the entrypoint of its image %q cannot be read: %w", image, err)
	}
	argv := slices.Clone(c.Entrypoint)
	if len(step.Run.Command) > 0 {
		argv = append(argv, step.Run.Command...)
	} else {
		argv = append(argv, c.Cmd...)
	}
	if len(argv) == 0 {
		return stage.Run{}, fmt.Errorf("neither the step nor its image %q has a command", image)
	}
	return stage.Run{Entrypoint: argv}, nil
}

func (p *pod) imageConfig(ctx context.Context, image string, auth *stage.Auth) (*v1.Config, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ref, err := name.ParseReference(image)
	if err != nil {
		return nil, err
	}
	if slices.Contains(p.d.cfg.InsecureRegistries, ref.Context().RegistryStr()) {
		if ref, err = name.ParseReference(image, name.Insecure); err != nil {
			return nil, err
		}
	}
	keys, err := p.keychain(ctx, image, auth)
	if err != nil {
		return nil, err
	}
	got, err := remote.Image(ref, remote.WithContext(ctx), remote.WithAuthFromKeychain(keys), remote.WithTransport(p.d.registries),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	if err != nil {
		return nil, err
	}
	file, err := got.ConfigFile()
	if err != nil {
		return nil, err
	}
	return &file.Config, nil
}

// pullSecrets returns the pull secrets of the pod, except the Secret with the credentials of
// the steps. A template or a service account may have added them.
func (p *pod) pullSecrets() []string {
	pod, _, _ := p.current()
	if pod == nil {
		return p.d.cfg.ImagePullSecrets
	}
	var names []string
	for _, s := range pod.Spec.ImagePullSecrets {
		if s.Name != p.name {
			names = append(names, s.Name)
		}
	}
	return names
}

// keychain returns the credentials of the step and of the pull secrets of the pod.
func (p *pod) keychain(ctx context.Context, image string, auth *stage.Auth) (authn.Keychain, error) {
	keys := keychain{}
	for _, secret := range p.pullSecrets() {
		s, err := p.d.api.secrets(p.namespace).get(ctx, secret)
		if isGone(err) {
			continue // nodes ignore a missing secret too
		}
		if err != nil {
			return nil, fmt.Errorf("credentials of registries: %w", err)
		}
		var known registries
		if json.Unmarshal(s.Data[corev1.DockerConfigJsonKey], &known) == nil {
			for k, v := range known.Auths {
				keys[k] = v
			}
		}
	}
	for k, v := range authOf(auth, image) {
		keys[k] = v
	}
	return keys, nil
}

type keychain map[string]registryAuth

// Resolve implements [authn.Keychain].
func (k keychain) Resolve(of authn.Resource) (authn.Authenticator, error) {
	host := of.RegistryStr()
	if host == name.DefaultRegistry {
		host = dockerHub
	}
	for _, key := range []string{of.String(), host, "https://" + host, "https://" + host + "/v1/", "https://" + host + "/v2/"} {
		if a, ok := k[key]; ok {
			return authn.FromConfig(authn.AuthConfig{Username: a.Username, Password: a.Password, Auth: a.Auth}), nil
		}
	}
	return authn.Anonymous, nil
}
