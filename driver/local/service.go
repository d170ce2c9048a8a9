package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"

	"github.com/delegate-io/dlite/internal/recorded"
)

const (
	loopback = "127.0.0.1"
	// hostName is what a container calls this machine.
	hostName = "host.docker.internal"
	// hostGateway stands for this machine's address in a list of extra hosts.
	hostGateway = "host-gateway"
)

// service is a background step as the steps after it find it. It is kept in the
// transaction's folder, so that it survives a restart and goes with it.
type service struct {
	// Names are the step's id, its name and its network aliases.
	Names []string `json:"names"`
	// Address is where this machine reaches it; empty where it cannot.
	Address string `json:"address,omitempty"`
	// Host says that it runs on the host.
	Host bool `json:"host,omitempty"`
	// Alias is its name in the transaction's network, if it is in that.
	Alias string `json:"alias,omitempty"`
}

func (t *transaction) services() string { return filepath.Join(t.Dir, "services") }

// announce lets the following steps find this one.
func (r *run) announce(s service) error {
	for _, name := range append([]string{r.step.ID, r.step.Name}, r.step.NetworkAliases...) {
		if name != "" && !slices.Contains(s.Names, name) {
			s.Names = append(s.Names, name)
		}
	}
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := makeDir(r.tx.services(), 0o700); err != nil {
		return fmt.Errorf("announce service: %w", err)
	}
	// Under another name first, so that nobody reads half of it.
	file := r.serviceFile()
	part := file + "-" + recorded.RandomHex(4)
	if err := os.WriteFile(part, b, 0o600); err != nil {
		return fmt.Errorf("announce service: %w", err)
	}
	if err := os.Rename(part, file); err != nil {
		return fmt.Errorf("announce service: %w", err)
	}
	return nil
}

func (r *run) serviceFile() string {
	return filepath.Join(r.tx.services(), uniqueSlug(r.step.ID)+".json")
}

func (r *run) isAnnounced() bool {
	_, err := os.Lstat(r.serviceFile())
	return err == nil
}

// listServices gives the background steps that have been announced.
func (t *transaction) listServices() ([]service, error) {
	entries, err := os.ReadDir(t.services())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list services: %w", err)
	}
	var list []service
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".json" {
			continue
		}
		b, err := os.ReadFile(filepath.Join(t.services(), e.Name()))
		if err != nil {
			return nil, fmt.Errorf("list services: %w", err)
		}
		var s service
		if err := json.Unmarshal(b, &s); err != nil {
			return nil, fmt.Errorf("list services: %w", err)
		}
		list = append(list, s)
	}
	return list, nil
}

// serviceVariables tells the step where the background steps are.
func (r *run) serviceVariables() (map[string]string, error) {
	list, err := r.tx.listServices()
	if err != nil {
		return nil, err
	}
	env := map[string]string{}
	for _, s := range list {
		address := r.addressOf(s)
		if address == "" {
			continue
		}
		for _, name := range s.Names {
			env["DLITE_SERVICE_"+recorded.VariableName(name)+"_HOST"] = address
		}
	}
	return env, nil
}

// addressOf is how this step reaches a service.
func (r *run) addressOf(s service) string {
	switch {
	case r.step.Image == "" || container.NetworkMode(r.step.Network).IsHost():
		return s.Address
	case s.Host:
		return hostName
	case s.Alias != "" && r.isOwnNetwork(r.step.Network):
		return s.Alias
	}
	return s.Address
}

// extraHosts are the step's own, and the names of the services of the host for a
// container that has a network of its own.
func (r *run) extraHosts() ([]string, error) {
	mode := container.NetworkMode(r.step.Network)
	if mode.IsHost() || mode.IsContainer() || mode.IsNone() {
		return r.step.ExtraHosts, nil
	}
	list, err := r.tx.listServices()
	if err != nil {
		return nil, err
	}
	hosts := slices.Clone(r.step.ExtraHosts)
	add := func(name string) {
		known := func(h string) bool { return strings.HasPrefix(h, name+":") || strings.HasPrefix(h, name+"=") }
		if !slices.ContainsFunc(hosts, known) {
			hosts = append(hosts, name+":"+hostGateway)
		}
	}
	for _, s := range list {
		if !s.Host {
			continue
		}
		add(hostName)
		for _, name := range s.Names {
			add(slug(name))
		}
	}
	return hosts, nil
}
