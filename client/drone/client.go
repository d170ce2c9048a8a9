package drone

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/task"
)

var _ client.Client = (*Client)(nil)

// Client is a [client.Client] on a Drone server. Make it with [New]. It is safe for concurrent
// use. Register starts goroutines, which Unregister ends.
type Client struct {
	cfg    Config
	http   *http.Client
	prefix string // of the ids of tasks and transactions
	store  store
	minute time.Duration // unit of the time-outs of repositories
	// watchEvery is the constant, or a shorter time of a test.
	watchEvery time.Duration

	mu       sync.Mutex
	stages   map[int64]*run // offered and open
	changes  int64          // counts the changes of the list of tasks
	changed  chan struct{}  // closed at the next change, then replaced
	refused  error          // the server refuses the secret
	draining bool
	restored bool
	queued   time.Time // when the client last queued for a slot without a stage in sight
	session  *session  // nil unless registered
}

// session is the time between Register and Unregister.
type session struct {
	ctx    context.Context //nolint:containedctx // the session is its owner
	cancel context.CancelFunc
	loops  sync.WaitGroup
}

// New returns a client. It does not connect. Its errors contain no secret.
func New(cfg Config) (*Client, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	hc := *cfg.HTTPClient
	hc.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	sum := sha256.Sum256([]byte(cfg.Endpoint))
	prefix := "drone-" + hex.EncodeToString(sum[:3]) + "-"
	return &Client{
		cfg: cfg, http: &hc, prefix: prefix, store: store{dir: cfg.Dir, prefix: prefix}, minute: time.Minute, watchEvery: watchEvery,
		stages: map[int64]*run{}, changed: make(chan struct{}),
	}, nil
}

// Register checks that the server accepts the secret, continues with the stages of an earlier
// process, and begins to ask for stages. The id is the name of the machine.
func (c *Client) Register(ctx context.Context, r *client.Registration) (*client.Delegate, error) {
	if _, err := c.call(ctx, request{method: http.MethodPost, path: "/rpc/v2/ping"}, nil); err != nil {
		return nil, err
	}
	if err := c.begin(ctx, r.Draining); err != nil {
		return nil, err
	}
	return &client.Delegate{ID: c.cfg.Name, Name: r.DelegateName}, nil
}

// begin starts the session unless it runs.
func (c *Client) begin(ctx context.Context, draining bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused, c.draining = nil, draining
	if c.session != nil {
		return nil
	}
	s := &session{}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if !c.restored {
		all, err := c.store.all()
		if err != nil {
			s.cancel()
			return fmt.Errorf("drone: the state directory: %w", err)
		}
		for _, p := range all {
			r := c.newRun(p.Stage)
			r.progress, r.resumed = p, true
			c.stages[p.Stage] = r
		}
		c.store.dropLogs(all)
		c.restored = true
	}
	c.session = s
	for _, r := range c.stages {
		if r.resumed {
			s.loops.Go(func() { c.restore(s.ctx, r) })
		}
	}
	for _, kind := range c.cfg.Types {
		s.loops.Go(func() { c.requests(s.ctx, kind) })
	}
	return nil
}

// Heartbeat checks that the server can be reached and accepts the secret.
func (c *Client) Heartbeat(ctx context.Context, r *client.Registration) error {
	c.mu.Lock()
	if c.draining != r.Draining {
		c.draining = r.Draining
		c.notify()
	}
	c.mu.Unlock()
	return c.ping(ctx)
}

// Unregister stops asking for stages and waits for all goroutines of the client.
func (c *Client) Unregister(context.Context, *client.Unregistration) error {
	c.mu.Lock()
	s := c.session
	c.session = nil
	c.mu.Unlock()
	if s != nil {
		s.cancel()
		s.loops.Wait()
	}
	c.http.CloseIdleConnections()
	return nil
}

// ReportCapacity does nothing: the client asks for a stage only while a slot is free.
func (c *Client) ReportCapacity(context.Context, string, int) error { return nil }

