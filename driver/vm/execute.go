package vm

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/agent"
)

// kindStep is the kind of a step's record. Its id is the step's key at the agent,
// and its data the state of its transaction. It is gone with its machine.
const kindStep = "vm-step"

// Execute has the machine's agent run a step. When the machine dies the step fails
// within about 2 s, with an error that says so.
func (d *Driver) Execute(
	ctx context.Context, env *driver.Environment, step *driver.Step, out io.Writer, l driver.Ledger,
) (*driver.Result, error) {
	h, err := d.open(env)
	if err != nil {
		return nil, err
	}
	defer h.done()
	req := request(env, step, "step-"+rand.Text())
	if ctx.Err() == nil {
		r := driver.Resource{Kind: kindStep, ID: req.Key, Labels: labelsOf(env), Data: env.State, Volatile: true}
		if err := l.Record(ctx, r); err != nil {
			return nil, fmt.Errorf("step %q: %w", step.ID, err)
		}
	}
	res, f, err := h.way.client.Start(ctx, req, out)
	if err != nil {
		return nil, h.explain(err)
	}
	if f != nil {
		h.way.follow(f)
	}
	return res, nil
}

// Reattach goes on with a step that an earlier process has started (SPEC T5): the
// agent has kept its output. It needs the machine to be claimed still, which the
// pool's state folder tells.
func (d *Driver) Reattach(
	ctx context.Context, env *driver.Environment, step *driver.Step, out io.Writer, _ driver.Ledger, begun []driver.Resource,
) (*driver.Result, error) {
	begun = slices.DeleteFunc(slices.Clone(begun), func(r driver.Resource) bool { return r.Kind != kindStep })
	if len(begun) == 0 {
		return nil, driver.ErrNotBegun
	}
	h, err := d.open(env)
	if err != nil {
		return nil, fmt.Errorf("step %q: %w: %w", step.ID, driver.ErrLost, err)
	}
	defer h.done()
	res, f, err := h.way.client.Attach(ctx, request(env, step, begun[len(begun)-1].ID), out)
	if err != nil {
		return nil, h.explain(err)
	}
	if f != nil {
		h.way.follow(f)
	}
	return res, nil
}

// request is what the agent is told of a step.
func request(env *driver.Environment, step *driver.Step, key string) *agent.StartStepRequest {
	req := &agent.StartStepRequest{Step: step.Step, VolumesActual: step.ExtraVolumes, Conceal: step.Conceal, Key: key}
	req.Environment = map[string]string{}
	maps.Copy(req.Environment, env.Envs)
	maps.Copy(req.Environment, step.Environment)
	req.MountDockerSocket = req.MountDockerSocket || env.MountDockerSocket
	return req
}

func labelsOf(env *driver.Environment) map[string]string {
	labels := maps.Clone(env.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[driver.LabelTransaction] = env.ID
	return labels
}

// stateOf is what a record of a step tells of its machine.
func stateOf(r driver.Resource) (*state, error) {
	s := &state{}
	if err := json.Unmarshal(r.Data, s); err != nil {
		return nil, fmt.Errorf("read record: %w", err)
	}
	return s, nil
}
