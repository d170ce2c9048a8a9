package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// LogLine is a line of a log.
type LogLine struct {
	// Pos is the number of the line, from 0. It continues a log with [Client.FollowLog].
	Pos int64 `json:"pos"`
	// Level is "info".
	Level string `json:"level"`
	// Text is the text with its newline. Some writers leave the newline out.
	Text string `json:"out"`
	// Time is when the delegate read the line.
	Time time.Time `json:"time"`
	// Args are further values of the writer. They are mostly absent.
	Args map[string]string `json:"args"`
}

// logWait is how long the log service waits for a log that has not begun.
const logWait = 60 * time.Second

// FollowLog yields the lines of a log from a number on, as they arrive, and ends without an error when the log is
// complete. It waits for a log that has not begun, which some steps never do: end ctx when the step has ended without
// one. When the connection is lost, it yields an error, and connects again if the loop continues. No line is lost or
// comes twice. The iterator ends with an error if the log service refuses the call, and with the error of ctx.
func (c *Client) FollowLog(ctx context.Context, key string, from int64) iter.Seq2[LogLine, error] {
	return func(yield func(LogLine, error) bool) {
		next := from
		for {
			err := c.followLog(ctx, key, &next, yield)
			if err == nil {
				return
			}
			if !IsStatus(err, http.StatusNotFound) {
				return // it was yielded
			}
			select {
			case <-time.After(time.Second): // a log service may not know wait
			case <-ctx.Done():
			}
		}
	}
}

// followLog follows a log that exists. It returns nil at the end of the log or of the loop, an [Error] with status 404 if
// the log has not begun, and any other error that it has yielded.
func (c *Client) followLog(ctx context.Context, key string, next *int64, yield func(LogLine, error) bool) error {
	messages := c.follow(ctx, "", func(string) *call {
		what := get("stream").asking(url.Values{
			"key": {key}, "from": {strconv.FormatInt(*next, 10)}, "wait": {strconv.Itoa(int(logWait / time.Second))},
		})
		what.logs, what.hold = true, logWait
		return what
	})
	var last error
	for m, err := range messages {
		if last = err; IsStatus(err, http.StatusNotFound) {
			return err
		}
		var line LogLine
		if err == nil {
			line = lineOf([]byte(m.data))
			if n, numErr := strconv.ParseInt(m.id, 10, 64); numErr == nil {
				line.Pos, *next = n, n+1
			}
		}
		if !yield(line, err) {
			return nil
		}
	}
	return last
}

// lineOf decodes a line. A line that is no object of a log is returned as its text.
func lineOf(text []byte) LogLine {
	var line struct {
		LogLine

		Args json.RawMessage `json:"args"` // writers may send anything
		Out  *string         `json:"out"`
	}
	if err := json.Unmarshal(text, &line); err != nil || line.Out == nil {
		return LogLine{Level: "info", Text: string(text) + "\n"}
	}
	line.Text = *line.Out
	_ = json.Unmarshal(line.Args, &line.LogLine.Args) // other types than text are left out
	return line.LogLine
}

// Log yields the lines of a log that is complete. If it is not, the iterator ends with an [Error] with status 404.
func (c *Client) Log(ctx context.Context, key string) iter.Seq2[LogLine, error] {
	return func(yield func(LogLine, error) bool) {
		what := get("blob").asking(url.Values{"key": {key}})
		what.logs = true
		var answer io.ReadCloser
		err := c.repeat(ctx, what, func(base *url.URL) error {
			r, err := c.send(ctx, base, what, nil) //nolint:bodyclose // the iterator closes it
			if err == nil {
				answer = r.Body
			}
			return err
		})
		if err != nil {
			yield(LogLine{}, err)
			return
		}
		defer func() { _ = answer.Close() }()
		lines := bufio.NewReaderSize(answer, 64<<10)
		number := int64(-1) // of the previous line: as with FollowLog, the first line has its own number
		for {
			text, err := lines.ReadBytes('\n')
			if err != nil && !errors.Is(err, io.EOF) {
				yield(LogLine{}, fmt.Errorf("reading the log %s: %w", key, err))
				return
			}
			if len(text) > 0 {
				line := lineOf(bytes.TrimRight(text, "\r\n"))
				if number++; number == 0 {
					number = line.Pos
				}
				line.Pos = number
				if !yield(line, nil) {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
}
