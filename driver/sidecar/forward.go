package sidecar

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/delegate-io/dlite/task"
)

// retryInterval is the time between attempts to connect to the sidecar.
const retryInterval = 100 * time.Millisecond

// forward sends a task to the sidecar and returns its answer.
func (s *Sidecar) forward(w http.ResponseWriter, r *http.Request) {
	t, err := task.Decode(r, nil)
	if err != nil {
		task.WriteError(w, err)
		return
	}
	body, err := json.Marshal(t)
	if err != nil {
		task.WriteError(w, err)
		return
	}
	a, err := s.post(r.Context(), "application/json", body)
	if err != nil {
		task.WriteError(w, err)
		return
	}
	if ct := a.header.Get("Content-Type"); ct != "" {
		w.Header().Set("Content-Type", ct)
	}
	if code := a.header.Get(task.CodeHeader); code != "" {
		w.Header().Set(task.CodeHeader, code)
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // on an error, the reader has gone
}

// deliver sends the package of a task to the sidecar, which answers the manager itself.
func (s *Sidecar) deliver(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Package []byte `json:"taskPackage"` // base64
	}
	if _, err := task.Decode(r, &in); err != nil {
		task.WriteError(w, err)
		return
	}
	if len(in.Package) == 0 {
		task.WriteBadRequest(w, errors.New("the task has no taskPackage"))
		return
	}
	a, err := s.post(r.Context(), "application/octet-stream", in.Package)
	switch {
	case a != nil && a.status >= 200 && a.status <= 299:
		// The sidecar has accepted the task, even if the rest of its answer is lost. An
		// answer of the delegate would be a second one.
		w.Header().Set(task.CodeHeader, string(task.AnsweredElsewhere))
		w.WriteHeader(http.StatusAccepted)
	case err != nil:
		task.WriteError(w, err)
	default:
		task.WriteError(w, task.Errorf(task.Failed, "the sidecar did not accept the task: status %d: %.500s", a.status, bytes.TrimSpace(a.body)))
	}
}

// answer is an answer of the sidecar.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// post sends a body once. It waits until it can connect to the sidecar.
func (s *Sidecar) post(ctx context.Context, contentType string, body []byte) (*answer, error) {
	waiting, stop := context.WithTimeout(ctx, max(s.cfg.Wait, 0))
	defer stop()
	for {
		err := s.ready(waiting)
		if err == nil {
			var a *answer
			if a, err = s.send(ctx, contentType, body); err == nil || !unreached(err) {
				return a, s.explain(ctx, err)
			}
		}
		if waiting.Err() != nil {
			if ctx.Err() != nil {
				return nil, s.explain(ctx, err)
			}
			return nil, task.Errorf(task.RetryOnOtherDelegate, "the sidecar cannot be reached: %w", err)
		}
		pause := time.NewTimer(retryInterval)
		select {
		case <-pause.C:
		case <-waiting.Done():
			pause.Stop()
		}
	}
}

// ready waits until the process is healthy, if Run manages it.
func (s *Sidecar) ready(ctx context.Context) error {
	if s.program == "" {
		return nil
	}
	return s.state.await(ctx)
}

// send sends a body. With an error it may return an incomplete answer.
func (s *Sidecar) send(ctx context.Context, contentType string, body []byte) (*answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	a := &answer{status: resp.StatusCode, header: resp.Header}
	if a.body, err = io.ReadAll(io.LimitReader(resp.Body, task.MaxBody+1)); err != nil {
		return a, err
	}
	if len(a.body) > task.MaxBody {
		return a, task.Errorf(task.Failed, "the sidecar's answer is larger than %d bytes", task.MaxBody)
	}
	return a, nil
}

// unreached reports whether the error occurred before anything was sent.
func unreached(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// explain returns the error of the task for an error of a call.
func (s *Sidecar) explain(ctx context.Context, err error) error {
	var known *task.Error
	var withURL *url.Error
	switch {
	case err == nil, errors.As(err, &known):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("stopped waiting for the sidecar: %w", context.Cause(ctx))
	case errors.As(err, &withURL):
		err = withURL.Err // the URL may contain credentials
	}
	return task.Errorf(task.Unknown, "the sidecar's answer did not arrive: %w", err)
}
