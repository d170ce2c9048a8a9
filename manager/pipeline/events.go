package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// Changes returns the changes of a run since a version; 0 returns everything. It waits for a
// change until ctx ends. It fails with [ErrNotFound].
func (s *Service) Changes(ctx context.Context, account, id string, since int64) (api.RunChange, error) {
	head, err := s.await(ctx, account, id, func(run *store.Run) bool { return run.Version > since })
	if err != nil {
		return api.RunChange{}, err
	}
	return s.changesOf(ctx, head, since)
}

// await returns a run, without its nodes, as soon as it is as wanted.
func (s *Service) await(ctx context.Context, account, id string, wanted func(*store.Run) bool) (*store.Run, error) {
	changes, stop := s.watch(runKey{account, id})
	defer stop()
	head, err := s.head(ctx, account, id)
	for err == nil && !wanted(head) {
		latest, changed := changes()
		if latest != nil && latest.Version > head.Version {
			head = latest
			continue
		}
		var timeout bool
		if timeout, err = waitFor(ctx, changed); timeout {
			head, err = s.head(ctx, account, id)
		}
	}
	return head, err
}

// waitFor waits for a change by this process. It reports a time-out after the time in which another process may have
// made one.
func waitFor(ctx context.Context, changed <-chan struct{}) (timeout bool, err error) {
	timer := time.NewTimer(poll)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-changed:
		return false, nil
	case <-timer.C:
		return true, nil
	}
}

func (s *Service) changesOf(ctx context.Context, head *store.Run, since int64) (api.RunChange, error) {
	rows, err := s.store.Changes(ctx, head.Account, head.ID, since)
	if err != nil {
		return api.RunChange{}, err
	}
	c := api.RunChange{Run: summary(head), Nodes: make([]api.Node, 0, len(rows))}
	for _, row := range rows {
		n, err := decodeNode(head.ID, row)
		if err != nil {
			return api.RunChange{}, err
		}
		c.Nodes = append(c.Nodes, nodeOf(head.ID, n))
	}
	return c, nil
}

// heartbeat is the time after which an idle stream gets a comment, so that both ends notice a
// dead connection.
const heartbeat = 15 * time.Second

// events streams the changes of a run until it has ended.
func (a *handlers) events(w http.ResponseWriter, r *http.Request) {
	if !knownParameters(w, r, "since") {
		return
	}
	text := r.URL.Query().Get("since")
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		text = last
	}
	var since int64
	if text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			writeStatus(w, http.StatusBadRequest, "since is not a version of a run: "+strconv.Quote(text), nil)
			return
		}
		since = n
	}
	account, id := a.account(r), chi.URLParam(r, "id")
	head, err := a.service.head(r.Context(), account, id)
	if err != nil {
		answer(w, 0, nil, err)
		return
	}
	if !head.Ended.IsZero() && head.Version <= since {
		w.WriteHeader(http.StatusNoContent) // a browser then does not connect again
		return
	}
	stream := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	for {
		ctx, cancel := context.WithTimeout(r.Context(), heartbeat)
		change, err := a.service.Changes(ctx, account, id, since)
		cancel()
		switch {
		case r.Context().Err() != nil:
			return
		case errors.Is(err, context.DeadlineExceeded):
			err = writeEvent(w, stream, ": idle\n\n")
		case err != nil:
			return // the client reconnects and gets the error
		default:
			since = change.Run.Version
			err = writeChange(w, stream, change)
		}
		if err != nil || !change.Run.EndedAt.IsZero() {
			return
		}
	}
}

func writeChange(w http.ResponseWriter, stream *http.ResponseController, change api.RunChange) error {
	b, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encoding a change: %w", err)
	}
	return writeEvent(w, stream, fmt.Sprintf("id: %d\ndata: %s\n\n", change.Run.Version, b))
}

// writeEvent writes a part of a stream. A client that does not read loses the connection.
func writeEvent(w http.ResponseWriter, stream *http.ResponseController, text string) error {
	_ = stream.SetWriteDeadline(time.Now().Add(heartbeat)) // a recorder has none
	if _, err := w.Write([]byte(text)); err != nil {
		return err
	}
	return stream.Flush()
}
