package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/recorded"
)

// Cleanup deletes the pods and Services in rs and waits until the pods do not exist in the cluster. The
// containers of a pod and the objects that it owns are removed with it. Running steps get
// SIGTERM first, and have Config.Grace to end.
func (d *Driver) Cleanup(ctx context.Context, rs []driver.Resource) (left []driver.Resource, err error) {
	if err := ctx.Err(); err != nil && len(rs) > 0 {
		return rs, fmt.Errorf("cleanup: %w", err)
	}
	if err := d.gate.Block(ctx, rs); err != nil {
		return rs, fmt.Errorf("cleanup: %w", err)
	}
	errs := make([]error, len(rs))
	var all sync.WaitGroup
	for i, r := range rs {
		switch r.Kind {
		case kindPod:
			all.Go(func() { errs[i] = d.removePod(ctx, r.ID) })
		case kindService:
			all.Go(func() { errs[i] = d.removeService(ctx, r.ID) })
		case kindStep:
			// After the pods, because most containers of steps are removed with their pod.
		default:
			errs[i] = fmt.Errorf("kind %q is not known to this driver", r.Kind)
		}
	}
	all.Wait()
	for i, r := range rs {
		if r.Kind == kindStep {
			all.Go(func() { errs[i] = d.removeStep(ctx, r.ID) })
		}
	}
	all.Wait()
	var failed []error
	for i, r := range rs {
		if errs[i] != nil {
			left = append(left, r)
			failed = append(failed, fmt.Errorf("%s %s: %w", r.Kind, r.ID, errs[i]))
		}
	}
	if len(failed) > 0 {
		return left, fmt.Errorf("cleanup: %w", errors.Join(failed...))
	}
	return nil, nil
}

// parts splits the id of a resource. ok is false if the id has another form.
func parts(id string) (namespace, name, container string, ok bool) {
	namespace, rest, _ := strings.Cut(id, "/")
	name, container, _ = strings.Cut(rest, "/")
	return namespace, name, container, namespace != "" && recorded.IsName(name)
}

// removePod deletes a pod and waits until it does not exist.
func (d *Driver) removePod(ctx context.Context, id string) error {
	namespace, name, _, ok := parts(id)
	if !ok {
		return errors.New("it is not the id of a pod of this driver")
	}
	p, err := d.follow(namespace, name)
	if err != nil {
		return err
	}
	if err := d.deletePod(ctx, p); err != nil {
		return err
	}
	return d.forget(ctx, p)
}

func (d *Driver) deletePod(ctx context.Context, p *pod) error {
	call := func(remove func(ctx context.Context, name string) error) error {
		calling, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return remove(calling, p.name)
	}
	err := call(d.api.pods(p.namespace).delete)
	if err != nil && !isGone(err) {
		return fmt.Errorf("delete it: %w", err)
	}
	if err == nil {
		select {
		case <-p.gone:
		case <-ctx.Done():
			return fmt.Errorf("wait for its end: %w", ctx.Err())
		}
	}
	// The garbage collector would delete it with the pod, but possibly much later.
	err = call(d.api.secrets(p.namespace).delete)
	if err != nil && !isGone(err) {
		return fmt.Errorf("delete the credentials of registries: %w", err)
	}
	return nil
}

// removeStep ends the processes in the container of a step. The container itself is removed
// with its pod.
func (d *Driver) removeStep(ctx context.Context, id string) error {
	namespace, name, container, ok := parts(id)
	if !ok || container == "" {
		return errors.New("it is not the id of a step's container of this driver")
	}
	calling, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := d.api.pods(namespace).get(calling, name)
	if isGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find its pod: %w", err)
	}
	p, err := d.follow(namespace, name)
	if err != nil {
		return err
	}
	return p.end(ctx, container)
}
