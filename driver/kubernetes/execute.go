package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/internal/podagent"
	"github.com/delegate-io/dlite/internal/recorded"
	"github.com/delegate-io/dlite/task/stage"
)

// Execute runs a step in a separate container (rule D7): the container that waits for
// it, if the step was announced to Init and has not changed, or else a container that is
// added to the pod. After the time-out of the step the error wraps
// [context.DeadlineExceeded]. A detached step has no time-out.
func (d *Driver) Execute(ctx context.Context, env *driver.Environment, step *driver.Step, out io.Writer, l driver.Ledger) (*driver.Result, error) {
	fail := func(err error) error { return fmt.Errorf("step %q: %w", step.ID, err) }
	p, err := d.open(env)
	if err != nil {
		return nil, fail(err)
	}
	defer d.drop(p)
	ctx, cancel := bounded(ctx, step)
	defer cancel()
	if ctx.Err() != nil {
		return nil, fail(stopped(ctx))
	}
	r := &run{p: p, env: env, step: step, out: out, ledger: l}
	res, err := r.execute(ctx)
	if err != nil {
		if failed := (*stepError)(nil); errors.As(err, &failed) {
			return nil, failed.err
		}
		return nil, fail(err)
	}
	return res, nil
}

// bounded returns ctx with the time-out of the step.
func bounded(ctx context.Context, step *driver.Step) (context.Context, context.CancelFunc) {
	if step.Timeout <= 0 || step.Detach {
		return ctx, func() {}
	}
	limit := time.Duration(step.Timeout) * time.Second
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("its time-out of %v is over", limit))
}

// stepError is an error whose text names the step.
type stepError struct{ err error }

func (e *stepError) Error() string { return e.err.Error() }

func (e *stepError) Unwrap() error { return e.err }

// run is the execution of one step.
type run struct {
	p      *pod
	env    *driver.Environment
	step   *driver.Step
	out    io.Writer
	ledger driver.Ledger

	service   *corev1.Service // nil: the step has none
	container string
	command   stage.Run // including the parts from the image
}

// stepData is the Data of the resource of a step.
type stepData struct {
	// Notes is the number of lines that the driver wrote before the output of the step.
	Notes int `json:"said,omitempty"`
}

func (r *run) execute(ctx context.Context) (*driver.Result, error) {
	if err := r.awaitState(ctx); err != nil {
		return nil, err
	}
	s, err := r.shape(ctx)
	if err != nil {
		return nil, err
	}
	if r.command, err = r.p.commandOf(ctx, &r.step.Step); err != nil {
		if ctx.Err() != nil {
			return nil, stopped(ctx)
		}
		return nil, err
	}
	if err := r.addExtraHosts(ctx); err != nil {
		return nil, err
	}
	if err := r.p.loadNames(ctx); err != nil {
		return nil, err
	}
	if err := r.addService(ctx); err != nil {
		return nil, err
	}
	waits, err := r.findWaiting(ctx, s)
	if err != nil {
		return nil, err
	}
	notes := append(r.unresolvedNames(), s.notes(waits)...)
	data, err := json.Marshal(stepData{Notes: len(notes)})
	if err != nil {
		return nil, err
	}
	record := driver.Resource{Kind: kindStep, ID: r.p.key() + "/" + r.container, Labels: r.labels(), Data: data}
	err = r.p.d.gate.Create(ctx, r.ledger, record, func() error {
		if err := ctx.Err(); err != nil || waits {
			return err
		}
		return r.addContainer(ctx, s)
	})
	if err != nil {
		if ctx.Err() != nil {
			err = stopped(ctx)
		}
		return nil, r.p.explain(err)
	}
	for _, note := range notes {
		_, _ = io.WriteString(r.out, note+"\n")
	}
	return r.follow(ctx, true)
}

// awaitState waits until the state of the pod is known, or the pod is lost.
func (r *run) awaitState(ctx context.Context) error {
	err := r.p.await(ctx, func(*corev1.Pod) (bool, error) { return true, nil })
	if ctx.Err() != nil && r.p.err() == nil {
		return stopped(ctx)
	}
	return r.p.explain(err)
}

