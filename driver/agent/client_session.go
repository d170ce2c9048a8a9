package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/delegate-io/dlite/driver"
)

// session follows one step. It outlives the call's context: it continues while the agent stops the
// step, and for detached steps after that.
type session struct {
	c     *Client
	req   *StartStepRequest
	start any // request in the form that the agent expects
	key   string
	own   bool
	out   sink
	files *foreignFiles // nil unless the client reads output files of the step
	// begins reports that the session must start the step. started reports that it has; it is set
	// before answered is closed.
	begins, started bool

	lifetime context.Context //nolint:containedctx // lifetime of the session, not of a call
	end      context.CancelCauseFunc
	// returned is closed when the call returns. Its context is ignored from then on.
	returned chan struct{}

	answered chan struct{}
	answer   *pollStepResponse // set before answered is closed; nil with pollErr
	pollErr  error             // set before answered is closed

	streamed chan struct{}
	// endReading ends the reader of a foreign agent's output. It is set before answered is closed. The
	// reader may outlive the session: a closed stream of a running step can crash such an agent.
	endReading context.CancelFunc
	cut        error // why the output ended early; set before streamed is closed
}

func newSession(ctx context.Context, c *Client, req *StartStepRequest, out io.Writer, own bool) *session {
	if !own {
		foreign, files := foreignRequest(ctx, req)
		return newForeignSession(c, foreign, out, files)
	}
	s := &session{c: c, req: ownRequest(req), own: true}
	s.start = s.req
	return s.open(out)
}

func newForeignSession(c *Client, step *foreignStep, out io.Writer, files *foreignFiles) *session {
	s := &session{c: c, req: &step.StartStepRequest, start: step, files: files}
	return s.open(out)
}

func (s *session) open(out io.Writer) *session {
	s.out, s.key = sink{w: out}, s.req.stepKey()
	s.returned, s.answered, s.streamed = make(chan struct{}), make(chan struct{}), make(chan struct{})
	return s
}

var (
	errFollowed = errors.New("the step has ended and its output is complete")
	errStopTime = errors.New("the agent did not stop the step in time")
)

// begin starts the step if begins is set, and follows it.
func (s *session) begin(ctx context.Context, begins bool) *Follower {
	var left func()
	s.lifetime, s.end = context.WithCancelCause(context.WithoutCancel(ctx))
	s.lifetime, left = s.c.whileThere(s.lifetime)
	f := &Follower{stop: s.end, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		var all sync.WaitGroup
		all.Go(func() { s.limitStop(ctx) })
		all.Go(func() { s.run(begins) })
		all.Wait()
		left()
		s.end(errFollowed)
	}()
	return f
}

// limitStop ends the session if the step takes too long to stop.
func (s *session) limitStop(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-s.returned:
		return
	case <-s.lifetime.Done():
		return
	}
	limit := time.NewTimer(s.c.StopTimeout)
	defer limit.Stop()
	select {
	case <-limit.C:
		s.end(errStopTime)
	case <-s.returned:
	case <-s.lifetime.Done():
	}
}

func (s *session) run(begins bool) {
	s.begins = begins
	if begins {
		if s.pollErr = s.post("/start_step", s.start, &struct{}{}); s.pollErr != nil {
			close(s.streamed)
			close(s.answered)
			return
		}
	}
	s.started = true
	if s.own {
		var reader sync.WaitGroup
		reader.Go(func() { s.stream(s.lifetime) })
		s.poll()
		close(s.answered)
		reader.Wait()
		return
	}
	s.endReading = s.c.readers.begin(s.c, s.stream)
	s.poll()
	close(s.answered)
	select {
	case <-s.streamed:
	case <-s.lifetime.Done():
		s.out.detach() // no write after the session
	}
}

func (s *session) post(path string, in, out any) error { return s.c.post(s.lifetime, path, in, out) }

// reported reports whether the agent reports the end of the step to the manager itself. Such an
// agent never answers a poll.
func (s *session) reported() bool { return !s.own && s.req.StageRuntimeID != "" }

// poll waits for the end of the step, or until a detached step is ready.
func (s *session) poll() {
	if s.reported() {
		s.answer = &pollStepResponse{}
		return
	}
	answer := &pollStepResponse{}
	s.pollErr = s.post("/poll_step", stepID{ID: s.key, Own: s.own}, answer)
	if s.pollErr == nil {
		s.answer = answer
	}
}

// stream copies the output, and resumes it after a lost connection.
func (s *session) stream(ctx context.Context) {
	defer close(s.streamed)
	if !s.own && !s.req.LogDrone {
		if !s.reported() {
			s.out.note("(this agent sends the output of a step with outputs to its log service, so it is not shown here)")
		}
		return
	}
	for wait := newBackoff(); ; {
		n, err := s.read(ctx)
		if n > 0 {
			wait.reset()
		}
		if err == nil {
			return
		}
		if isFinal(err) {
			s.cut = err
			return
		}
		if wait.sleep(ctx) != nil {
			s.cut = context.Cause(ctx)
			return
		}
	}
}

// read copies output until the agent ends it. A lost connection is an error.
func (s *session) read(ctx context.Context) (int64, error) {
	body, err := json.Marshal(streamRequest{ID: s.key, Offset: s.out.count()})
	if err != nil {
		return 0, err
	}
	resp, err := s.c.send(ctx, http.MethodPost, "/stream_output", body)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	return io.Copy(&s.out, resp.Body)
}

// stop asks the agent to stop the step. If that fails or is impossible, only the session ends.
func (s *session) stop(ctx context.Context) {
	if !s.own {
		s.end(context.Cause(ctx))
		return
	}
	if err := s.post("/stop_step", stopRequest{ID: s.key, Cause: context.Cause(ctx).Error()}, &struct{}{}); err != nil {
		s.end(err)
	}
}

// restOfOutput limits the wait for a foreign agent's output after the step ended, because the
// stream may not end.
const restOfOutput = 10 * time.Second

// awaitOutput returns when the complete output of an ended step has been written.
func (s *session) awaitOutput() error {
	if s.own {
		<-s.streamed
		if s.out.count() < s.answer.Length {
			return fmt.Errorf("%w: received only %d of %d bytes of its output: %w", driver.ErrLost, s.out.count(), s.answer.Length, s.cut)
		}
		return nil
	}
	limit := time.NewTimer(restOfOutput)
	defer limit.Stop()
	select {
	case <-s.streamed:
	case <-limit.C:
		s.out.note(fmt.Sprintf("(the step's output did not end within %v after the step)", restOfOutput))
		s.endReading()
		<-s.streamed
		return nil
	case <-s.lifetime.Done():
		return nil
	}
	if s.cut != nil {
		s.out.note(fmt.Sprintf("(the rest of the step's output could not be read from the agent: %v)", s.cut))
	}
	return nil
}

// sink counts bytes. It stops writing after an error, so that a failed reader does not stop the
// step.
type sink struct {
	mu sync.Mutex
	w  io.Writer // nil after an error; guarded by mu
	n  int64     // guarded by mu
}

// Write implements [io.Writer].
func (o *sink) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.w != nil {
		if _, err := o.w.Write(p); err != nil {
			o.w = nil
		}
	}
	o.n += int64(len(p))
	return len(p), nil
}

// detach drops all later output.
func (o *sink) detach() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.w = nil
}

// note writes a message to the output, on its own line.
func (o *sink) note(text string) { _, _ = o.Write([]byte("\n" + text + "\n")) }

func (o *sink) count() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.n
}
