package yaml

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/distribution/reference"

	"github.com/delegate-io/dlite/task/stage"
)

// defaultPrivileged are the plugins that run privileged if [Options] names no others.
var defaultPrivileged = []string{"plugins/docker", "plugins/acr", "plugins/ecr", "plugins/gcr", "plugins/heroku"}

func parseImage(image string) (reference.Named, error) { return reference.ParseNormalizedNamed(image) }

// privilegedPlugin reports whether a step is a plugin of the runner's list. The step may not
// bring programs, files or variables that would run with the privileges.
func (c *compiler) privilegedPlugin(s *step, image reference.Named) bool {
	if len(s.commands)+len(s.command)+len(s.entrypoint)+len(s.volumes) > 0 {
		return false
	}
	if systemPath(c.base) || restrictedVariables(s.environment) || restrictedVariables(c.environment) {
		return false
	}
	list := c.in.Options.Privileged
	if list == nil {
		list = defaultPrivileged
	}
	return slices.ContainsFunc(list, func(one string) bool {
		named, err := parseImage(one)
		return err == nil && named.Name() == image.Name()
	})
}

// restrictedVariables reports whether variables decide which programs a plugin runs, or which
// engine it uses.
func restrictedVariables(env map[string]variable) bool {
	for name := range env {
		switch name {
		case "XDG_RUNTIME_DIR", "DOCKER_OPTS", "DOCKER_HOST", "DOCKER_CONFIG", "PATH", "HOME", "BASH_ENV", "ENV":
			return true
		}
		if strings.HasPrefix(name, "LD_") {
			return true
		}
	}
	return false
}

// systemPath reports whether a directory may hold programs or settings of an image.
func systemPath(dir string) bool {
	for _, system := range []string{"/bin", "/boot", "/etc", "/lib", "/lib64", "/opt", "/root", "/run", "/sbin", "/usr", "/var"} {
		if dir == system || strings.HasPrefix(dir, system+"/") {
			return true
		}
	}
	return false
}

// readAuths reads the credentials in the secrets that image_pull_secrets names: configuration
// files of Docker. A secret that is not known is left out, because pull requests get none. The
// credentials of the runner follow.
func (c *compiler) readAuths() ([]stage.Auth, error) {
	if c.Type == typeExec {
		return nil, nil
	}
	var list []stage.Auth
	for _, name := range c.pullSecrets {
		text, err := c.secret(name)
		if err != nil {
			return nil, err
		}
		if text == "" {
			continue
		}
		auths, err := parseAuths(text)
		if err != nil {
			return nil, c.source.errorf("image_pull_secrets: the secret %q is not a Docker configuration such as {\"auths\":{\"registry.example\":{\"auth\":\"...\"}}}", name)
		}
		list = append(list, auths...)
	}
	if text := c.in.Options.DockerConfig; text != "" {
		auths, err := parseAuths(text)
		if err != nil {
			return nil, errors.New("the Docker configuration of the runner is not valid")
		}
		list = append(list, auths...)
	}
	list = append(list, c.in.Registries...)
	for _, a := range list {
		c.mask(a.Password)
	}
	return list, nil
}

func parseAuths(text string) ([]stage.Auth, error) {
	var config struct {
		Auths map[string]struct {
			Auth     []byte `json:"auth"`
			Username string `json:"username"`
			Password string `json:"password"`
		} `json:"auths"`
	}
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		return nil, err
	}
	var list []stage.Auth
	for address, a := range config.Auths {
		one := stage.Auth{Address: address, Username: a.Username, Password: a.Password}
		if len(a.Auth) > 0 {
			one.Username, one.Password, _ = strings.Cut(strings.TrimRight(string(a.Auth), "\x00"), ":")
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b stage.Auth) int { return strings.Compare(a.Address, b.Address) })
	return list, nil
}

// authFor returns the credentials for the registry of an image, or nil.
func (c *compiler) authFor(image reference.Named) *stage.Auth {
	for _, a := range c.auths {
		if registryOf(a.Address) == reference.Domain(image) {
			return &a
		}
	}
	return nil
}

// registryOf returns the host of an address of a registry, as image names have it.
func registryOf(address string) string {
	_, rest, found := strings.Cut(address, "://")
	if !found {
		rest = address
	}
	host, _, _ := strings.Cut(rest, "/")
	if host == "index.docker.io" || host == "registry-1.docker.io" {
		return "docker.io"
	}
	return host
}
