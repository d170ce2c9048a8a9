package driver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/delegate-io/dlite/task/stage"
)

// Driver runs the steps of transactions on one infrastructure (rule D1).
//
// All methods are safe for concurrent use, also for the same transaction: steps
// may run in parallel, and Cleanup may come at any time. A method returns soon
// after its context ends, and stops everything that it started, except detached
// steps.
type Driver interface {
	// Infra returns the name of the infrastructure in the answer to an init, such
	// as "docker".
	Infra() string

	// Init creates the resources that the steps of a transaction share. It may
	// fill env.State with data for Execute. If it fails, the caller cleans up from
	// the ledger.
	Init(ctx context.Context, env *Environment, l Ledger) error

	// Execute runs a step to its end, or starts a detached step. It writes both
	// streams of the step to out, in the order in which they arrive. After Execute
	// returns it does not use out, except for a detached step: then the driver
	// writes to out until Cleanup has ended the step.
	//
	// An error means that the infrastructure failed. If the step ran and failed,
	// Execute returns a Result with the exit code and no error. If ctx ends first,
	// Execute stops the step in the way that the cause of ctx asks for, waits until
	// nothing of it runs, and returns the error of ctx. Resources of a step that has
	// ended may be removed later: by Release of the result, or at the latest by Cleanup.
	Execute(ctx context.Context, env *Environment, step *Step, out io.Writer, l Ledger) (*Result, error)

	// An error of Init or Execute may have a method FailureKind() string. It returns one of
	// the kinds of package stage, such as [stage.FailureImage], for the answer to the
	// manager.

	// Cleanup stops and removes resources, in an order that the driver chooses. It
	// returns the resources that it could not remove, with an error that has the
	// reasons. Cleanup is idempotent: a resource that does not exist, or never
	// existed, counts as removed.
	Cleanup(ctx context.Context, rs []Resource) (left []Resource, err error)
}

// Finder is a [Driver] whose infrastructure can be searched by labels.
type Finder interface {
	// Find returns the resources that have all of the labels. Without labels, or
	// with an empty value among them, it returns nothing: such a search would match
	// resources of others.
	Find(ctx context.Context, labels map[string]string) ([]Resource, error)
}

// Reserver is a [Driver] that can reserve the resources that the init of a
// transaction needs, such as a machine of a pool.
type Reserver interface {
	// Reserve holds the resources until limit has passed, or until Init or
	// Unreserve is called for the same id. The limit must be positive. Reserve reads
	// the id of env and the options of its network, which must be those that Init
	// gets. It does not wait for resources that are in use: the transaction then
	// has a place in the queue, and its Init takes that place over. If the id has a
	// reservation, Reserve returns it and does not extend it.
	Reserve(ctx context.Context, env *Environment, limit time.Duration) (*Reservation, error)

	// Unreserve releases a reservation that no Init has used. It is not an error if
	// the id has no reservation.
	Unreserve(ctx context.Context, transaction string) error
}

// Reservation is the result of [Reserver].Reserve.
type Reservation struct {
	// Pool is the name of the pool that the machine belongs to.
	Pool string
	// Machine is the machine that Init will get. It is empty while all machines are
	// in use; Place is then the position in the queue, from 1.
	Machine string
	Place   int
	// Until is the time at which the reservation ends.
	Until time.Time
}

// Reattacher is a [Driver] that can continue a step that an earlier process of
// the delegate started (rule T5).
type Reattacher interface {
	// Reattach does the work of Execute for such a step: it follows the step to
	// its end, or returns at once for a detached step, which continues. begun has the
	// resources that were recorded for the step, at least one. Reattach writes the
	// output of the step to out from its beginning, as far as the infrastructure
	// still has it. It writes an empty line for each line that the driver itself had
	// written, so that line numbers do not change.
	//
	// The error is [ErrNotBegun] if nothing of the step has run: the caller may
	// execute it. After any other error the driver does not follow the step any
	// more, and Cleanup removes its resources. The error is [ErrLost] if the result
	// of the step cannot be known.
	Reattach(ctx context.Context, env *Environment, step *Step, out io.Writer, l Ledger, begun []Resource) (*Result, error)
}

// Errors of [Reattacher].
var (
	ErrNotBegun = errors.New("the step has not begun")
	ErrLost     = errors.New("the delegate was restarted while the step ran, and how the step ended is not known")
)

// Ledger stores the resources of a transaction. It is safe for concurrent use.
type Ledger interface {
	// Record stores r durably, or later if r is volatile. A driver calls it before
	// it creates r, and must not create r if Record fails. A second record with the
	// same kind and id replaces the first one.
	Record(ctx context.Context, r Resource) error
}