// Poll returns the tasks of the open stages, and an init for each stage that the server offers.
func (c *Client) Poll(ctx context.Context, _ string, q client.PollQuery) (*client.Pending, error) {
	wait := time.NewTimer(q.Wait)
	defer wait.Stop()
	for {
		c.mu.Lock()
		now, changed, refused := strconv.FormatInt(c.changes, 10), c.changed, c.refused
		var p *client.Pending
		if now != q.Since || q.Since == "" {
			p = c.pending()
			p.Held, p.Cursor = true, now
		}
		c.mu.Unlock()
		switch {
		case refused != nil:
			return nil, refused
		case p != nil && (q.Since != "" || len(p.Events) > 0 || q.Wait <= 0):
			return p, nil
		}
		select {
		case <-changed:
		case <-wait.C:
			c.mu.Lock()
			defer c.mu.Unlock()
			p := c.pending()
			p.Held, p.Cursor = true, now
			return p, nil
		case <-ctx.Done():
			return nil, &client.Error{Method: "POST", Path: "/rpc/v2/stage", Err: ctx.Err()}
		}
	}
}

// pending lists the tasks of all stages. The caller holds mu.
func (c *Client) pending() *client.Pending {
	p := &client.Pending{}
	for _, r := range c.stages {
		events, aborted := r.list()
		p.Events, p.Aborted = append(p.Events, events...), append(p.Aborted, aborted...)
	}
	return p
}

// notify ends the waits of polls. The caller holds mu.
func (c *Client) notify() {
	c.changes++
	close(c.changed)
	c.changed = make(chan struct{})
}

// news is notify for a caller that does not hold mu.
func (c *Client) news() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notify()
}

// Acquire takes a task. For an init it accepts the stage, for a step it reports that the step
// runs.
func (c *Client) Acquire(ctx context.Context, _ string, e task.Event) (*task.Task, error) {
	id, part, ok := c.parse(e.TaskID)
	if !ok {
		return nil, nil
	}
	c.mu.Lock()
	r := c.stages[id]
	if r == nil && part == partInit { // of an earlier process that did not get to accept the stage
		r = c.newRun(id)
		r.maybeOurs = true
		c.stages[id] = r
	}
	c.mu.Unlock()
	if r == nil {
		return nil, nil
	}
	switch part {
	case partInit:
		return r.acquireInit(ctx)
	case partCleanup:
		return r.acquireCleanup(ctx)
	default:
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, nil //nolint:nilerr // no task of this client
		}
		return r.acquireStep(ctx, n)
	}
}

// Respond takes the answer to a task, reports it to the server, and releases the tasks that
// waited for it.
func (c *Client) Respond(ctx context.Context, _ string, t *task.Task, resp *task.Response) error {
	id, part, ok := c.parse(t.ID)
	if !ok {
		return &client.Error{Method: "PUT", Path: "/rpc/v2/stage", Status: http.StatusNotFound, Message: "no task of this client"}
	}
	c.mu.Lock()
	r := c.stages[id]
	c.mu.Unlock()
	if r == nil {
		return &client.Error{Method: "PUT", Path: stagePath(id), Status: http.StatusGone, Message: "the stage has ended"}
	}
	switch part {
	case partInit:
		return r.answerInit(ctx, resp)
	case partCleanup:
		return r.answerCleanup(ctx, resp)
	default:
		n, err := strconv.Atoi(part)
		if err != nil {
			return &client.Error{Method: "PUT", Path: stepPath(0), Status: http.StatusNotFound, Message: "no task of this client"}
		}
		return r.answerStep(ctx, n, resp)
	}
}

// The parts of a stage, as the ids of tasks name them. The part of a step is its number.
const (
	partInit    = "init"
	partCleanup = "cleanup"
)

// parse returns the stage and the part that the id of a task names.
func (c *Client) parse(taskID string) (stage int64, part string, ok bool) {
	rest, ok := strings.CutPrefix(taskID, c.prefix)
	if !ok {
		return 0, "", false
	}
	id, part, ok := strings.Cut(rest, "/")
	if !ok {
		return 0, "", false
	}
	stage, err := strconv.ParseInt(id, 10, 64)
	return stage, part, err == nil
}

// remove forgets a stage that has ended.
func (c *Client) remove(r *run) {
	r.mu.Lock()
	var steps []int64
	if r.resumed {
		for _, s := range r.steps {
			steps = append(steps, s.record.number("id"))
		}
	}
	r.mu.Unlock()
	c.store.remove(r.id, steps)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stages[r.id] == r {
		delete(c.stages, r.id)
	}
	c.notify()
}

// isRefused reports whether the server refuses the secret.
func isRefused(err error) bool { return errors.Is(err, client.ErrUnauthorized) }
