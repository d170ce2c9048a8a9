package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/registry"
	"github.com/docker/docker/client"

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

// pull gets the step's image from its registry and says so in the output.
func (r *run) pull(ctx context.Context, cli client.APIClient) error {
	auth, err := r.registryAuth()
	if err != nil {
		return err
	}
	r.out.printf("Pulling image %s", r.step.Image)
	body, err := cli.ImagePull(ctx, r.step.Image, image.PullOptions{RegistryAuth: auth})
	if err != nil {
		return fmt.Errorf("pull image %s: %w", r.step.Image, explainEngine(cli, err))
	}
	defer func() { _ = body.Close() }()
	status, err := readPull(body)
	if err != nil {
		return fmt.Errorf("pull image %s: %w", r.step.Image, err)
	}
	if status != "" {
		r.out.printf("%s", status)
	}
	return nil
}

// pullIfBetter pulls, and makes do with the image on this machine when that
// fails.
func (r *run) pullIfBetter(ctx context.Context, cli client.APIClient) error {
	err := r.pull(ctx, cli)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if _, inspectErr := cli.ImageInspect(ctx, r.step.Image); inspectErr != nil {
		return err
	}
	r.out.printf("Using the image that is on this machine already, as it could not be pulled: %v", err)
	return nil
}

// readPull reads a pull's progress to its end. An error is one of its messages;
// the answer's status was long written by then. It returns the last status.
func readPull(body io.Reader) (string, error) {
	var status string
	dec := json.NewDecoder(body)
	for {
		var m struct {
			ID     string `json:"id"`
			Status string `json:"status"`
			Error  string `json:"error"`
			Detail struct {
				Message string `json:"message"`
			} `json:"errorDetail"`
		}
		err := dec.Decode(&m)
		switch {
		case errors.Is(err, io.EOF):
			return status, nil
		case err != nil:
			return status, fmt.Errorf("read progress: %w", err)
		case m.Detail.Message != "":
			return status, errors.New(m.Detail.Message)
		case m.Error != "":
			return status, errors.New(m.Error)
		case m.ID == "" && m.Status != "":
			status = m.Status // of the image; those with an id are of one layer
		}
	}
}

// registryAuth encodes the step's credentials, if they are for the registry of
// its image: the engine would send them to any other too.
func (r *run) registryAuth() (string, error) {
	a := r.step.Auth
	if a == nil || a.Username == "" && a.Password == "" {
		return "", nil
	}
	if a.Address != "" {
		named, err := reference.ParseNormalizedNamed(r.step.Image)
		if err != nil {
			return "", fmt.Errorf("image %q: %w", r.step.Image, err)
		}
		if want, have := reference.Domain(named), registryHost(a.Address); want != have {
			r.out.printf("The credentials for %s are not used: the image is on %s", have, want)
			return "", nil
		}
	}
	return encodeAuth(a)
}

func encodeAuth(a *stage.Auth) (string, error) {
	s, err := registry.EncodeAuthConfig(registry.AuthConfig{
		Username: a.Username, Password: a.Password, ServerAddress: a.Address,
	})
	if err != nil {
		return "", errors.New("encode registry credentials") // err might show them
	}
	return s, nil
}

// registryHost is an address's host. Docker Hub goes by many names.
func registryHost(address string) string {
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	switch host := strings.ToLower(u.Host); host {
	case "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com", "hub.docker.com":
		return "docker.io"
	default:
		return host
	}
}

// isMissingImage reports whether a container could not be made for want of its
// image.
func isMissingImage(err error) bool {
	return errdefs.IsNotFound(err) && strings.Contains(strings.ToLower(err.Error()), "no such image")
}
