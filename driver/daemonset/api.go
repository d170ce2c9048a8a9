package daemonset

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"
)

// The variables that give a daemon its address and the token of the delegate's calls.
const (
	portVariable   = "DAEMON_SERVER_PORT"
	socketVariable = "DAEMON_SERVER_SOCKET"
	tokenVariable  = "DAEMON_SERVER_TOKEN"
)

// maxAnswer bounds an answer of a daemon, in bytes.
const maxAnswer = 8 << 20

// callTimeout limits a call of a daemon, except the health check.
const callTimeout = time.Minute

// Task is a task of a daemon set.
type Task struct {
	ID string `json:"id"`
	// Params has the payload.
	Params Params `json:"params"`
	// Secrets are the values of the secret tasks of the task.
	Secrets []Secret `json:"secrets,omitempty"`
}

// Params has the payload of a [Task]: the bytes that the manager got for it, with secrets in place of references.
type Params struct {
	Data []byte `json:"binary_data"`
}

// Secret is a resolved secret of a [Task].
type Secret struct {
	ID    string `json:"id"`
	Value string `json:"value"`
}

// tasksBody is the body of the call that hands tasks over.
type tasksBody struct {
	Tasks []Task `json:"tasks"`
}

// tasksAnswer is the answer of each call about tasks.
type tasksAnswer struct {
	Metadata []taskMeta `json:"tasks_metadata"`
	// Tasks is Metadata in the answer of older daemons.
	Tasks []taskMeta `json:"tasks,omitempty"`
	Error string     `json:"error,omitempty"`
}

type taskMeta struct {
	ID string `json:"id"`
}

// Handler does the work of a daemon set. Its methods are called one at a time.
type Handler interface {
	// Configure applies the settings of the config. It is called once before the first tasks if there are settings, and
	// when they change. An error starts the daemon anew.
	Configure(ctx context.Context, settings json.RawMessage) error
	// Assign begins the work of tasks and returns without waiting for its end. A task that the daemon has already is not
	// given again.
	Assign(ctx context.Context, tasks []Task) error
	// Remove ends the work of tasks.
	Remove(ctx context.Context, ids []string) error
}

// endpoint is where a daemon serves.
type endpoint struct {
	socket string // outside of a container
	port   int
	token  string
	client *http.Client
	// direct is the handler of a daemon set in this process; the rest is empty then.
	direct http.Handler
}

// newEndpoint reserves nothing: another program may take the port until the daemon listens. The daemon then ends, and
// the next one gets another port.
func newEndpoint(ctx context.Context, socket, token string) (*endpoint, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // of a TCP listener
	_ = l.Close()
	e := &endpoint{socket: socket, port: port, token: token}
	e.client = &http.Client{
		// Each call has a new connection: the daemon may have been restarted.
		Transport:     &http.Transport{DialContext: e.dial, DisableKeepAlives: true, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return e, nil
}

// dial connects to the socket, or to the port if the daemon has created no socket.
func (e *endpoint) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if info, err := os.Lstat(e.socket); err == nil && info.Mode().Type() == os.ModeSocket {
		return (&net.Dialer{}).DialContext(ctx, "unix", e.socket)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", e.port))
}

// tasks returns the ids of the tasks of the daemon. It is also the health check.
func (e *endpoint) tasks(ctx context.Context) (map[string]bool, error) {
	var out tasksAnswer
	if err := e.call(ctx, http.MethodGet, "/tasks", nil, &out); err != nil {
		return nil, err
	}
	if out.Error != "" {
		return nil, fmt.Errorf("GET /tasks: %.500s", out.Error)
	}
	ids := map[string]bool{}
	for _, t := range append(out.Metadata, out.Tasks...) {
		ids[t.ID] = true
	}
	return ids, nil
}

// assign hands tasks over.
func (e *endpoint) assign(ctx context.Context, tasks []Task) error {
	return e.change(ctx, http.MethodPost, "/tasks", tasksBody{tasks})
}

// remove takes tasks away.
func (e *endpoint) remove(ctx context.Context, ids []string) error {
	return e.change(ctx, http.MethodDelete, "/tasks?"+url.Values{"taskIds": ids}.Encode(), nil)
}

// configure hands the settings over.
func (e *endpoint) configure(ctx context.Context, settings json.RawMessage) error {
	return e.change(ctx, http.MethodPut, "/settings", settings)
}

func (e *endpoint) change(ctx context.Context, method, path string, in any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var out tasksAnswer
	if err := e.call(ctx, method, path, in, &out); err != nil {
		return err
	}
	if out.Error != "" {
		what, _, _ := bytes.Cut([]byte(path), []byte("?"))
		return fmt.Errorf("%s %s: %.500s", method, what, out.Error)
	}
	return nil
}

// call makes a call. A daemon may answer a change without a body.
func (e *endpoint) call(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://daemon"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+e.token)
	status, answer, err := e.send(req)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, req.URL.Path, err)
	}
	if status < 200 || status > 299 {
		return fmt.Errorf("%s %s answers %d: %.500s", method, req.URL.Path, status, bytes.TrimSpace(answer))
	}
	if answer = bytes.TrimSpace(answer); len(answer) == 0 && method != http.MethodGet {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("%s %s: the answer is not JSON of the expected form", method, req.URL.Path)
	}
	return nil
}

func (e *endpoint) send(req *http.Request) (int, []byte, error) {
	if e.direct != nil {
		w := &recorder{header: http.Header{}, status: http.StatusOK}
		e.direct.ServeHTTP(w, req)
		return w.status, w.body.Bytes(), nil
	}
	resp, err := e.client.Do(req)
	if err != nil {
		var withURL *url.Error
		if errors.As(err, &withURL) {
			err = withURL.Err
		}
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(answer) > maxAnswer {
		err = fmt.Errorf("the answer is larger than %d bytes", maxAnswer)
	}
	return resp.StatusCode, answer, err
}

// recorder is the answer of a handler in this process.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *recorder) Header() http.Header         { return w.header }
func (w *recorder) WriteHeader(status int)      { w.status = status }
func (w *recorder) Write(b []byte) (int, error) { return w.body.Write(b) }
