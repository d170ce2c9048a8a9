package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/internal/podagent"
	"github.com/delegate-io/dlite/internal/recorded"
	"github.com/delegate-io/dlite/task/stage"
)

const loopback = "127.0.0.1"

// serviceNames returns the names under which other steps find a background step.
func serviceNames(step *stage.Step) []string {
	var names []string
	for _, name := range append([]string{step.ID, step.Name}, step.NetworkAliases...) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// callAgain is call with retries until the connection works again. The call must be
// idempotent.
func (p *pod) callAgain(ctx context.Context, method, path string, in, out any) error {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := p.call(ctx, method, path, in, out)
		var answer *hubAnswer
		if err == nil || p.isOver(err) || errors.As(err, &answer) {
			return p.explain(err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-p.lost:
		case <-p.alive.Done():
			timer.Stop()
			return p.explain(err)
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w (%w)", stopped(ctx), err)
		}
		timer.Stop()
	}
}

// addNames adds names to the hosts file of all containers of the pod.
func (p *pod) addNames(ctx context.Context, hosts []podagent.Host) error {
	if len(hosts) == 0 {
		return nil
	}
	var all podagent.Names
	if err := p.callAgain(ctx, "POST", "/names", podagent.Names{Hosts: hosts}, &all); err != nil {
		return err
	}
	p.setNames(all)
	return nil
}

// loadNames reads the names from the hub, if an earlier process of the delegate may have
// added some.
func (p *pod) loadNames(ctx context.Context) error {
	p.d.mu.Lock()
	learned := p.learned
	p.d.mu.Unlock()
	if learned {
		return nil
	}
	var all podagent.Names
	if err := p.callAgain(ctx, "GET", "/names", nil, &all); err != nil {
		return err
	}
	p.setNames(all)
	return nil
}

// setNames stores the names that the hub has.
func (p *pod) setNames(all podagent.Names) {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	p.names, p.fixed, p.learned = all.Hosts, all.Fixed, true
}

// namesAreFixed reports whether the hub cannot add names to the hosts file.
func (p *pod) namesAreFixed() bool {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	return p.fixed
}

// serviceVariables returns the variables with the addresses of the background steps.
func (p *pod) serviceVariables() map[string]string {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	env := map[string]string{}
	for _, h := range p.names {
		if h.Service {
			name := "DLITE_SERVICE_" + recorded.VariableName(h.Name)
			env[name+"_HOST"] = h.Address
			if h.ClusterName != "" {
				env[name+"_CLUSTER_NAME"], env[name+"_CLUSTER_IP"] = h.ClusterName, h.ClusterIP
			}
		}
	}
	return env
}

// awaitAgent waits until the agent of a container has connected to the hub. It fails if that
// cannot happen any more.
func (p *pod) awaitAgent(ctx context.Context, container string, limit time.Duration, credentials bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errPullTime)
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	defer func() { fail(nil); <-watched }()
	go func() {
		defer close(watched)
		err := p.await(ctx, func(pod *corev1.Pod) (bool, error) {
			status, ok := statusOf(pod, container)
			if !ok {
				return false, nil
			}
			if err := p.patience.startError(pod, status, credentials); err != nil {
				return false, err
			}
			if status.State.Terminated != nil {
				return false, ended(pod, status)
			}
			return false, nil
		})
		fail(err)
	}()
	err := p.callAgain(ctx, "GET", "/steps/"+container+"/ready", nil, nil)
	cause := context.Cause(ctx)
	switch {
	case err == nil:
		return nil
	case p.err() != nil:
		return p.err()
	case errors.As(cause, new(*Error)):
		return cause
	case errors.Is(cause, errPullTime):
		e := &Error{Reason: reasonStart, Pod: p.key(), Container: container, Message: errPullTime.Error(), err: context.DeadlineExceeded}
		if pod, _, _ := p.current(); pod != nil {
			if s, _ := statusOf(pod, container); s.State.Waiting != nil {
				e.Message += ": " + s.State.Waiting.Reason + ": " + s.State.Waiting.Message
			}
		}
		return e
	case ctx.Err() != nil:
		return stopped(ctx)
	}
	return p.explain(err)
}

var errPullTime = errors.New("it did not start in time")

// ended returns a channel that is closed when the container has ended or the pod is lost.
func (p *pod) ended(ctx context.Context, container string) (<-chan struct{}, error) {
	done := newSignal()
	ok := p.goTracked(func() {
		err := p.await(ctx, func(pod *corev1.Pod) (bool, error) {
			status, ok := statusOf(pod, container)
			return ok && status.State.Terminated != nil, nil
		})
		if err == nil || p.err() != nil || p.alive.Err() != nil {
			close(done)
		}
	})
	if !ok {
		return nil, p.explain(errClosed)
	}
	return done, nil
}

// end ends a container and its processes.
func (p *pod) end(ctx context.Context, container string) error {
	return p.callAgain(ctx, "POST", "/end/"+container, agent.DestroyRequest{}, nil)
}
