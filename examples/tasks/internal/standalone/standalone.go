// Package standalone makes a CGI program from a function.
package standalone

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"net/url"
	"os"
	"time"
)

// Call holds the arguments of a function in addition to its input.
type Call struct {
	Context context.Context //nolint:containedctx // a call's, for as long as it lasts
	// Client has a time-out for each request and follows no redirects.
	Client *http.Client
	log    io.Writer
}

// Say writes a line to the task's log.
func (c *Call) Say(format string, args ...any) {
	_, _ = fmt.Fprintf(c.log, format+"\n", args...)
}

// Func is a task: its input and its output are JSON.
type Func[In, Out any] func(*Call, In) (Out, error)

// maxInput limits a task's data, in bytes.
const maxInput = 32 << 20

// Main runs a function once: as a CGI program, or from standard input to standard
// output. It returns the program's exit code.
func Main[In, Out any](f Func[In, Out]) int {
	if os.Getenv("RUN_AS_CGI") != "" {
		if err := cgi.Serve(handler(f)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	out, _ := run(context.Background(), f, os.Stdin)
	_ = json.NewEncoder(os.Stdout).Encode(out)
	if _, failed := out.(failure); failed {
		return 1
	}
	return 0
}

func handler[In, Out any](f Func[In, Out]) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, status := run(r.Context(), f, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(out)
	})
}

// failure is the answer of a function that failed (docs/protocol.md, section 1).
type failure struct {
	Message string `json:"error_msg"`
	Code    int    `json:"code"`
}

func run[In, Out any](ctx context.Context, f Func[In, Out], from io.Reader) (any, int) {
	var in In
	if err := json.NewDecoder(io.LimitReader(from, maxInput)).Decode(&in); err != nil {
		// A value of the wrong form may be a secret, so the error does not quote it.
		return failure{Message: "the data does not have the form that this task wants", Code: http.StatusBadRequest}, http.StatusBadRequest
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
	defer transport.CloseIdleConnections()
	out, err := f(&Call{Context: ctx, log: os.Stderr, Client: &http.Client{
		Transport: transport, Timeout: 30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, in)
	if err != nil {
		return failure{Message: err.Error(), Code: http.StatusBadGateway}, http.StatusBadGateway
	}
	return out, http.StatusOK
}

// WithoutCredentials returns a URL for a log.
func WithoutCredentials(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "its URL"
	}
	return u.Scheme + "://" + u.Host + u.EscapedPath()
}
