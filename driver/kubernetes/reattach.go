package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/delegate-io/dlite/driver"
)

// Reattach continues a step that an earlier process started (rule T5). The agent of the step
// still runs and has its output. The time-out counts from the start of the step.
func (d *Driver) Reattach(
	ctx context.Context, env *driver.Environment, step *driver.Step, out io.Writer, l driver.Ledger, begun []driver.Resource,
) (*driver.Result, error) {
	fail := func(err error) error { return fmt.Errorf("step %q: %w", step.ID, err) }
	p, err := d.open(env)
	if err != nil {
		return nil, fail(err)
	}
	defer d.drop(p)
	r := &run{p: p, env: env, step: step, out: out, ledger: l, command: step.Run}
	res, err := r.reattach(ctx, begun)
	failed := (*stepError)(nil)
	switch {
	case err == nil:
		return res, nil
	case errors.Is(err, driver.ErrNotBegun):
		return nil, driver.ErrNotBegun
	case errors.As(err, &failed):
		return nil, failed.err
	}
	return nil, fail(err)
}

func (r *run) reattach(ctx context.Context, begun []driver.Resource) (*driver.Result, error) {
	var record driver.Resource
	for _, b := range begun {
		if b.Kind == kindStep {
			record = b
		}
	}
	namespace, name, container, ok := parts(record.ID)
	if !ok || container == "" || namespace+"/"+name != r.p.key() {
		return nil, driver.ErrNotBegun
	}
	var data stepData
	if len(record.Data) > 0 {
		if err := json.Unmarshal(record.Data, &data); err != nil {
			return nil, fmt.Errorf("%w (read its record: %w)", driver.ErrLost, err)
		}
	}
	r.container = container
	if err := r.awaitState(ctx); err != nil {
		if r.p.err() != nil {
			err = fmt.Errorf("%w (%w)", driver.ErrLost, err)
		}
		return nil, err
	}
	pod, _, _ := r.p.current()
	if pod == nil || !hasContainer(pod, container) {
		return nil, driver.ErrNotBegun
	}
	if status, ok := statusOf(pod, container); ok && status.State.Terminated != nil {
		res, err := r.endedResult(ctx, driver.ErrLost)
		if err != nil {
			err = fmt.Errorf("%w (%w)", driver.ErrLost, err)
		}
		return res, err
	}
	_, _ = io.WriteString(r.out, strings.Repeat("\n", data.Notes))
	res, err := r.follow(ctx, false)
	if errors.As(err, new(*Error)) {
		err = fmt.Errorf("%w (%w)", driver.ErrLost, err)
	}
	return res, err
}

func hasContainer(pod *corev1.Pod, name string) bool {
	for _, c := range pod.Spec.Containers {
		if c.Name == name {
			return true
		}
	}
	for _, c := range pod.Spec.EphemeralContainers {
		if c.Name == name {
			return true
		}
	}
	return false
}
