package driver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/delegate-io/dlite/task/stage"
)

// Driver runs the steps of transactions on one infrastructure (SPEC D1).
//
// All methods are safe for concurrent use, also for one transaction: steps may
// run in parallel and Cleanup may come at any time. A method returns as soon as
// it can once its context has ended; what Init and Execute started is then
// stopped, so that nothing runs on behalf of a call that has returned, except a
// detached step.
type Driver interface {
	// Infra is the infrastructure's name in an init's answer, such as "docker".
	Infra() string

	// Init makes what the steps of a transaction share. It may fill env.State
	// with what Execute needs to know. When it fails, the caller cleans up from
	// the ledger.
	Init(ctx context.Context, env *Environment, l Ledger) error

	// Execute runs a step to its end, or starts a detached one. Its output goes
	// to out, both streams in the order in which they arrive; out is not used
	// after Execute has returned, except by a detached step, for which out stays
	// in use until Cleanup has ended the step.
	//
	// The error says that the infrastructure failed; a step that ran and failed
	// is a Result with an exit code and no error. When ctx ends first, the step
	// is stopped as ctx's cause asks, nothing of it is left running, and the error
	// is ctx's. What remains of a step that has ended may be removed later, at the
	// latest by Cleanup.
	Execute(ctx context.Context, env *Environment, step *Step, out io.Writer, l Ledger) (*Result, error)

	// Cleanup removes resources, in an order of its own choosing, and returns
	// those that it could not remove, with an error that says why. A resource
	// that is gone already, or never came to be, counts as removed: Cleanup is
	// idempotent. It stops what still runs in them.
	Cleanup(ctx context.Context, rs []Resource) (left []Resource, err error)
}

// Finder is a [Driver] whose infrastructure can be searched by labels.
type Finder interface {
	// Find returns the resources that carry all of labels. No labels, or an
	// empty value among them, find nothing: what matches everything belongs to
	// somebody else.
	Find(ctx context.Context, labels map[string]string) ([]Resource, error)
}

// Reserver is a [Driver] that can set apart what the init of a transaction needs,
// such as a machine of a pool.
type Reserver interface {
	// Reserve sets it apart for limit, which must be positive, or until the Init or
	// Unreserve of the same id. Of env it reads the id, and the options of the
	// network, which are those that Init gets. It does not wait for what is in use:
	// then the transaction has a place in the queue, which its Init takes over. For
	// an id that has a reservation it returns that one, which lasts no longer for it.
	Reserve(ctx context.Context, env *Environment, limit time.Duration) (*Reservation, error)

	// Unreserve gives back what no Init has used. An id without a reservation is no
	// error.
	Unreserve(ctx context.Context, transaction string) error
}

// Reservation is what a [Reserver] has set apart.
type Reservation struct {
	// Pool is what it is taken from.
	Pool string
	// Machine is what the Init will get. It is empty while all are in use; then Place
	// counts, from 1, who is served first.
	Machine string
	Place   int
	// Until is when it ends by itself.
	Until time.Time
}

// Reattacher is a [Driver] that can go on with a step that an earlier process of
// the delegate has begun (SPEC T5).
type Reattacher interface {
	// Reattach does for such a step what Execute would have done: it follows the
	// step to its end, or lets a detached one go on. begun are the resources that
	// were recorded for the step, at least one. out gets the step's output from
	// its beginning as far as the infrastructure has kept it; lines that the driver
	// itself had written before come as empty ones, so that a reader that counts
	// lines finds its place.
	//
	// The error is [ErrNotBegun] when nothing of the step has run: it may be
	// executed. With any other error the step is over as far as the driver is
	// concerned, and what is left of it waits for Cleanup; [ErrLost] says that
	// nobody can tell how it ended.
	Reattach(ctx context.Context, env *Environment, step *Step, out io.Writer, l Ledger, begun []Resource) (*Result, error)
}

// What Reattach may fail with.
var (
	ErrNotBegun = errors.New("the step has not begun")
	ErrLost     = errors.New("the delegate was restarted while the step ran, and how the step ended is not known")
)

// Ledger keeps a transaction's resources.
type Ledger interface {
	// Record makes r durable, a volatile one later. A driver calls it before it creates r, and does not create r when it fails. Recording the same kind and id again replaces
	// the record. Safe for concurrent use.
	Record(ctx context.Context, r Resource) error
}

