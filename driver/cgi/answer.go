package cgi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/delegate-io/dlite/internal/process"
	"github.com/delegate-io/dlite/task"
)

// Answer is the answer of a task (docs/protocol.md, section 2). It has the answer of
// the program. The task is OK also if the status code is a failure, because the
// program has run.
type Answer struct {
	StatusCode int         `json:"status_code"`
	Headers    http.Header `json:"headers"`
	// Body is base64 in JSON.
	Body []byte `json:"body"`
}

const (
	// maxAnswer limits the standard output of a program, in bytes. Base64 turns three
	// bytes into four, and the result must fit into an answer.
	maxAnswer = task.MaxBody/4*3 - maxHeader
	// maxHeader limits the headers in it, in bytes.
	maxHeader = 1 << 20
)

// newAnswer creates an answer from the output and the end of a program. last returns
// the last line of its standard error.
func newAnswer(out []byte, state *os.ProcessState, last func() string) (*Answer, error) {
	a, err := parse(out)
	if code := process.Code(state); code != 0 {
		when := "before its answer was whole"
		switch {
		case len(out) == 0:
			when = "without an answer"
		case err == nil:
			when = fmt.Sprintf("after an answer with status %d", a.StatusCode)
		}
		return nil, withLastLine(fmt.Errorf("the program ended with exit code %d (%s) %s", code, state, when), last)
	}
	if err != nil {
		return nil, withLastLine(fmt.Errorf("the program's answer is not valid: %w", err), last)
	}
	return a, nil
}

func withLastLine(err error, last func() string) error {
	if line := last(); line != "" {
		return fmt.Errorf("%w; it said: %s", err, line)
	}
	return err
}

// parse decodes the output of a program: a CGI response, or an [Answer] as JSON. No
// header can begin like JSON. Errors do not quote the output.
func parse(out []byte) (*Answer, error) {
	if len(out) == 0 {
		return nil, errors.New("it is empty")
	}
	if b := bytes.TrimLeft(out, " \t\r\n"); len(b) > 0 && b[0] == '{' {
		return parseJSON(b)
	}
	a := &Answer{Headers: http.Header{}}
	body, err := a.parseHead(out)
	if err != nil {
		return nil, err
	}
	if a.StatusCode, err = statusOf(a.Headers); err != nil {
		return nil, err
	}
	a.Headers.Del("Status")
	if text := a.Headers.Get("Content-Length"); text != "" {
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return nil, errors.New("its Content-Length is not a valid length")
		}
		if uint64(len(body)) < n {
			return nil, fmt.Errorf("it ends after %d of %d bytes", len(body), n)
		}
		body = body[:n]
	}
	a.Body = body
	return a, nil
}

// parseHead decodes the headers up to the empty line and returns the body.
func (a *Answer) parseHead(out []byte) ([]byte, error) {
	rest, size := out, 0
	for n := 1; ; n++ {
		line, after, ok := bytes.Cut(rest, []byte("\n"))
		if !ok {
			return nil, fmt.Errorf("no empty line ends its headers (line %d)", n)
		}
		if size += len(line) + 1; size > maxHeader {
			return nil, fmt.Errorf("its headers have more than %d bytes", maxHeader)
		}
		rest = after
		if line = bytes.TrimSuffix(line, []byte("\r")); len(line) == 0 {
			if n == 1 {
				return nil, errors.New("it has no headers")
			}
			return rest, nil
		}
		name, value, ok := strings.Cut(string(line), ":")
		if !ok || !a.add(name, strings.TrimSpace(value)) {
			return nil, fmt.Errorf("line %d is not a header", n)
		}
	}
}

// add adds a header if it is valid. A line break in a value would make two headers of it.
func (a *Answer) add(name, value string) bool {
	if !isToken(name) || strings.ContainsAny(value, "\r\n\x00") {
		return false
	}
	a.Headers.Add(textproto.CanonicalMIMEHeaderKey(name), value)
	return true
}

// statusOf returns the status in the headers.
func statusOf(h http.Header) (int, error) {
	text := h.Get("Status")
	if text == "" {
		if h.Get("Location") != "" {
			return http.StatusFound, nil
		}
		return http.StatusOK, nil
	}
	code, _, _ := strings.Cut(text, " ")
	n, err := strconv.Atoi(code)
	if err != nil {
		return 0, errors.New("its Status is not a number")
	}
	return n, checkStatus(n)
}

func checkStatus(n int) error {
	if n < 200 || n > 599 {
		return fmt.Errorf("its status is %d", n)
	}
	return nil
}

// values decodes one value of a header, or a list of values.
type values []string

// UnmarshalJSON implements [json.Unmarshaler].
func (v *values) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*v = values{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(v))
}

func parseJSON(b []byte) (*Answer, error) {
	var in struct {
		StatusCode int               `json:"status_code"`
		Headers    map[string]values `json:"headers"`
		Body       []byte            `json:"body"`
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return nil, errors.New("it is not JSON of the form {\"status_code\",\"headers\",\"body\"}") // err may quote it
	}
	a := &Answer{StatusCode: in.StatusCode, Headers: http.Header{}, Body: in.Body}
	for _, name := range slices.Sorted(maps.Keys(in.Headers)) { // names may differ only in case
		for _, value := range in.Headers[name] {
			if !a.add(name, value) {
				return nil, errors.New("one of its headers is not valid")
			}
		}
	}
	return a, checkStatus(a.StatusCode)
}
