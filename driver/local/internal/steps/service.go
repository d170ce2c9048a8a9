package steps

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/delegate-io/dlite/internal/recorded"
)

const (
	// Loopback is the address of this machine for its own processes.
	Loopback = "127.0.0.1"
	// HostName is the name of this machine inside containers.
	HostName = "host.docker.internal"
)

// Service is a background step as later steps find it. A file in the transaction's directory contains
// it, so it survives a restart and is removed with the transaction.
type Service struct {
	// Names are the id of the step, its name and its network aliases.
	Names []string `json:"names"`
	// Address reaches the step from this machine. It is empty if this machine cannot reach it.
	Address string `json:"address,omitempty"`
	// Host is set if the step runs on the host.
	Host bool `json:"host,omitempty"`
	// Alias is the name of the step in the transaction's network. It is empty outside that network.
	Alias string `json:"alias,omitempty"`
}

func (t *Transaction) serviceDir() string { return filepath.Join(t.Dir, "services") }

// Announce makes the step known to the following steps.
func (r *Run) Announce(s Service) error {
	for _, name := range append([]string{r.Step.ID, r.Step.Name}, r.Step.NetworkAliases...) {
		if name != "" && !slices.Contains(s.Names, name) {
			s.Names = append(s.Names, name)
		}
	}
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := MakeDir(r.Tx.serviceDir(), 0o700); err != nil {
		return fmt.Errorf("announce service: %w", err)
	}
	// A rename makes the whole file visible at once.
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

func (r *Run) serviceFile() string {
	return filepath.Join(r.Tx.serviceDir(), UniqueSlug(r.Step.ID)+".json")
}

// IsAnnounced reports whether the service has a file in its transaction.
func (r *Run) IsAnnounced() bool {
	_, err := os.Lstat(r.serviceFile())
	return err == nil
}

// Services returns the background steps that were announced.
func (t *Transaction) Services() ([]Service, error) {
	entries, err := os.ReadDir(t.serviceDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list services: %w", err)
	}
	var list []Service
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".json" {
			continue
		}
		b, err := os.ReadFile(filepath.Join(t.serviceDir(), e.Name()))
		if err != nil {
			return nil, fmt.Errorf("list services: %w", err)
		}
		var s Service
		if err := json.Unmarshal(b, &s); err != nil {
			return nil, fmt.Errorf("list services: %w", err)
		}
		list = append(list, s)
	}
	return list, nil
}

// serviceVariables returns the variables with the addresses of the background steps.
func (r *Run) serviceVariables() (map[string]string, error) {
	list, err := r.Tx.Services()
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

// addressOf returns the address of a service for this step.
func (r *Run) addressOf(s Service) string {
	switch {
	case r.Step.Image == "" || r.Step.Network == "host":
		return s.Address
	case s.Host:
		return HostName
	case s.Alias != "" && r.UsesOwnNetwork(r.Step.Network):
		return s.Alias
	}
	return s.Address
}

// UsesOwnNetwork reports whether name means the transaction's network. Managers name it by the init's
// network id or by the transaction's id.
func (r *Run) UsesOwnNetwork(name string) bool {
	return name == "" || name == r.Env.Network.ID || name == r.Env.ID
}