// Resource is something that a driver made and that must be removed: a
// container, network, volume, folder, process group, pod, VM.
type Resource struct {
	// Kind and ID identify the resource to its driver.
	Kind string `json:"kind"`
	ID   string `json:"id"`
	// Labels are on the resource itself too, where its kind has labels.
	Labels map[string]string `json:"labels,omitempty"`
	// Data is whatever else the driver needs to remove the resource.
	Data json.RawMessage `json:"data,omitempty"`
	// Volatile says that a ledger need not wait for the disk. It is for what is
	// gone when the machine stops and is part of a resource with a durable record,
	// and for what is recorded before another one and made after that. The record
	// survives the end of the delegate's process all the same, and gets to the
	// disk with the next one that is not volatile.
	Volatile bool `json:"-"`
}

// Environment is what the steps of a transaction share. It goes to the ledger
// as JSON, so what must not touch a disk is excluded from that.
type Environment struct {
	// ID is the transaction's.
	ID string `json:"id"`
	// Labels go on every resource that can carry them: delegate, account and
	// transaction among them (see [LabelTransaction]).
	Labels  map[string]string `json:"labels,omitempty"`
	Network stage.Network     `json:"network,omitzero"`
	Volumes []*stage.Volume   `json:"volumes,omitempty"`
	// MountDockerSocket gives every container step the engine's socket.
	MountDockerSocket bool `json:"mount_docker_socket,omitempty"`
	// State is the driver's own, written by Init and read by Execute.
	State json.RawMessage `json:"state,omitempty"`
	// Envs are variables of every step. They may hold secrets.
	Envs map[string]string `json:"-"`
	// Files are to be made by Init. They may hold secrets.
	Files []*stage.File `json:"-"`
	// Clone is to be checked out by Init. It may hold credentials.
	Clone *stage.Clone `json:"-"`
	// Steps are known to come, or some of them: a driver may prepare for them, such
	// as have their images at hand. What a step is, Execute says; here it has no
	// command and no environment. They may hold credentials of registries.
	Steps []*stage.Step `json:"-"`
	// Log takes what Init has to say to people; nil drops it.
	Log io.Writer `json:"-"`
	// Mask hides the secrets that are known in a text. What a driver quotes of a step
	// and shortens goes through it first: of a secret that is cut off the rest could
	// not be recognised any more. What is handed on whole is masked by whoever gets
	// it. Nil changes nothing.
	Mask func(text string) string `json:"-"`
}

// Step is a step to run.
type Step struct {
	stage.Step
	// Volumes that this step brings along and the transaction's init did not
	// name.
	ExtraVolumes []*stage.Volume
	// Conceal says that the command holds a secret, which no command line may show
	// (SPEC S5): the driver finds another way for it, or fails.
	Conceal bool
}

// Result is how a step ended.
type Result struct {
	// ExitCode is the process's. A process that a signal ended has 128 plus the
	// signal's number.
	ExitCode int
	// OOMKilled says that the step ran out of memory; ExitCode is then not 0. It is
	// what the infrastructure knows: a container engine under load may lose such an
	// event, and the step shows exit code 137 alone.
	OOMKilled bool
	// Detached says that the step was started and has no end to report yet.
	Detached bool
	// Outputs and Secrets are the variables that the step hands on, Env those
	// that later steps find in their environment.
	Outputs map[string]string
	Secrets map[string]string
	Env     map[string]string
	// Artifact is the content of the step's artifact file.
	Artifact []byte
	// Lost tells what the step handed on and could not be read, because it is too
	// large or no file, and why. A step that lost something has failed, whatever its
	// exit code: who comes next would miss it. Empty is nothing.
	Lost string
	// Tests summarises the step's test reports, nil without any.
	Tests *stage.TestSummary
}

// Labels that every resource with labels carries. A sweep and an operator find
// by them what a delegate made.
const (
	LabelTransaction = "io.dlite.transaction"
	LabelDelegate    = "io.dlite.delegate"
	LabelAccount     = "io.dlite.account"
	LabelStep        = "io.dlite.step"
	// LabelLedger is a random id of the delegate's ledger. Names of delegates may
	// be the same, ledgers are not: what carries this label is this delegate's.
	LabelLedger = "io.dlite.ledger"
)
