package status

import (
	"bytes"
	"cmp"
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

	"github.com/delegate-io/dlite/internal/retryafter"
	"github.com/delegate-io/dlite/internal/source"
	"github.com/delegate-io/dlite/task"
)

const (
	// callTimeout bounds the call of a provider. A request that is not over then has no effect later.
	callTimeout = 15 * time.Second
	maxAnswer   = 64 << 10
	maxPause    = time.Hour
)

// Handler returns the handler of tasks of the type git/status. It makes one request to the provider, in at most 15
// seconds, and none after the time at which the task's data expires. An answer of the provider is no failure of the task:
// the data of the response tells whether the provider accepted the status. Transport makes the request.
func Handler(transport http.RoundTripper) task.Handler {
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return task.HandlerFunc(func(ctx context.Context, req *task.Request[source.StatusRequest]) (source.StatusAnswer, error) {
		r := &req.Data
		call, err := callOf(r)
		if err != nil {
			return source.StatusAnswer{}, task.BadRequest(err)
		}
		if !time.Now().Before(r.Expires) {
			return source.StatusAnswer{Message: "the task was late: it is sent again"}, nil
		}
		ctx, cancel := context.WithDeadline(ctx, minTime(r.Expires, time.Now().Add(callTimeout)))
		defer cancel()
		return send(ctx, client, r, call)
	})
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// call is a request to a provider.
type call struct {
	address string
	body    any
	header  http.Header
}

func send(ctx context.Context, client *http.Client, r *source.StatusRequest, c *call) (source.StatusAnswer, error) {
	body, err := json.Marshal(c.body)
	if err != nil {
		return source.StatusAnswer{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.address, bytes.NewReader(body))
	if err != nil {
		return source.StatusAnswer{}, task.BadRequest(errors.New("the server is not a valid address"))
	}
	req.Header = c.header
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "dlite")
	resp, err := client.Do(req)
	if err != nil {
		var e *url.Error
		if errors.As(err, &e) {
			err = e.Err
		}
		return source.StatusAnswer{Message: fmt.Sprintf("calling %s: %s", req.URL.Host, err)}, nil
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	_ = resp.Body.Close()
	return judge(r, resp, text), nil
}

// judge interprets an answer of a provider.
func judge(r *source.StatusRequest, resp *http.Response, text []byte) source.StatusAnswer {
	host, code := resp.Request.URL.Host, resp.StatusCode
	pause := pauseOf(resp, time.Now())
	limited := code == http.StatusTooManyRequests || code == http.StatusForbidden && pause > 0
	switch {
	case code >= 200 && code < 300:
		return source.StatusAnswer{Sent: true}
	case r.Provider == "gitlab" && code == http.StatusBadRequest && isRepeated(r.State, string(text)):
		return source.StatusAnswer{Sent: true}
	case limited:
		return source.StatusAnswer{RetryAfterMS: max(pause, time.Second).Milliseconds(), Message: fmt.Sprintf("%s limits the rate of requests (%d)", host, code)}
	case code == http.StatusUnauthorized:
		return source.StatusAnswer{Message: host + " refuses the credentials (401): check the secrets of the connector"}
	case code == http.StatusForbidden, code == http.StatusNotFound:
		return source.StatusAnswer{Message: fmt.Sprintf("%s does not know the repository or the commit, or does not permit to report statuses (%d): check the name and the scopes of the token", host, code)}
	case code == http.StatusRequestTimeout, code >= 500:
		return source.StatusAnswer{RetryAfterMS: pause.Milliseconds(), Message: fmt.Sprintf("%s answers with the status %d", host, code)}
	case code >= 300 && code < 400:
		return source.StatusAnswer{Refused: true, Message: host + " redirects: set the new address of the connector"}
	}
	return source.StatusAnswer{Refused: true, Message: fmt.Sprintf("%s refuses the status (%d): %s", host, code, shorten(string(text)))}
}

// isRepeated reports whether GitLab refuses a status because the commit has it.
func isRepeated(state, text string) bool {
	return strings.Contains(text, "Cannot transition status") && strings.Contains(text, "from :"+gitlabStates[state])
}

// pauseOf returns the pause that a provider asks for, or 0.
func pauseOf(resp *http.Response, now time.Time) time.Duration {
	pause := retryafter.Parse(resp.Header, now)
	remaining := cmp.Or(resp.Header.Get("X-Ratelimit-Remaining"), resp.Header.Get("Ratelimit-Remaining"))
	reset := cmp.Or(resp.Header.Get("X-Ratelimit-Reset"), resp.Header.Get("Ratelimit-Reset"))
	if at, err := strconv.ParseInt(reset, 10, 64); pause == 0 && err == nil && (remaining == "0" || resp.StatusCode == http.StatusTooManyRequests) {
		pause = time.Unix(at, 0).Sub(now)
	}
	return min(max(pause, 0), maxPause)
}

// shorten makes a text of a provider one short line.
func shorten(text string) string {
	const most = 300
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) || r == ' ' }), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}
