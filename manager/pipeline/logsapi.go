package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"
)

// logs streams the logs of a run until it has ended.
func (a *handlers) logs(w http.ResponseWriter, r *http.Request) {
	if !knownParameters(w, r, "since", "format") {
		return
	}
	since, format := r.URL.Query().Get("since"), r.URL.Query().Get("format")
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		since = last
	}
	cursor, err := parseCursor(since)
	switch {
	case err != nil:
		writeStatus(w, http.StatusBadRequest, "since is "+strconv.Quote(clip(since, 64))+": "+err.Error(), nil)
		return
	case format != "" && format != "sse" && format != "text":
		writeStatus(w, http.StatusBadRequest, "format is "+strconv.Quote(clip(format, 64))+": use sse or text", nil)
		return
	case a.service.cfg.Logs == nil:
		writeStatus(w, http.StatusNotFound, "this pipeline service has no logs: set Logs of pipeline.Config to the log service of the manager", nil)
		return
	}
	account, id := a.account(r), chi.URLParam(r, "id")
	release, err := a.service.acquireLogStream(account)
	if err != nil {
		answer(w, 0, nil, err)
		return
	}
	defer release()
	f, err := a.service.openLogs(r.Context(), account, id, cursor)
	if err != nil {
		answer(w, 0, nil, err)
		return
	}
	defer f.close()
	if since != "" && f.empty() {
		w.WriteHeader(http.StatusNoContent) // a browser then does not connect again
		return
	}
	out := logWriter{w: w, stream: http.NewResponseController(w), text: format == "text"}
	if err := out.copy(r.Context(), f); err != nil && out.text {
		panic(http.ErrAbortHandler) // the client sees that the text is not complete
	}
}

// acquireLogStream counts a stream of logs. It fails with [ErrBudget].
func (s *Service) acquireLogStream(account string) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.logStreams[account] >= mostLogStreams {
		return nil, fmt.Errorf("%w: the account reads the logs of %d runs at the same time, which is the most", ErrBudget, mostLogStreams)
	}
	s.logStreams[account]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.logStreams[account]--; s.logStreams[account] == 0 {
			delete(s.logStreams, account)
		}
	}, nil
}

// logWriter writes the logs of a run as events or as text.
type logWriter struct {
	w      http.ResponseWriter
	stream *http.ResponseController
	text   bool
}

// copy writes all logs. An error means that the answer is not complete.
func (o *logWriter) copy(ctx context.Context, f *logFollower) error {
	h := o.w.Header()
	h.Set("Content-Type", "text/event-stream")
	if o.text {
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("X-Content-Type-Options", "nosniff")
	}
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // prevents buffering in proxies
	_ = o.stream.Flush()             // the client sees that it is connected
	for {
		waiting, cancel := context.WithTimeout(ctx, heartbeat)
		part, id, err := f.next(waiting)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			err = o.idle()
		case errors.Is(err, io.EOF):
			return o.end(ctx, f)
		case err == nil:
			err = o.part(&part, id)
		}
		if err != nil {
			return err
		}
	}
}

func (o *logWriter) idle() error {
	if o.text {
		return nil
	}
	return writeEvent(o.w, o.stream, ": idle\n\n")
}

func (o *logWriter) part(part *logPart, id string) error {
	if !o.text {
		b, err := json.Marshal(part)
		if err != nil {
			return fmt.Errorf("encoding lines: %w", err)
		}
		return writeEvent(o.w, o.stream, fmt.Sprintf("id: %s\ndata: %s\n\n", id, b))
	}
	var b strings.Builder
	label := logLabel(part.Node)
	for _, l := range part.Lines {
		for line := range strings.SplitSeq(strings.TrimRight(l.Out, "\r\n"), "\n") { // a line must not look like one of another step
			b.WriteString(label + " | " + line + "\n")
		}
	}
	return writeEvent(o.w, o.stream, b.String())
}

func (o *logWriter) end(ctx context.Context, f *logFollower) error {
	if o.text {
		return nil
	}
	head, err := f.service.head(ctx, f.key.account, f.key.id)
	if err != nil {
		return err
	}
	f.end.Status = head.Status
	b, err := json.Marshal(f.end)
	if err != nil {
		return fmt.Errorf("encoding the end: %w", err)
	}
	return writeEvent(o.w, o.stream, fmt.Sprintf("event: end\nid: %s\ndata: %s\n\n", f.place(), b))
}

// logLabel shortens the path of a node: build for a stage, and build/unit/test for a step.
func logLabel(path string) string {
	return strings.NewReplacer(".spec.execution.steps.", "/", ".steps.", "/").Replace(strings.TrimPrefix(path, "pipeline.stages."))
}
