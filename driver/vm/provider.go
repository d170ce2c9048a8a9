package vm

import (
	"context"
	"encoding/json"
	"time"
)

// Provider makes and destroys the machines of a [Pool]. One kind of virtual
// machine is one provider: driver/vm/qemu, driver/vm/libvirt, driver/vm/ec2.
//
// All methods are safe for concurrent use. None is called while the pool holds a
// lock, so each may take as long as a cloud does.
type Provider interface {
	// Name is the provider's, such as "qemu".
	Name() string

	// Create makes the machine and starts it. It returns when the agent can be
	// expected to answer at Machine.Address soon; that it does is the pool's to
	// find out. The pool has made spec.ID durable before, and calls Destroy when
	// Create fails or its process dies meanwhile: everything of the machine must
	// be found from that id.
	Create(ctx context.Context, spec Spec) (Machine, error)

	// Destroy removes all that Create made for the id: the machine, its disks,
	// ports and addresses. It needs no earlier call in this process. A machine
	// that is gone already, was made half, or never came to be counts as destroyed.
	Destroy(ctx context.Context, id string) error

	// Alive reports whether the machine exists and runs, at once and without asking
	// the agent. An error says that this could not be found out.
	Alive(ctx context.Context, id string) (bool, error)

	// List returns the ids of all machines and parts of machines with this owner,
	// also those that are half made, so that what no record knows is found.
	List(ctx context.Context, owner string) ([]string, error)
}

// Spec is a machine to create.
type Spec struct {
	// ID is made of [a-z0-9-], begins with "dlite-", is at most 40 characters long
	// and never used again.
	ID string
	// Owner tells the machines of one pool from those of all others. It has the
	// form of an id. The provider keeps it with all that it makes.
	Owner string
	// Labels go to where the provider has labels.
	Labels map[string]string
	// Boot is what the machine's agent has to be told before it can serve: an
	// agent.Boot as JSON, with the time of the call in it. It holds a private key.
	Boot func() []byte
}

// Machine is what Create has made.
type Machine struct {
	// Address is where the agent serves, as host:port.
	Address string `json:"address"`
	// Created is when it was made.
	Created time.Time `json:"created"`
	// Data is whatever the provider wants to show of it: a process id, an
	// instance's type. It is kept with the record and never given back.
	Data json.RawMessage `json:"data,omitempty"`
}
