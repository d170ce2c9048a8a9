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
	"sync"
	"time"

	"github.com/delegate-io/dlite/internal/token"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
)

const (
	// attemptTimeout bounds a call at one address.
	attemptTimeout = 10 * time.Second
	// readTimeout bounds a read of the state, with its repetitions.
	readTimeout = 15 * time.Second
	// staleWait is the time between two reads while the managers have not applied an event that another one has
	// reported.
	staleWait = 20 * time.Millisecond
	// tokenTTL is the lifetime of a token. A token is replaced after half of it.
	tokenTTL = 20 * time.Minute
)

// call makes a call for an account. A call that fails at all addresses fails with [manager.ErrUnavailable]. All calls
// may be repeated: stages and steps have ids.
func call[T any](ctx context.Context, r *Remote, account string, do func(context.Context, *api.Client) (T, error)) (out T, err error) {
	a := r.accounts[account]
	if a == nil {
		return out, fmt.Errorf("%w: the settings have no account %q", manager.ErrUnavailable, account)
	}
	out, err = do(ctx, a.client)
	return out, managerError(err)
}

// read reads a state. Of several managers one may not have applied the latest events yet, so a state that is older
// than the newest event of the stream is read again.
func read[T any](ctx context.Context, r *Remote, account string, do func(context.Context, *api.Client) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	for {
		out, err := call(ctx, r, account, do)
		if !errors.Is(err, errStale) {
			return out, err
		}
		select {
		case <-ctx.Done():
			return out, err
		case <-time.After(staleWait):
		}
	}
}

// managerError makes an error of a call one of package manager. An answer that is not one of a manager, such as the 404
// of a proxy, must not look like a lost stage: it is an outage.
func managerError(err error) error {
	var unencodable *json.MarshalerError
	var refused *api.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unencodable):
		return fmt.Errorf("%w: %w", manager.ErrInvalid, err)
	case !errors.As(err, &refused), refused.Foreign, refused.Status >= http.StatusInternalServerError:
		return fmt.Errorf("%w: %w", manager.ErrUnavailable, err)
	}
	if kind := sentinelOf(refused); kind != nil {
		return &remoteError{refused, kind}
	}
	return err
}

// sentinelOf returns the error of package manager that a refusal stands for, or nil.
func sentinelOf(refused *api.Error) error {
	says := func(kind error) bool { return strings.Contains(refused.Message, kind.Error()) }
	switch {
	case refused.Status == http.StatusBadRequest, refused.Status == http.StatusRequestEntityTooLarge:
		return manager.ErrInvalid
	case refused.Status == http.StatusTooManyRequests:
		return manager.ErrBudget
	case refused.Status == http.StatusNotFound && says(manager.ErrNotFound):
		return manager.ErrNotFound
	case refused.Status == http.StatusConflict && says(manager.ErrNotOpen):
		return manager.ErrNotOpen
	case refused.Status == http.StatusConflict:
		return manager.ErrConflict
	}
	return nil
}

// remoteError is a refusal of a manager with its kind, whose text the message has already.
type remoteError struct {
	refused *api.Error
	kind    error
}

func (e *remoteError) Error() string   { return e.refused.Message }
func (e *remoteError) Unwrap() []error { return []error{e.refused, e.kind} }

// errStale means that a manager has not applied the newest event yet.
var errStale = errors.New("the manager has not applied the newest event yet")

// freshReads refuses answers to reads that are older than the newest event of a feed, and tells the feed what newest
// events the managers have.
type freshReads struct {
	next http.RoundTripper
	feed *remoteFeed
}

func (f *freshReads) RoundTrip(req *http.Request) (*http.Response, error) {
	newest := f.feed.newestEvent()
	resp, err := f.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	text := resp.Header.Get(manager.LastEventHeader)
	if text == "" || strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return resp, nil
	}
	applied, err := strconv.ParseUint(text, 10, 64)
	switch {
	case err != nil:
		err = fmt.Errorf("the header %s is %q and not the id of an event", manager.LastEventHeader, text)
	case req.Method == http.MethodGet && applied < newest:
		err = errStale
	default:
		f.feed.compare(applied, time.Now())
		return resp, nil
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20)) // so that the connection stays
	_ = resp.Body.Close()
	return nil, err
}

// remoteToken issues tokens of an account.
type remoteToken struct {
	account string
	secret  token.Secret

	mu    sync.Mutex
	text  string
	until time.Time
}

// get returns a token that is valid for a while.
func (t *remoteToken) get(context.Context) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if now.Before(t.until) {
		return t.text, nil
	}
	text, err := t.secret.Issue(t.account, now, tokenTTL)
	if err != nil {
		return "", err
	}
	t.text, t.until = text, now.Add(tokenTTL/2)
	return text, nil
}
