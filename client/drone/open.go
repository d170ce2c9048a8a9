package drone

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/client/drone/yaml"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// acquireInit accepts the stage, compiles its pipeline and reports that it runs. It returns nil
// if the stage is not ours, has been cancelled, or has ended with an error.
func (r *run) acquireInit(ctx context.Context) (*task.Task, error) {
	r.accepting.Lock()
	defer r.accepting.Unlock()
	defer r.decide.Do(func() { close(r.decided) })
	if err := r.awaitLoaded(ctx); err != nil {
		return nil, err
	}
	r.mu.Lock()
	due, opened := r.phase == phaseInit, r.progress.Created
	r.mu.Unlock()
	if !due {
		return nil, nil
	}
	if !opened {
		if err := r.open(ctx); err != nil {
			return nil, r.notOpened(ctx, err)
		}
	}
	r.c.goLoop(func(ctx context.Context) { r.watch(ctx) })
	if s := r.cloneStep(); s != nil {
		if err := r.reportRunning(ctx, s); undelivered(ctx, err) {
			return nil, err
		}
	}
	r.mu.Lock()
	if r.killed {
		r.phase = phaseCleanup
		r.mu.Unlock()
		r.c.news()
		return nil, nil
	}
	defer r.mu.Unlock()
	r.initRuns = true
	return r.task(partInit, task.TypeLocalInit, &r.plan.Init)
}

// errNotOurs: another runner has the stage.
var errNotOurs = errors.New("another runner has the stage")

// open accepts the stage and creates its steps.
func (r *run) open(ctx context.Context) error {
	if r.details == nil {
		r.save() // so that a process that starts after this one knows that the stage may be ours
		if err := r.accept(ctx); err != nil {
			return err
		}
		r.decide.Do(func() { close(r.decided) })
	}
	d, err := r.c.fetch(ctx, r.id)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.progress.Accepted, r.progress.Started = true, unix()
	r.mu.Unlock()
	if err := r.load(ctx, d); err != nil {
		return err
	}
	r.save()
	if d.cancelled() {
		return errCancelled
	}
	err = r.create(ctx)
	r.save()
	return err
}

// notOpened ends a stage that could not be opened.
func (r *run) notOpened(ctx context.Context, err error) error {
	r.mu.Lock()
	accepted := r.progress.Accepted
	r.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return err // the next process continues
	case !accepted:
		r.over()
		if errors.Is(err, errNotOurs) {
			return nil
		}
		return err
	case errors.Is(err, errCancelled):
		r.cancel()
	default:
		r.mu.Lock()
		if r.record == nil {
			r.record = record{}.with(map[string]any{"id": r.id})
		}
		r.problem = err.Error()
		r.mu.Unlock()
	}
	return r.endStage(ctx)
}

// accept takes the stage.
func (r *run) accept(ctx context.Context) error {
	p, unsure := newPause(), r.maybeOurs
	for refused := 0; ; {
		status, err := r.c.attempt(ctx, request{
			method: http.MethodPost, path: stagePath(r.id), query: url.Values{"machine": {r.c.cfg.Name}},
		}, nil)
		switch {
		case err == nil && status != http.StatusNoContent:
			return nil
		case errors.Is(err, client.ErrConflict) && !unsure:
			return errNotOurs
		case errors.Is(err, client.ErrConflict): // an earlier attempt may have taken it
			d, err := r.c.fetch(ctx, r.id)
			if err == nil && !r.ours(d) {
				err = errNotOurs
			}
			return err
		case err != nil && !temporary(err):
			return err
		case status == http.StatusInternalServerError:
			if refused++; refused >= serverErrors {
				return err
			}
		}
		unsure = true
		if !p.wait(ctx, err) {
			return errors.Join(err, ctx.Err())
		}
	}
}

// ours reports whether this runner has accepted the stage and not ended it.
func (r *run) ours(d *details) bool {
	return d.Stage.text("machine") == r.c.cfg.Name && !ended(d.Stage.text("status"))
}

