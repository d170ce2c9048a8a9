package queuelog

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/delegate-io/dlite/internal/logheader"
	"github.com/delegate-io/dlite/internal/retryafter"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/task/stage"
)

// job contains the requests for a stage at one time.
type job struct {
	log    *stage.LogConfig
	key    string
	writer string
	lines  []logger.Line
	closes bool
}

func newName() string { return "queue-" + rand.Text()[:10] }

func newClient(given *http.Client) (client http.Client, own bool) {
	if given != nil {
		client = *given
	} else {
		own = true
		client.Transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: senders,
			TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second,
		}
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return client, own
}

// refusal is an answer without success.
type refusal struct {
	op     string
	status int
	after  time.Duration // delay that the service asks for, if any
	final  bool          // another attempt would fail in the same way
}

func (r *refusal) Error() string { return fmt.Sprintf("%s: status %d", r.op, r.status) }

// do sends a job. A failed job can be sent again.
func (w *Writer) do(ctx context.Context, j *job) error {
	if len(j.lines) > 0 {
		body, err := json.Marshal(j.lines)
		if err != nil {
			return &refusal{op: "encoding", final: true} // text and numbers always encode
		}
		err = w.call(ctx, j, http.MethodPut, "", body)
		if r := (*refusal)(nil); errors.As(err, &r) && r.status == http.StatusNotFound {
			// This service requires an open stream.
			if err = w.call(ctx, j, http.MethodPost, "", nil); err == nil {
				err = w.call(ctx, j, http.MethodPut, "", body)
			}
		}
		if err != nil {
			return err
		}
	}
	if !j.closes {
		return nil
	}
	err := w.call(ctx, j, http.MethodDelete, "&snapshot=true", nil)
	if r := (*refusal)(nil); errors.As(err, &r) && r.status == http.StatusNotFound {
		return nil // already closed and removed
	}
	return err
}

func (w *Writer) call(ctx context.Context, j *job, method, extra string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	op := method + " /stream"
	query := url.Values{"accountID": {j.log.AccountID}, "key": {j.key}}.Encode()
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(j.log.URL, "/")+"/stream?"+query+extra, bytes.NewReader(body))
	if err != nil {
		return &refusal{op: op, final: true} // the error would contain the URL
	}
	req.Header.Set(logheader.Token, j.log.Token)
	req.Header.Set(logheader.Writer, j.writer)
	resp, err := w.client.Do(req)
	if err != nil {
		if ue := (*url.Error)(nil); errors.As(err, &ue) {
			err = ue.Err // without the URL
		}
		return fmt.Errorf("%s: %w", op, err)
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	if resp.StatusCode >= 200 && resp.StatusCode <= 299 {
		return nil
	}
	r := &refusal{op: op, status: resp.StatusCode}
	switch {
	case r.status == http.StatusRequestTimeout, r.status == http.StatusTooManyRequests:
	case r.status == http.StatusNotImplemented, r.status < 500:
		r.final = true
	}
	r.after = retryafter.Parse(resp.Header, time.Now())
	return r
}
