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

// session is one step that is followed. It has a life of its own, for it goes on
// while the step is being stopped, and for detached steps after that.
type session struct {
	c     *Client
	req   *StartStepRequest
	start any // req as the agent wants it
	key   string
	ours  bool
	out   sink
	// begins says that the step is to be started; started that it has been, before
	// answered.
	begins, started bool

	life context.Context //nolint:containedctx // a life, and not a call's
	end  context.CancelCauseFunc
	// settled is closed when the call that began it returns: from then on its
	// context counts no more.
	settled chan struct{}

	answered chan struct{}
	answer   *PollStepResponse // before answered; nil with pollErr
	pollErr  error             // before answered

	streamed chan struct{}
	cut      error // why the output ended early; before streamed
}

func newSession(c *Client, req *StartStepRequest, out io.Writer, ours bool) *session {
	s := &session{
		c: c, req: req, ours: ours, out: sink{w: out},
		settled: make(chan struct{}), answered: make(chan struct{}), streamed: make(chan struct{}),
	}
	if ours {
		s.req = forOurs(req)
		s.start = s.req
	} else {
		foreign := forOthers(req)
		s.req, s.start = &foreign.StartStepRequest, foreign
	}
	s.key = s.req.StepKey()
	return s
}

var (
	errFollowed = errors.New("the step has been followed to its end")
	errStopTime = errors.New("the agent has not stopped the step in time")
)

// begin starts the step, unless it has begun, and follows it.
func (s *session) begin(ctx context.Context, begins bool) *Follower {
	var left func()
	s.life, s.end = context.WithCancelCause(context.WithoutCancel(ctx))
	s.life, left = s.c.whileThere(s.life)
	f := &Follower{stop: s.end, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		var all sync.WaitGroup
		all.Go(func() { s.bound(ctx) })
		all.Go(func() { s.converse(begins) })
		all.Wait()
		left()
		s.end(errFollowed)
	}()
	return f
}

// bound ends the session when the step takes too long to stop.
func (s *session) bound(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-s.settled:
		return
	case <-s.life.Done():
		return
	}
	limit := time.NewTimer(s.c.stopLimit)
	defer limit.Stop()
	select {
	case <-limit.C:
		s.end(errStopTime)
	case <-s.settled:
	case <-s.life.Done():
	}
}

func (s *session) converse(begins bool) {
	s.begins = begins
	if begins {
		if s.pollErr = s.post("/start_step", s.start, &struct{}{}); s.pollErr != nil {
			close(s.streamed)
			close(s.answered)
			return
		}
	}
	s.started = true
	var reader sync.WaitGroup
	reader.Go(s.stream)
	s.poll()
	close(s.answered)
	reader.Wait()
}

func (s *session) post(path string, in, out any) error { return s.c.post(s.life, path, in, out) }

// reported is a step whose end the agent tells the manager by itself: it never answers
// a poll.
func (s *session) reported() bool { return !s.ours && s.req.StageRuntimeID != "" }

// poll waits for the step's end, or for a detached one's beginning.
func (s *session) poll() {
	if s.reported() {
		s.answer = &PollStepResponse{}
		return
	}
	answer := &PollStepResponse{}
	s.pollErr = s.post("/poll_step", StepID{ID: s.key, Ours: s.ours}, answer)
	if s.pollErr == nil {
		s.answer = answer
	}
}

// stream copies the output, from where it was cut off.
func (s *session) stream() {
	defer close(s.streamed)
	if !s.ours && !s.req.LogDrone {
		if !s.reported() {
			s.out.note("(the output of a step that hands something on goes to the log service of this agent, and is not shown here)")
		}
		return
	}
	for wait := newBackoff(); ; {
		n, err := s.read()
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
		if wait.sleep(s.life) != nil {
			s.cut = context.Cause(s.life)
			return
		}
	}
}

// read copies output until the agent says that there is no more, or the connection
// is cut, which is an error.
func (s *session) read() (int64, error) {
	body, err := json.Marshal(StreamRequest{ID: s.key, Offset: s.out.count()})
	if err != nil {
		return 0, err
	}
	resp, err := s.c.do(s.life, http.MethodPost, "/stream_output", body)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	return io.Copy(&s.out, resp.Body)
}

// stop asks for the step's end. Where nobody can stop it, the session ends alone.
func (s *session) stop(ctx context.Context) {
	if !s.ours {
		s.end(context.Cause(ctx))
		return
	}
	if err := s.post("/stop_step", StopRequest{ID: s.key, Cause: context.Cause(ctx).Error()}, &struct{}{}); err != nil {
		s.end(err)
	}
}

// restOfOutput is how long another agent's output is waited for after its step has
// ended: its stream may not.
const restOfOutput = 10 * time.Second

// awaitOutput returns when all of the output of an ended step has been written.
func (s *session) awaitOutput() error {
	if s.ours {
		<-s.streamed
		if s.out.count() < s.answer.Length {
			return fmt.Errorf("%w: only %d of %d bytes of its output have come: %w", driver.ErrLost, s.out.count(), s.answer.Length, s.cut)
		}
		return nil
	}
	limit := time.NewTimer(restOfOutput)
	defer limit.Stop()
	select {
	case <-s.streamed:
	case <-limit.C:
		s.end(fmt.Errorf("it has not ended %v after the step", restOfOutput))
		<-s.streamed
	}
	if s.cut != nil {
		s.out.note(fmt.Sprintf("(the rest of the step's output could not be read from the agent: %v)", s.cut))
	}
	return nil
}

// sink counts what is written, and writes no more after an error: a step is not held
// up by who reads it.
type sink struct {
	mu sync.Mutex
	w  io.Writer // nil when no more is wanted; guarded by mu
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

// note tells people about the output, on a line of its own.
func (o *sink) note(text string) { _, _ = o.Write([]byte("\n" + text + "\n")) }

func (o *sink) count() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.n
}
