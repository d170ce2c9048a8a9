package docker

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/registry"

	"github.com/delegate-io/dlite/task/stage"
)

// pullPolicy says when an image is pulled.
type pullPolicy int

const (
	pullMissing pullPolicy = iota
	pullNever
	pullAlways
	pullPreferred // always, but what is here already will do
)

// policyOf reads a step's policy: the default is always for the tag latest,
// which may be left out, and otherwise when the image is missing.
func policyOf(policy, ref string) (pullPolicy, error) {
	switch strings.ToLower(policy) {
	case "always":
		return pullAlways, nil
	case "never":
		return pullNever, nil
	case "ifnotpresent":
		return pullMissing, nil
	case "", "default":
	default:
		return 0, fmt.Errorf(`pull policy %q is none of "default", "Always", "IfNotPresent", "Never"`, policy)
	}
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return pullMissing, nil // an image's id
	}
	if _, ok := named.(reference.Digested); ok {
		return pullMissing, nil
	}
	if tagged, ok := reference.TagNameOnly(named).(reference.Tagged); ok && tagged.Tag() == "latest" {
		return pullPreferred, nil
	}
	return pullMissing, nil
}

// registryAuth encodes the step's credentials, if they are for the registry of
// its image: the engine would send them to any other too.
func (r *run) registryAuth() (string, error) {
	a := r.Step.Auth
	if a == nil || a.Username == "" && a.Password == "" {
		return "", nil
	}
	if a.Address != "" {
		named, err := reference.ParseNormalizedNamed(r.Step.Image)
		if err != nil {
			return "", fmt.Errorf("image %q: %w", r.Step.Image, err)
		}
		if want, have := registryHost(reference.Domain(named)), registryHost(a.Address); want != have {
			r.Out.Printf("The credentials for %s are not used: the image is on %s", have, want)
			return "", nil
		}
	}
	return encodeAuth(a)
}

func encodeAuth(a *stage.Auth) (string, error) {
	address := registryHost(a.Address)
	if address == dockerHub {
		address = "https://index.docker.io/v1/" // as its logins are known
	}
	s, err := registry.EncodeAuthConfig(registry.AuthConfig{
		Username: a.Username, Password: a.Password, ServerAddress: address,
	})
	if err != nil {
		return "", errors.New("encode registry credentials") // err might show them
	}
	return s, nil
}

// dockerHub is how images name it.
const dockerHub = "docker.io"

// registryHost is an address's host, without the port that its scheme has
// anyway; empty when there is none. Docker Hub goes by many names.
func registryHost(address string) string {
	if address == "" {
		return ""
	}
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	host := strings.ToLower(u.Host)
	if port, ok := map[string]string{"https": ":443", "http": ":80"}[strings.ToLower(u.Scheme)]; ok {
		host = strings.TrimSuffix(host, port)
	}
	if host == dockerHub || strings.HasSuffix(host, "."+dockerHub) || host == "hub.docker.com" || host == "registry.hub.docker.com" {
		return dockerHub
	}
	return host
}

// isMissingImage reports whether a container could not be made for want of its
// image.
func isMissingImage(err error) bool {
	return errdefs.IsNotFound(err) && strings.Contains(strings.ToLower(err.Error()), "no such image")
}
