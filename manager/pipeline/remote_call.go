package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/delegate-io/dlite/manager"
)

const (
	// attemptTimeout bounds a call at one address.
	attemptTimeout = 10 * time.Second
	// maxAnswer bounds the answer of a manager, in bytes.
	maxAnswer = 128 << 20
	// tokenTTL is the lifetime of a token. A token is replaced after half of it.
	tokenTTL = 20 * time.Minute
)

type accountToken struct {
	text  string
	until time.Time
}

// errStale means that a manager has not applied the newest event yet.
var errStale = errors.New("the manager has not applied the newest event yet")

// remoteError is an error of a manager. Its kind is an error of package manager, or nil.
type remoteError struct {
	status  int
	message string
	kind    error
}

func (e *remoteError) Error() string { return e.message }
func (e *remoteError) Unwrap() error { return e.kind }

// call makes a call at the address that answered last, and then at the others. A call that fails everywhere fails
// with [manager.ErrUnavailable]. All calls may be repeated: stages and steps have ids.
func (r *Remote) call(ctx context.Context, account, method, path string, body, into any) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return fmt.Errorf("%w: encoding the call: %w", manager.ErrInvalid, err)
		}
	}
	var errs []error
	for range r.urls {
		i, base := r.address()
		err := r.attempt(ctx, base, account, method, path, text, into)
		var refused *remoteError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%w: %w", manager.ErrUnavailable, err)
		case errors.As(err, &refused) && refused.status < http.StatusInternalServerError:
			return err
		}
		r.fail(i)
		errs = append(errs, fmt.Errorf("%s: %w", base, err))
	}
	return fmt.Errorf("%w: %w", manager.ErrUnavailable, errors.Join(errs...))
}

// address returns the address to use, with its index.
func (r *Remote) address() (int, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current, r.urls[r.current]
}

// fail makes the address after a failed one the current one, unless another call has done so.
func (r *Remote) fail(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current == i {
		r.current = (i + 1) % len(r.urls)
	}
}

func (r *Remote) attempt(ctx context.Context, base, account, method, path string, body []byte, into any) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	feed := r.feeds[account]
	newest := feed.newestEvent()
	resp, err := r.send(ctx, base, account, method, path, nil, body)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("reading the answer: %w", err)
	case len(answer) > maxAnswer:
		return fmt.Errorf("the answer is larger than %d MiB", maxAnswer>>20)
	}
	if text := resp.Header.Get(manager.LastEventHeader); text != "" {
		applied, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return fmt.Errorf("the header %s is %q and not the id of an event", manager.LastEventHeader, text)
		}
		if method == http.MethodGet && applied < newest {
			return errStale
		}
		feed.compare(applied, time.Now())
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return errorOf(resp.StatusCode, answer)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("the answer is not from a manager: %w", err)
	}
	return nil
}

// send sends a request with the token of an account.
func (r *Remote) send(ctx context.Context, base, account, method, path string, query url.Values, body []byte) (*http.Response, error) {
	text, err := r.token(account)
	if err != nil {
		return nil, err
	}
	if query == nil {
		query = url.Values{}
	}
	query.Set("accountId", account)
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	req, err := http.NewRequestWithContext(ctx, method, base+path+separator+query.Encode(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+text)
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := r.client.Do(req)
	var u *url.Error
	if errors.As(err, &u) { // the caller names the address
		err = u.Err
	}
	return resp, err
}

// token returns a token of an account that is valid for a while.
func (r *Remote) token(account string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if t := r.tokens[account]; now.Before(t.until) {
		return t.text, nil
	}
	text, err := r.secrets[account].Issue(account, now, tokenTTL)
	if err != nil {
		return "", err
	}
	r.tokens[account] = accountToken{text, now.Add(tokenTTL / 2)}
	return text, nil
}

// errorOf returns the error of an answer. A proxy between this process and the manager may answer 404 while no manager
// is there. Such an answer must not look like a lost stage, so the message has to be one of a manager.
func errorOf(status int, answer []byte) error {
	var text struct {
		Message string `json:"error_msg"`
	}
	ours := json.Unmarshal(answer, &text) == nil && text.Message != ""
	if !ours {
		return fmt.Errorf("the status %d did not come from a manager: check the address and proxies", status)
	}
	e := &remoteError{status: status, message: text.Message}
	switch {
	case status == http.StatusBadRequest, status == http.StatusRequestEntityTooLarge:
		e.kind = manager.ErrInvalid
	case status == http.StatusTooManyRequests:
		e.kind = manager.ErrBudget
	case status == http.StatusNotFound && strings.Contains(text.Message, manager.ErrNotFound.Error()):
		e.kind = manager.ErrNotFound
	case status == http.StatusConflict && strings.Contains(text.Message, manager.ErrNotOpen.Error()):
		e.kind = manager.ErrNotOpen
	case status == http.StatusConflict:
		e.kind = manager.ErrConflict
	case status == http.StatusServiceUnavailable:
		e.kind = manager.ErrUnavailable
	}
	return e
}