// shape returns the required shape of the container.
func (r *run) shape(ctx context.Context) (*shape, error) {
	settings, _, err := r.p.d.settings(r.env.Network)
	if err != nil {
		return nil, err
	}
	volumes, _, err := r.p.d.volumesOf(r.env, settings)
	if err != nil {
		return nil, err
	}
	if err := r.p.d.allowsVolumes(r.step.ExtraVolumes); err != nil {
		return nil, err
	}
	if err := r.p.assignSpareVolumes(ctx, r.step.ExtraVolumes, volumes); err != nil {
		return nil, err
	}
	common, err := r.p.d.containerContext(settings)
	if err != nil {
		return nil, err
	}
	s, err := r.p.d.shapeOf(&r.step.Step, volumes, r.env.MountDockerSocket, common)
	if err != nil {
		return nil, err
	}
	auths := authOf(r.step.Auth, r.step.Image)
	if len(auths) == 0 {
		return s, nil
	}
	pod, _, _ := r.p.current()
	if pod == nil {
		return nil, r.p.explain(recorded.ErrCleanedUp)
	}
	return s, r.p.d.callAPI(ctx, r.p.unanswered(ctx), func(ctx context.Context) error { return r.p.addCredentials(ctx, pod, auths) })
}

// addExtraHosts adds the extra hosts of the step to the hosts file.
func (r *run) addExtraHosts(ctx context.Context) error {
	var hosts []podagent.Host
	for _, extra := range r.step.ExtraHosts {
		name, address, ok := extraHost(extra)
		if !ok {
			return fmt.Errorf("extra host %q is not of the form name:address", extra)
		}
		if address == "host-gateway" {
			if pod, _, _ := r.p.current(); pod != nil {
				address = pod.Status.HostIP
			}
		}
		hosts = append(hosts, podagent.Host{Name: name, Address: address})
	}
	return r.p.addNames(ctx, hosts)
}

// extraHost parses "name:address" or "name=address".
func extraHost(text string) (name, address string, ok bool) {
	if name, address, ok = strings.Cut(text, "="); ok {
		return name, address, true
	}
	return strings.Cut(text, ":")
}

// unresolvedNames returns lines for the log of the step about names that cannot be resolved:
// if the hub is not root, names that were not announced to the init.
func (r *run) unresolvedNames() []string {
	pod, _, _ := r.p.current()
	if pod == nil || !r.p.namesAreFixed() {
		return nil
	}
	known := map[string]bool{}
	for _, a := range pod.Spec.HostAliases {
		for _, name := range a.Hostnames {
			known[name] = true
		}
	}
	var lines []string
	for _, extra := range r.step.ExtraHosts {
		if name, _, _ := extraHost(extra); !known[name] {
			lines = append(lines, "A pod without root cannot have the extra host "+name+" (it was not announced to the init with an address).")
		}
	}
	if !r.step.Detach {
		return lines
	}
	for _, name := range serviceNames(&r.step.Step) {
		for i, host := range hostNames(name) {
			why := "it was not announced to the init"
			if i > 0 {
				why = "Kubernetes permits no underscore in it"
			}
			if !known[host] {
				lines = append(lines, "A pod without root cannot have the name "+host+" ("+why+"): other steps can use DLITE_SERVICE_"+recorded.VariableName(host)+"_HOST.")
			}
		}
	}
	return lines
}

