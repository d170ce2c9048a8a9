package transaction

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/delegate-io/dlite/internal/envelope"
	"github.com/delegate-io/dlite/internal/taskkind"
	"github.com/delegate-io/dlite/task"
)

// The infrastructures that task types name, see [WithInfra].
const (
	Local      = "local"
	VM         = "vm"
	Kubernetes = "kubernetes"
)

// Routes returns the handlers of init, execute and cleanup by task type, for a
// router.RouteMap. [WithInfra] selects the infrastructures (docs/protocol.md, sections 1 to
// 3):
//
//	Local       CI_DOCKER_*, local_*
//	VM          DLITE_CI_VM_*, vm_*
//	Kubernetes  kubernetes_*, an extension of this project
//
// An init for VM may have services. They start before the init is answered. With
// DLITE_CI_VM_CAPACITY_TASK a stage reserves the resources of its init, if the driver is a
// [driver.Reserver].
func (s *Stages) Routes() map[string]task.Handler { return maps.Clone(s.routes) }

func (s *Stages) newRoutes() map[string]task.Handler {
	type handlers struct{ Init, Execute, Cleanup task.Handler }
	plain := handlers{
		Init:    task.HandlerFunc(s.handleInit),
		Execute: task.HandlerFunc(s.handleExecute),
		Cleanup: task.HandlerFunc(s.handleCleanup),
	}
	wrapped := handlers{
		Init:    task.HandlerFunc(s.handleVMInit),
		Execute: task.HandlerFunc(unwrap(s.handleExecute, (*envelope.Execute).Step)),
		Cleanup: task.HandlerFunc(unwrap(s.handleCleanup, (*envelope.Cleanup).Cleanup)),
	}
	routes := map[string]task.Handler{}
	for _, infra := range s.infras {
		switch infra {
		case Local:
			routes[task.TypeDockerInit] = plain.Init
			routes[task.TypeDockerExecute] = plain.Execute
			routes[task.TypeDockerCleanup] = plain.Cleanup
			routes[task.TypeLocalInit] = plain.Init
			routes[task.TypeLocalExecute] = plain.Execute
			routes[task.TypeLocalCleanup] = plain.Cleanup
		case VM:
			routes[task.TypeDliteVMInit] = wrapped.Init
			routes[task.TypeDliteVMExecute] = wrapped.Execute
			routes[task.TypeDliteVMExecuteV2] = wrapped.Execute
			routes[task.TypeDliteVMCleanup] = wrapped.Cleanup
			routes[task.TypeDliteVMCleanupV2] = wrapped.Cleanup
			routes[task.TypeDliteVMCapacity] = task.HandlerFunc(s.reserve)
			routes[task.TypeVMInit] = plain.Init
			routes[task.TypeVMExecute] = plain.Execute
			routes[task.TypeVMCleanup] = plain.Cleanup
		case Kubernetes:
			routes[task.TypeKubernetesInit] = plain.Init
			routes[task.TypeKubernetesExecute] = plain.Execute
			routes[task.TypeKubernetesCleanup] = plain.Cleanup
		default:
			panic(fmt.Sprintf("transaction: infrastructure %q is unknown: it must be local, vm or kubernetes", infra))
		}
	}
	return routes
}

// unwrap returns a handler that calls fn with the content of the envelope.
func unwrap[Envelope, In, Out any](
	fn func(context.Context, *task.Request[In]) (Out, error), open func(*Envelope) In,
) func(context.Context, *task.Request[Envelope]) (Out, error) {
	return func(ctx context.Context, req *task.Request[Envelope]) (Out, error) {
		return fn(ctx, &task.Request[In]{Task: req.Task, Data: open(&req.Data)})
	}
}

// transactionIDs returns the ids that a task's payload gives its transaction.
func transactionIDs(t *task.Task) []string {
	inEnvelope := taskkind.Enveloped(t.Type)
	var ids []string
	switch taskkind.Of(t.Type) {
	case taskkind.Init:
		in := decodePayload(t.Data, inEnvelope, (*envelope.Init).Init)
		ids = []string{in.TransactionID()}
	case taskkind.Execute:
		in := decodePayload(t.Data, inEnvelope, (*envelope.Execute).Step)
		ids = in.TransactionIDs()
	}
	return slices.DeleteFunc(ids, func(id string) bool { return id == "" })
}

// decodePayload returns a payload, empty if it cannot be decoded.
func decodePayload[Envelope, In any](b []byte, inEnvelope bool, open func(*Envelope) In) (in In) {
	if inEnvelope {
		var e Envelope
		if json.Unmarshal(b, &e) == nil {
			in = open(&e)
		}
		return in
	}
	_ = json.Unmarshal(b, &in) // a part of the payload may still have an id
	return in
}
