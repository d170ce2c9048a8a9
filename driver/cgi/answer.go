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

// Answer is what a task is answered with (PROTOCOL 2): the program's own answer. A
// program that answers with a status of failure has been run all the same, so the
// task is OK.
type Answer struct {
	StatusCode int         `json:"status_code"`
	Headers    http.Header `json:"headers"`
	// Body is base64 in JSON.
	Body []byte `json:"body"`
}

const (
	// maxAnswer bounds what a program may write to its standard output, in bytes:
	// base64 makes four of three, and the whole must fit into an answer.
	maxAnswer = task.MaxBody/4*3 - maxHeader
	// maxHeader bounds the head of it.
	maxHeader = 1 << 20
)

// judge makes an answer of a program's output and its end. last is the last line
// of its standard error.
func judge(out []byte, state *os.ProcessState, last func() string) (*Answer, error) {
	a, err := parse(out)
	if code := process.Code(state); code != 0 {
		when := "before its answer was whole"
		switch {
		case len(out) == 0:
			when = "without an answer"
		case err == nil:
			when = fmt.Sprintf("after an answer with status %d", a.StatusCode)
		}
		return nil, because(fmt.Errorf("the program ended with exit code %d (%s) %s", code, state, when), last)
	}
	if err != nil {
		return nil, because(fmt.Errorf("the program's answer is not valid: %w", err), last)
	}
	return a, nil
}

func because(err error, last func() string) error {
	if line := last(); line != "" {
		return fmt.Errorf("%w; it said: %s", err, line)
	}
	return err
}

// parse reads what a program wrote: a CGI response, or an [Answer] as JSON. No
// header can begin as that does. Errors quote nothing of it.
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
			return nil, errors.New("its Content-Length is no length")
		}
		if uint64(len(body)) < n {
			return nil, fmt.Errorf("it broke off after %d of %d bytes", len(body), n)
		}
		body = body[:n]
	}
	a.Body = body
	return a, nil
}

// parseHead reads the headers up to the empty line and returns what follows.
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
			return nil, fmt.Errorf("line %d is no header", n)
		}
	}
}

// add adds a header, unless it is none: whoever writes it on must not find two in it.
func (a *Answer) add(name, value string) bool {
	if !isToken(name) || strings.ContainsAny(value, "\r\n\x00") {
		return false
	}
	a.Headers.Add(textproto.CanonicalMIMEHeaderKey(name), value)
	return true
}

// statusOf is the status that the headers stand for.
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
		return 0, errors.New("its Status is no number")
	}
	return n, checkStatus(n)
}

func checkStatus(n int) error {
	if n < 200 || n > 599 {
		return fmt.Errorf("its status is %d", n)
	}
	return nil
}

// values takes one value of a header or several.
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
		return nil, errors.New("it is no JSON of the form {\"status_code\",\"headers\",\"body\"}") // err may quote it
	}
	a := &Answer{StatusCode: in.StatusCode, Headers: http.Header{}, Body: in.Body}
	for _, name := range slices.Sorted(maps.Keys(in.Headers)) { // some may differ in case alone
		for _, value := range in.Headers[name] {
			if !a.add(name, value) {
				return nil, errors.New("one of its headers is none")
			}
		}
	}
	return a, checkStatus(a.StatusCode)
}
