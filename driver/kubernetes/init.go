package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/internal/recorded"
	"github.com/delegate-io/dlite/task/stage"
)

// state is the content of Environment.State.
type state struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
}

// Init creates the pod of the transaction and waits until it runs (rule D7). Each step in
// env.Steps gets a container that waits for it. A second Init of an environment uses the
// pod of the first one.
func (d *Driver) Init(ctx context.Context, env *driver.Environment, l driver.Ledger) error {
	if err := d.init(ctx, env, l); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	return nil
}

func (d *Driver) init(ctx context.Context, env *driver.Environment, l driver.Ledger) error {
	if env.ID == "" {
		return errors.New("the transaction has no id")
	}
	if len(env.State) > 0 {
		p, err := d.open(env)
		if err != nil {
			return err
		}
		return d.setUpPod(ctx, p, env, nil)
	}
	t := &draft{name: recorded.NewName(env.ID), token: recorded.RandomHex(16), env: env}
	wanted, err := d.makePod(t)
	if err != nil {
		return err
	}
	s := &uniqueLines{to: env.Log}
	for _, note := range t.notes {
		s.line(note)
	}
	onError := func(err error) { s.line("A request to the API server failed, trying again: " + err.Error()) }
	owner, err := d.owner(ctx, wanted.Namespace, onError)
	if err != nil {
		return err
	}
	wanted.OwnerReferences = append(wanted.OwnerReferences, owner...)
	r := driver.Resource{Kind: kindPod, ID: wanted.Namespace + "/" + t.name, Labels: labelsOf(env)}
	var p *pod
	err = d.gate.Create(ctx, l, r, func() error {
		made, err := d.create(ctx, wanted, onError)
		if err != nil {
			return refusal(r.ID, err)
		}
		if p, err = d.follow(made.Namespace, made.Name); err != nil {
			return err
		}
		return d.callAPI(ctx, onError, func(ctx context.Context) error { return p.credentials(ctx, made, env.Steps) })
	})
	if err != nil {
		return err
	}
	if env.State, err = json.Marshal(state{Namespace: p.namespace, Pod: p.name}); err != nil {
		return err
	}
	if err := d.setUpPod(ctx, p, env, env.Clone); err != nil {
		env.State = nil
		return err
	}
	return nil
}

// create creates the pod. If it exists, an earlier attempt created it, because its name is
// random.
func (d *Driver) create(ctx context.Context, wanted *corev1.Pod, onError func(error)) (made *corev1.Pod, err error) {
	pods := d.api.pods(wanted.Namespace)
	err = d.callAPI(ctx, onError, func(ctx context.Context) (err error) {
		made, err = pods.create(ctx, wanted)
		if apierrors.IsAlreadyExists(err) {
			made, err = pods.get(ctx, wanted.Name)
		}
		return err
	})
	return made, err
}

// setUpPod waits for the hub, and then lets the agents create the clone and the shared files.
func (d *Driver) setUpPod(ctx context.Context, p *pod, env *driver.Environment, clone *stage.Clone) error {
	settings, _, err := d.settings(env.Network)
	if err != nil {
		return err
	}
	if err := p.awaitHub(ctx, settings.startTimeout(&d.cfg), env.Log); err != nil {
		return err
	}
	hub := p.agent(hubContainer, p.lost)
	req := &agent.SetupRequest{ID: env.ID, Labels: labelsOf(env)}
	if clone != nil {
		// Before the files, which may replace files of the repository.
		at := hub
		if d.cfg.GitImage != d.cfg.AgentImage {
			if err := p.awaitAgent(ctx, cloneContainer, d.cfg.PullTimeout, false); err != nil {
				return err
			}
			at = p.agent(cloneContainer, p.lost)
		}
		env.CloneBegan = time.Now()
		err := p.setup(ctx, at, &agent.SetupRequest{ID: env.ID, Labels: labelsOf(env), Clone: clone}, env.Log)
		env.CloneEnded = time.Now()
		if err != nil {
			return fmt.Errorf("with the git of image %q: %w", d.cfg.GitImage, err)
		}
		if at != hub {
			if err := p.end(ctx, cloneContainer); err != nil {
				return err
			}
		} else if err := at.Destroy(ctx, &agent.DestroyRequest{}); err != nil {
			// The agent of the hub needs a new setup for the files.
			return p.explain(err)
		}
	}
	req.Files = env.Files
	return p.setup(ctx, hub, req, env.Log)
}