// findWaiting reports whether a container waits for this step, and selects it.
func (r *run) findWaiting(ctx context.Context, s *shape) (bool, error) {
	pod, _, _ := r.p.current()
	if pod == nil {
		return false, r.p.explain(recorded.ErrCleanedUp)
	}
	list := map[string]waiting{}
	if text := pod.Annotations[annotationSteps]; text != "" {
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return false, fmt.Errorf("read the pod's annotation %s: %w", annotationSteps, err)
		}
	}
	by := podagent.Claim{By: recorded.RandomHex(8)}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if list[name].Step != r.step.ID || list[name].Shape != s.fingerprint() {
			continue
		}
		if status, ok := statusOf(pod, name); ok && status.State.Terminated != nil {
			continue
		}
		var got podagent.Claimed
		if err := r.p.callAgain(ctx, "POST", "/claims/"+name, by, &got); err != nil {
			return false, err
		}
		if got.OK {
			r.container = name
			return true, nil
		}
	}
	r.container = "s-" + recorded.Slug(firstOf(r.step.ID, r.step.Name), slugLength) + "-" + recorded.RandomHex(4)
	return false, nil
}

func (r *run) labels() map[string]string {
	labels := labelsOf(r.env)
	labels[driver.LabelStep] = r.step.ID
	return labels
}

// addContainer adds a container for the step to the pod.
func (r *run) addContainer(ctx context.Context, s *shape) error {
	pod, _, _ := r.p.current()
	if pod == nil {
		return recorded.ErrCleanedUp
	}
	token := ""
	for _, c := range pod.Spec.Containers {
		if c.Name == hubContainer {
			for _, v := range c.Env {
				if v.Name == podagent.EnvToken {
					token = v.Value
				}
			}
		}
	}
	c := s.complete(r.container, token, r.p.d.cfg.Grace.String())
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"ephemeralContainers": []any{ephemeral(c)}}})
	if err != nil {
		return err
	}
	err = r.p.d.callAPI(ctx, r.p.unanswered(ctx), func(ctx context.Context) error {
		if end := r.p.err(); end != nil {
			return end
		}
		_, err := r.p.d.api.pods(r.p.namespace).patch(ctx, r.p.name, patch, "ephemeralcontainers")
		return err
	})
	if err != nil {
		return refusal(r.p.key(), err)
	}
	return nil
}

// follow runs the step in its container, or continues to follow it.
func (r *run) follow(ctx context.Context, begins bool) (res *driver.Result, err error) {
	defer func() {
		switch {
		case err != nil:
			r.endContainer(ctx)
		case !res.Detached:
			res.Release = func() { r.endContainer(ctx) } // until then its agent has the output
		}
	}()
	if err := r.p.awaitAgent(ctx, r.container, r.p.d.cfg.PullTimeout, r.step.Auth != nil); err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(r.p.alive)
	defer func() {
		if err != nil || !res.Detached {
			stop()
		}
	}()
	ended, err := r.p.ended(watching, r.container)
	if err != nil {
		return nil, err
	}
	c := r.p.agent(r.container, ended)
	if begins {
		if _, err = c.Setup(ctx, r.setup()); err != nil {
			return nil, r.explainEnd(ctx, err)
		}
	}
	run := c.Start
	if !begins {
		run = c.Attach
	}
	res, f, err := run(ctx, r.request(), r.out)
	switch {
	case errors.Is(err, agent.ErrGone):
		return r.endedResult(ctx, err)
	case errors.Is(err, driver.ErrNotBegun):
		return nil, err
	case err != nil:
		if e := r.p.explain(err); e != err { //nolint:errorlint // compares identity
			return nil, e
		}
		return nil, &stepError{err}
	}
	if res.Detached {
		return res, r.announce(ctx, f, stop)
	}
	return res, nil
}

// explainEnd returns the reason of the cluster for the end of the container, if it has one.
func (r *run) explainEnd(ctx context.Context, err error) error {
	if errors.Is(err, agent.ErrGone) {
		_, err = r.endedResult(ctx, err)
		if err == nil {
			err = errors.New("the container ran out of memory before the step started")
		}
		return err
	}
	if ctx.Err() != nil {
		return stopped(ctx)
	}
	return r.p.explain(err)
}

