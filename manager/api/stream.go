package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// message is a server-sent event. A message without data has the position of the stream in id.
type message struct{ id, event, data string }

const (
	// maxMessage bounds one line of a stream, in bytes. A change of a run has all nodes that have changed.
	maxMessage = 64 << 20
	// silence is how long a stream may send nothing. The servers send a comment every 15 seconds.
	silence = 40 * time.Second
	// maxPause bounds the pause that a server asks for before a stream connects again.
	maxPause = 5 * time.Minute
)

var (
	// errStopped means that the consumer of a stream has stopped.
	errStopped = errors.New("stopped")
	// errOver means that a stream has nothing more to send.
	errOver = errors.New("over")
)

// follow yields the messages of a stream. After a lost connection it yields the error, and connects again. Open returns
// the call that continues after the last id. The iterator ends with an error that another attempt would not change, with
// the error of ctx, or without an error if the stream is over.
func (c *Client) follow(ctx context.Context, last string, open func(last string) *call) iter.Seq2[message, error] {
	return func(yield func(message, error) bool) {
		pauses := backoff.NewExponentialBackOff()
		pauses.InitialInterval, pauses.MaxInterval = 100*time.Millisecond, 5*time.Second
		for {
			what := open(last)
			at := c.servers(what)
			base := at.get()
			err := c.stream(ctx, base, what, func(m message) bool {
				if m.id != "" {
					last = m.id
				}
				pauses.Reset()
				return yield(m, nil)
			})
			if errors.Is(err, errStopped) || errors.Is(err, errOver) {
				return
			}
			if ctx.Err() != nil {
				yield(message{}, ctx.Err())
				return
			}
			if !answered(err) {
				at.leave(base)
			}
			pause := pauses.NextBackOff()
			var refused *Error
			if errors.As(err, &refused) {
				if !refused.temporary() {
					yield(message{}, err)
					return
				}
				pause = max(pause, min(refused.RetryAfter, maxPause))
			}
			if !yield(message{}, err) || errors.Is(err, errToken) {
				return
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	}
}

// stream passes the messages of one connection on. Its error is never nil.
func (c *Client) stream(ctx context.Context, base *url.URL, what *call, each func(message) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watchdog := time.AfterFunc(c.cfg.Timeout+what.hold, cancel)
	defer watchdog.Stop()
	answer, err := c.send(ctx, base, what, nil)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	switch kind, _, _ := strings.Cut(answer.Header.Get("Content-Type"), ";"); {
	case answer.StatusCode == http.StatusNoContent:
		return errOver
	case kind != "text/event-stream":
		return errorOf(answer)
	}
	err = readMessages(answer.Body, func() { watchdog.Reset(silence) }, each)
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	if errors.Is(err, errStopped) || errors.Is(err, errOver) {
		return err
	}
	return fmt.Errorf("the connection to the manager is lost: %w", err)
}

// readMessages reads server-sent events. It calls alive for each line, comments included.
func readMessages(r io.Reader, alive func(), each func(message) bool) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4096), maxMessage)
	var m message
	var data []string
	for lines.Scan() {
		alive()
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case lines.Text() == "":
			m.data = strings.Join(data, "\n")
			switch {
			case m.event == "eof":
				return errOver
			case m != message{} && !each(m):
				return errStopped
			}
			m, data = message{}, nil
		case name == "id":
			m.id = value
		case name == "event":
			m.event = value
		case name == "data":
			data = append(data, value)
		}
	}
	return lines.Err()
}
