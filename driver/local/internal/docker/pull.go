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

// pullPolicy is when an image is pulled.
type pullPolicy int

const (
	pullMissing pullPolicy = iota
	pullNever
	pullAlways
	pullPreferred // always, but an image on this machine serves if the pull fails
)

// policyOf reads the policy of a step. The default is always for the tag latest and for an image
// without a tag, otherwise when the image is missing.
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
		return 0, fmt.Errorf(`pull policy %q is not "default", "Always", "IfNotPresent" or "Never"`, policy)
	}
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return pullMissing, nil // the id of an image
	}
	if _, ok := named.(reference.Digested); ok {
		return pullMissing, nil
	}
	if tagged, ok := reference.TagNameOnly(named).(reference.Tagged); ok && tagged.Tag() == "latest" {
		return pullPreferred, nil
	}
	return pullMissing, nil
}

// registryAuth encodes the step's credentials if they are for the registry of its image. The engine
// would send them to any registry.
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
		address = "https://index.docker.io/v1/" // Docker's name for it in credentials
	}
	s, err := registry.EncodeAuthConfig(registry.AuthConfig{
		Username: a.Username, Password: a.Password, ServerAddress: address,
	})
	if err != nil {
		return "", errors.New("encode registry credentials") // err may show them
	}
	return s, nil
}

// dockerHub is the name of Docker Hub in images.
const dockerHub = "docker.io"

// registryHost returns the host of an address without the default port of its scheme, or "". All names
// of Docker Hub give dockerHub.
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

// isMissingImage reports whether a container could not be created because its image is missing.
func isMissingImage(err error) bool {
	return errdefs.IsNotFound(err) && strings.Contains(strings.ToLower(err.Error()), "no such image")
}