// endedResult returns the result of a step whose container has ended.
func (r *run) endedResult(ctx context.Context, err error) (*driver.Result, error) {
	if end := r.p.err(); end != nil {
		return nil, end
	}
	pod, _, _ := r.p.current()
	if pod == nil {
		return nil, r.p.explain(err)
	}
	status, ok := statusOf(pod, r.container)
	if !ok || status.State.Terminated == nil {
		return nil, r.p.explain(err)
	}
	if t := status.State.Terminated; t.Reason == "OOMKilled" {
		return &driver.Result{ExitCode: max(int(t.ExitCode), 1), OOMKilled: true}, nil
	}
	if ctx.Err() != nil {
		return nil, stopped(ctx)
	}
	end := ended(pod, status)
	if endWasRequested(end) {
		// The status of the pod will soon have the reason.
		limited, cancel := context.WithTimeout(ctx, reasonTimeout)
		defer cancel()
		_ = r.p.await(limited, func(*corev1.Pod) (bool, error) { return false, nil })
		if lost := r.p.err(); lost != nil {
			return nil, lost
		}
	}
	return nil, end
}

// announce adds the names of a detached step, which continues to run.
func (r *run) announce(ctx context.Context, f *agent.Follower, stop func()) error {
	following := r.p.goTracked(func() {
		defer stop()
		select {
		case <-f.Done():
		case <-r.p.alive.Done():
		}
		f.Stop()
	})
	if !following {
		f.Stop()
		return r.p.explain(errClosed)
	}
	var hosts []podagent.Host
	for _, name := range serviceNames(&r.step.Step) {
		for _, host := range hostNames(name) {
			h := podagent.Host{Name: host, Address: loopback, Service: true}
			if r.service != nil {
				h.ClusterName, h.ClusterIP = r.service.Name+"."+r.service.Namespace+".svc", r.service.Spec.ClusterIP
			}
			hosts = append(hosts, h)
		}
	}
	return r.p.addNames(ctx, hosts)
}

// endContainer ends the container of the step. It does not wait for a container that has not
// started, because that container ends when it starts. If the pod cannot be reached,
// endContainer continues in the background, because the processes of the step have ended
// already.
func (r *run) endContainer(ctx context.Context) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	if r.p.err() != nil || r.p.end(limited, r.container) == nil {
		return // otherwise it ends with the pod
	}
	log := r.p.d.log(ctx)
	r.p.goTracked(func() {
		if err := r.p.end(r.p.alive, r.container); err != nil && r.p.err() == nil && r.p.alive.Err() == nil {
			log.Error().Err(err).Str("pod", r.p.key()).Str("container", r.container).Msg("cannot end the container of a step that has ended")
		}
	})
}

// setup returns the setup request for the agent of the container.
func (r *run) setup() *agent.SetupRequest {
	envs := r.p.serviceVariables()
	maps.Copy(envs, r.env.Envs)
	return &agent.SetupRequest{ID: r.env.ID, Labels: labelsOf(r.env), Envs: envs}
}

// request returns the step as a host step for the agent in its container. The settings of
// the container are left out.
func (r *run) request() *agent.StartStepRequest {
	step := r.step.Step
	step.Image, step.Pull, step.Auth, step.Volumes, step.Devices, step.Labels = "", "", nil, nil, nil, nil
	step.Network, step.Networks, step.NetworkAliases, step.ExtraHosts, step.PortBindings = "", nil, nil, nil, nil
	step.DNS, step.DNSSearch, step.Ulimits, step.Privileged, step.MountDockerSocket = nil, nil, nil, false, false
	step.CPUPeriod, step.CPUQuota, step.CPUShares, step.CPUSet, step.MemLimit, step.MemSwapLimit, step.ShmSize = 0, 0, 0, nil, 0, 0, 0
	// The caller of the driver handles the log and the report.
	step.LogConfig, step.LogKey, step.LogDrone, step.StepStatus, step.StageRuntimeID = nil, "", false, nil, ""
	if _, _, ok := numeric(step.User); ok {
		step.User = "" // the container already has this user
	}
	step.Run = r.command
	step.ID = firstOf(step.ID, r.container)
	if step.Environment == nil {
		step.Environment = map[string]string{}
	}
	return &agent.StartStepRequest{Step: step, Key: r.container, Conceal: r.step.SecretCommand}
}
