package vm

import (
	"context"
	"encoding/json"
	"time"
)

// Provider creates and destroys the machines of a [Pool]. Each kind of virtual machine has a
// provider: driver/vm/qemu, driver/vm/libvirt, driver/vm/ec2.
//
// All methods are safe for concurrent use. The pool holds no lock during a call, so a call may
// take minutes.
type Provider interface {
	// Name returns the provider's name, such as "qemu".
	Name() string

	// Create creates and starts the machine. It returns when the agent will soon answer at
	// Machine.Address; the pool waits for the agent. The pool has stored spec.ID before, and calls
	// Destroy if Create fails or the process dies during the call. Destroy must therefore find all
	// parts of the machine by that id.
	Create(ctx context.Context, spec Spec) (Machine, error)

	// Destroy removes everything that Create made for the id: the machine, its disks, ports and
	// addresses. It needs no earlier call in this process. A machine that does not exist, or
	// exists in parts, is no error.
	Destroy(ctx context.Context, id string) error

	// Alive reports whether the machine exists and runs. It returns at once and does not ask the
	// agent. An error means that the state is unknown.
	Alive(ctx context.Context, id string) (bool, error)

	// List returns the ids of all machines with this owner, including machines that exist in
	// parts. The pool destroys those that have no record.
	List(ctx context.Context, owner string) ([]string, error)
}

// Spec describes a machine to create.
type Spec struct {
	// ID has at most 40 characters of [a-z0-9-] and begins with "dlite-". It is never reused.
	ID string
	// Owner identifies the pool that owns the machine, in the form of an id. The provider stores
	// it with everything that it creates.
	Owner string
	// Labels are the provider's labels of the machine, if the provider supports labels.
	Labels map[string]string
	// Boot returns an agent.Boot as JSON, which the machine's agent needs before it can serve. It
	// contains the time of the call and a private key.
	Boot func() []byte
}

// Machine is a machine that Create returned.
type Machine struct {
	// Address is the agent's address, as host:port.
	Address string `json:"address"`
	// Created is the creation time.
	Created time.Time `json:"created"`
	// Data is provider-specific information for people, such as a process id or an instance type.
	// The pool stores it in the machine's record and never passes it back.
	Data json.RawMessage `json:"data,omitempty"`
}