// load compiles the pipeline of the stage. Its error is for the user.
func (r *run) load(ctx context.Context, d *details) error {
	ctx, cancel := context.WithTimeout(ctx, pluginTimeout)
	defer cancel()
	in, hidden := r.c.input(d)
	err := r.c.admit(d)
	if err == nil {
		var more []string
		more, err = r.c.consult(ctx, d, &in)
		hidden = append(hidden, more...)
	}
	var plan *yaml.Plan
	if err == nil {
		plan, err = r.c.cfg.Compile(d.Config.Data, d.Stage.text("name"), in)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.details, r.record = d, d.Stage
	if err != nil {
		return fmt.Errorf("the pipeline cannot run: %w", err)
	}
	r.plan = plan
	r.steps = nil
	for i := range plan.Steps {
		p := &plan.Steps[i]
		if p.Skipped {
			continue
		}
		s := &step{plan: p}
		s.record = r.newStep(s)
		r.steps = append(r.steps, s)
	}
	r.address(hidden)
	return nil
}

// admit returns an error if the settings of the runner exclude the build.
func (c *Client) admit(d *details) error {
	slug, event := d.Repo.text("slug"), d.Build.text("event")
	switch {
	case c.cfg.TrustedOnly && !d.Repo.flag("trusted"):
		return errors.New("the runner runs only builds of trusted repositories: make the repository trusted, or use another runner")
	case len(c.cfg.Events) > 0 && !slices.Contains(c.cfg.Events, event):
		return fmt.Errorf("the runner does not run builds of the event %q: use another runner", event)
	case len(c.cfg.Repositories) > 0 && !slices.ContainsFunc(c.cfg.Repositories, func(pattern string) bool {
		match, err := path.Match(pattern, slug)
		return err == nil && match
	}):
		return fmt.Errorf("the runner does not run builds of the repository %q: use another runner", slug)
	}
	return nil
}

// address gives the payloads the ids of the transaction and the logs. The caller holds mu.
func (r *run) address(hidden []string) {
	logs := &stage.LogConfig{URL: r.c.logURL(), AccountID: "drone"}
	init := &r.plan.Init
	init.GroupID, init.Network.ID = r.key, r.key
	init.Secrets = append(init.Secrets, hidden...)
	for _, s := range r.steps {
		if s.plan.Clone {
			continue
		}
		e := &s.plan.Execute
		e.GroupID, e.ID, e.LogConfig = r.key, fmt.Sprintf("%s-%d", r.key, s.plan.Number), logs
		if e.Name == "" {
			e.Name = s.plan.Name
		}
		if e.Environment == nil {
			e.Environment = map[string]string{}
		}
	}
}

// task returns a task of the stage. Its data comes from the users of the server, who must not
// read the secrets of the delegate. The caller holds mu.
func (r *run) task(part, kind string, data any) (*task.Task, error) {
	b, err := json.Marshal(data)
	if err != nil {
		return nil, fmt.Errorf("encoding a task of stage %d: %w", r.id, err)
	}
	return &task.Task{ID: r.taskID(part), Type: kind, Data: b, Literal: true}, nil
}

// cloneStep returns the step that has the result of the init, nil if the stage has none.
func (r *run) cloneStep() *step {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.steps {
		if s.plan.Clone {
			return s
		}
	}
	return nil
}

// reportRunning reports that a step runs, which creates its log at the server.
func (r *run) reportRunning(ctx context.Context, s *step) error {
	err := r.reportStep(ctx, s, map[string]any{"status": statusRunning, "started": unix()})
	if s.plan.Clone {
		r.mu.Lock()
		s.status = stepRunning
		r.plan.Init.LogConfig = &stage.LogConfig{URL: r.c.logURL(), AccountID: "drone"}
		r.plan.Init.LogKey = r.c.logKey(s.record)
		r.mu.Unlock()
	}
	return err
}

// input returns the values with which a pipeline is compiled, and the values to mask.
func (c *Client) input(d *details) (in yaml.Input, hidden []string) {
	in = yaml.Input{Variables: c.variables(d), Secrets: map[string]string{}, Trusted: d.Repo.flag("trusted"), Options: c.cfg.Options}
	// The author of a pull request from a fork could change the file so that it prints its secrets.
	fork := d.Build.text("source_repo")
	if d.Build.text("event") != "pull_request" || fork == "" || fork == d.Repo.text("slug") {
		in.SecretKey = d.Repo.text("secret")
		hidden = append(hidden, in.SecretKey)
	}
	for _, s := range d.Secrets {
		in.Secrets[s.Name] = s.Data
		hidden = append(hidden, s.Data)
	}
	if d.Netrc != nil {
		in.Netrc = yaml.Netrc{Machine: d.Netrc.Machine, Login: d.Netrc.Login, Password: d.Netrc.Password}
		hidden = append(hidden, d.Netrc.Password)
	}
	return in, hidden
}
