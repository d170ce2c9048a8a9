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

// kindStep is the resource kind of a step. The resource's id is the step's key at the agent, and
// its data is the transaction's state. A step ends with its machine.
const kindStep = "vm-step"

// Execute runs a step at the machine's agent. If the machine dies, the step fails within about 2
// s, with an error that says so.
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
	res, f, err := h.link.client.Start(ctx, req, out)
	if err != nil {
		return nil, h.explain(err)
	}
	if f != nil {
		h.link.follow(f)
	}
	return res, nil
}

// Reattach resumes a step that an earlier process started (rule T5). The agent has kept its
// output. The pool's state directory must still have the claim of the machine.
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
	res, f, err := h.link.client.Attach(ctx, request(env, step, begun[len(begun)-1].ID), out)
	if err != nil {
		return nil, h.explain(err)
	}
	if f != nil {
		h.link.follow(f)
	}
	return res, nil
}

// request returns the agent's request for a step.
func request(env *driver.Environment, step *driver.Step, key string) *agent.StartStepRequest {
	req := &agent.StartStepRequest{Step: step.Step, VolumesActual: step.ExtraVolumes, Conceal: step.SecretCommand, Key: key}
	req.Environment = map[string]string{}
	maps.Copy(req.Environment, env.Envs)
	maps.Copy(req.Environment, step.Environment)
	if req.Network == env.Network.ID || req.Network == env.ID {
		req.Network = "" // the stage's own: at a foreign agent its name would drop the aliases of services
	}
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

// stateOf returns the state in the resource of a step.
func stateOf(r driver.Resource) (*state, error) {
	s := &state{}
	if err := json.Unmarshal(r.Data, s); err != nil {
		return nil, fmt.Errorf("read record: %w", err)
	}
	return s, nil
}