func (p *pod) setup(ctx context.Context, at *agent.Client, req *agent.SetupRequest, log io.Writer) error {
	res, err := at.Setup(ctx, req)
	text := ""
	if failed := (*agent.Error)(nil); errors.As(err, &failed) {
		text = failed.Log
	} else if res != nil {
		text = res.Log
	}
	if log != nil && text != "" {
		_, _ = io.WriteString(log, text)
	}
	return p.explain(err)
}

// agent returns a client for the agent of a container. gone is closed when it has ended.
func (p *pod) agent(container string, gone <-chan struct{}) *agent.Client {
	c := agent.NewClient("http://hub/steps/"+container, p.link)
	c.Gone, c.StopTimeout = gone, p.d.cfg.Grace+stopTime
	return c
}

// stopTime limits the time to stop a step, in addition to its grace. It includes the ten
// seconds of a soft stop.
const stopTime = 30 * time.Second

// explain replaces an error by the reason why the pod is lost, if it is lost.
func (p *pod) explain(err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(p.alive); cause != nil {
		return fmt.Errorf("pod %s: %w", p.key(), cause)
	}
	if end := p.err(); end != nil {
		return end
	}
	return err
}

// awaitHub waits until the hub answers, at most for the duration of patience. It writes
// obstacles to log.
func (p *pod) awaitHub(ctx context.Context, patience time.Duration, log io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errStartTime)
	defer cancel()
	s := &uniqueLines{to: log}
	watching, stop := context.WithCancel(p.alive)
	defer stop()
	failed := make(chan error, 1)
	if !p.goTracked(func() { p.watchEvents(watching, s, failed) }) {
		return p.explain(errClosed)
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	if !p.goTracked(func() {
		select {
		case err := <-failed:
			fail(err)
		case <-ctx.Done():
		}
	}) {
		return p.explain(errClosed)
	}
	err := p.await(ctx, func(pod *corev1.Pod) (bool, error) {
		if c := condition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
			s.line("No node has accepted the pod yet: " + c.Message)
			if strings.Contains(c.Message, "persistentvolumeclaim") && strings.Contains(c.Message, "not found") {
				return false, &Error{Reason: reasonVolume, Pod: p.key(), Message: c.Message}
			}
		}
		status, ok := statusOf(pod, hubContainer)
		// Without a watch, later changes of the pod would not be noticed.
		return ok && status.State.Running != nil && p.isWatched(), nil
	})
	if err == nil {
		err = p.callAgain(ctx, "GET", "/names", nil, nil)
	}
	return p.whyNot(ctx, err)
}

var errStartTime = errors.New("it did not start in time")

// whyNot returns the reason why the pod did not start.
func (p *pod) whyNot(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case err == nil:
		return nil
	case p.err() != nil:
		return p.err()
	case errors.As(cause, new(*Error)):
		return cause
	case errors.Is(cause, errStartTime):
		e := &Error{Reason: reasonStart, Pod: p.key(), Message: errStartTime.Error(), err: context.DeadlineExceeded}
		if pod, _, _ := p.current(); pod != nil {
			if c := condition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
				e.Reason, e.Message = reasonUnschedulable, c.Message
			}
		}
		return e
	case ctx.Err() != nil:
		return stopped(ctx)
	}
	return p.explain(err)
}

// stopped returns the error for a context that has ended, with its cause.
func stopped(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(cause, err) {
		return fmt.Errorf("stopped: %w", err)
	}
	return fmt.Errorf("stopped: %w: %w", cause, err)
}

// uniqueLines writes each distinct line once.
type uniqueLines struct {
	mu   sync.Mutex
	to   io.Writer
	seen map[string]bool // guarded by mu
}

func (s *uniqueLines) line(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.to == nil || s.seen[text] {
		return
	}
	if s.seen == nil {
		s.seen = map[string]bool{}
	}
	s.seen[text] = true
	_, _ = io.WriteString(s.to, text+"\n")
}

// open returns the pod that Init created.
func (d *Driver) open(env *driver.Environment) (*pod, error) {
	if len(env.State) == 0 {
		return nil, fmt.Errorf("transaction %q: its init has not run on this driver", env.ID)
	}
	var s state
	if err := json.Unmarshal(env.State, &s); err != nil {
		return nil, fmt.Errorf("transaction %q: read the driver's state: %w", env.ID, err)
	}
	if !recorded.IsName(s.Pod) || s.Namespace == "" {
		return nil, fmt.Errorf("transaction %q: the state was not written by this driver", env.ID)
	}
	return d.follow(s.Namespace, s.Pod)
}

// isGone reports whether the object does not exist in the cluster.
func isGone(err error) bool { return apierrors.IsNotFound(err) }