// Resource is something that a driver created and must remove: a container,
// network, volume, directory, process group, pod or VM.
type Resource struct {
	// Kind and ID identify the resource to its driver.
	Kind string `json:"kind"`
	ID   string `json:"id"`
	// Labels are also set on the resource itself, if its kind supports labels.
	Labels map[string]string `json:"labels,omitempty"`
	// Data is any other information that the driver needs to remove the resource.
	Data json.RawMessage `json:"data,omitempty"`
	// Volatile means that the ledger need not wait for the disk. It is for two
	// kinds of resources: those that vanish when the machine stops, and those that
	// are recorded before another resource and created after it. A volatile record survives the end of the
	// process. It reaches the disk with the next record that is not volatile.
	Volatile bool `json:"-"`
}

// Environment has the data that the steps of a transaction share. The ledger
// stores it as JSON. Values that must not be written to disk are not part of the
// JSON.
type Environment struct {
	// ID is the id of the transaction.
	ID string `json:"id"`
	// Labels are set on each resource that supports labels. They include delegate,
	// account and transaction (see [LabelTransaction]).
	Labels  map[string]string `json:"labels,omitempty"`
	Network stage.Network     `json:"network,omitzero"`
	Volumes []*stage.Volume   `json:"volumes,omitempty"`
	// MountDockerSocket gives each container step the socket of the engine.
	MountDockerSocket bool `json:"mount_docker_socket,omitempty"`
	// State is private data of the driver. Init writes it, Execute reads it.
	State json.RawMessage `json:"state,omitempty"`
	// Envs are variables of each step. They may contain secrets.
	Envs map[string]string `json:"-"`
	// Files are created by Init. They may contain secrets.
	Files []*stage.File `json:"-"`
	// Clone is checked out by Init. It may contain credentials.
	Clone *stage.Clone `json:"-"`
	// CloneBegan and CloneEnded are set by an Init that checks out Clone. They are for people.
	CloneBegan, CloneEnded time.Time `json:"-"`
	// Steps are steps that will come; the list may be incomplete. A driver may
	// prepare for them, for example by pulling their images. They have no command and
	// no environment; Execute gets the complete step. They may contain credentials
	// of registries.
	Steps []*stage.Step `json:"-"`
	// Log receives the messages of Init for the user. Nil discards them.
	Log io.Writer `json:"-"`
	// Mask hides the known secrets in a text. A driver must mask text of a step
	// before it shortens it: the remainder of a cut secret could not be recognised.
	// Text that the driver passes on completely is masked by the receiver. Nil
	// changes nothing.
	Mask func(text string) string `json:"-"`
}

// Step is a step to run.
type Step struct {
	stage.Step
	// ExtraVolumes are the volumes of this step that were not in the init of the
	// transaction.
	ExtraVolumes []*stage.Volume
	// SecretCommand means that the command contains a secret, which must not appear
	// on a command line (rule S5). The driver passes the command in another way, or
	// fails.
	SecretCommand bool
	// KeepOutput limits the output that the infrastructure keeps beside out, in bytes. It is for steps that run for a
	// long time and are not followed after a restart of the delegate. 0 means no limit, which Reattach needs.
	KeepOutput int64
}

// Result describes how a step ended.
type Result struct {
	// ExitCode is the exit code of the process. If a signal ended the process, it
	// is 128 plus the number of the signal.
	ExitCode int
	// OOMKilled means that the step ran out of memory; ExitCode is then not 0. The
	// value comes from the infrastructure. A container engine under load may lose
	// such an event: then only the exit code 137 shows it.
	OOMKilled bool
	// Detached means that the step was started and has not ended.
	Detached bool
	// Outputs and Secrets are the output variables of the step. Env has the
	// variables that later steps get in their environment.
	Outputs map[string]string
	Secrets map[string]string
	Env     map[string]string
	// Artifact is the content of the artifact file of the step.
	Artifact []byte
	// Lost names the outputs that the driver could not read, and the reason: for
	// example, the file is too large or not a regular file. A step with lost outputs
	// has failed, whatever its exit code is, because later steps would miss them.
	// Empty means that nothing is lost.
	Lost string
	// Tests summarises the test reports of the step. It is nil without reports.
	Tests *stage.TestSummary
	// Release removes what the driver still has of a step that has ended, such as its container. Until the call,
	// Reattach returns the same result and output. The caller of Execute and Reattach calls it once, when it has
	// stored both. Cleanup does the same. Nil means that there is nothing to remove.
	Release func() `json:"-"`
}

// End calls Release, if it is set. It may be called on nil.
func (r *Result) End() {
	if r != nil && r.Release != nil {
		r.Release()
	}
}

// Labels of each resource that supports labels. A sweep, or an operator, uses
// them to find the resources of a delegate.
const (
	LabelTransaction = "io.dlite.transaction"
	LabelDelegate    = "io.dlite.delegate"
	LabelAccount     = "io.dlite.account"
	LabelStep        = "io.dlite.step"
	// LabelLedger is the random id of the delegate's ledger. Several delegates may
	// have the same name, but each has its own ledger: a resource with this label
	// belongs to this delegate.
	LabelLedger = "io.dlite.ledger"
)
