package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// State is the state of a service.
type State string

// The states of a service. The running process reports the first three, the service manager the others.
const (
	// Starting means that the program runs but cannot work yet, for instance because the manager cannot be reached.
	Starting State = "starting"
	// Running means that a delegate has registered, or that a manager serves.
	Running State = "running"
	// Draining means that the program ends after its current work.
	Draining State = "draining"

	// Silent means that the process runs but does not answer.
	Silent State = "silent"
	// Stopped means that the service is installed and does not run.
	Stopped State = "stopped"
	// Failed means that the service manager does not start the program again by itself.
	Failed State = "failed"
	// Missing means that the service is not installed.
	Missing State = "not installed"
)

// Status is the answer of a running program. It holds no secrets.
type Status struct {
	// Service is the name of the service. The running program leaves it empty.
	Service string `json:"service,omitempty"`
	Program string `json:"program"`
	Version string `json:"version,omitempty"`
	PID     int    `json:"pid,omitempty"`
	// Started is when the process started. It is zero if none runs.
	Started time.Time `json:"started,omitzero"`
	State   State     `json:"state"`
	// Message is why the state is not Running, or what is wrong although it is.
	Message string `json:"message,omitempty"`

	Delegate *Delegate `json:"delegate,omitempty"`
	Manager  *Manager  `json:"manager,omitempty"`
}

// Delegate is the part of a Status that a delegate reports.
type Delegate struct {
	Name    string   `json:"name"`
	Servers []Server `json:"servers"`
	// SlotsUsed and SlotsMax count stages. A maximum of 0 means no limit.
	SlotsUsed int `json:"slots_used"`
	SlotsMax  int `json:"slots_max"`
	// Stages is the number of stages between their init and the end of their cleanup.
	Stages int `json:"stages"`
	// Tasks counts the running tasks by their role in a stage: init, execute, cleanup, standalone.
	Tasks map[string]int `json:"tasks"`
	// LogsWaiting is the number of logs that the log service has not taken yet.
	LogsWaiting int `json:"logs_waiting,omitempty"`
}

// Server is a server that a delegate works for.
type Server struct {
	Kind string `json:"kind"` // manager or drone
	URL  string `json:"url"`
	// Heartbeat is when the server last accepted a registration or a heartbeat. It is zero before the first.
	Heartbeat time.Time `json:"heartbeat,omitzero"`
}

// Manager is the part of a Status that a manager reports.
type Manager struct {
	URL       string `json:"url"`
	Store     string `json:"store"`
	Pipelines bool   `json:"pipelines"`
}

// statusPath is the path of the status at the socket.
const statusPath = "/status"

const (
	// readTimeout limits a call of the socket.
	readTimeout = 5 * time.Second
	// maxStatus limits the size of an answer.
	maxStatus = 1 << 20
)

// ErrNotRunning means that no process listens at the socket.
var ErrNotRunning = errors.New("no process answers")

// Read asks the running program at its socket for its status. It takes at most 5 seconds. The error is ErrNotRunning
// if there is no process. A process that hangs leads to another error.
func Read(ctx context.Context, socket string) (*Status, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var s Status
	status, err := call(ctx, socket, http.MethodGet, statusPath, http.NoBody, &s)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("the process at %s gave an answer that is no status (%d)", socket, status)
	}
	if err != nil {
		return nil, err
	}
	return &s, nil
}

// call makes a call of a socket and decodes the answer, unless its status is 404.
func call(ctx context.Context, socket, method, path string, body io.Reader, into any) (status int, err error) {
	var dial error
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var c net.Conn
		c, dial = new(net.Dialer).DialContext(ctx, "unix", socket)
		return c, dial
	}}
	req, err := http.NewRequestWithContext(ctx, method, "http://service"+path, body)
	if err != nil {
		return 0, err
	}
	resp, err := transport.RoundTrip(req)
	switch {
	case err != nil && ctx.Err() == nil && isAbsent(dial):
		return 0, fmt.Errorf("%s: %w", socket, ErrNotRunning)
	case err != nil:
		return 0, fmt.Errorf("asking the process at %s: %w", socket, err)
	}
	defer resp.Body.Close() //nolint:errcheck // nothing was written
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxStatus))
	if err != nil {
		return 0, fmt.Errorf("asking the process at %s: %w", socket, err)
	}
	if resp.StatusCode != http.StatusNotFound && json.Unmarshal(text, into) != nil {
		return 0, fmt.Errorf("the process at %s gave an answer that is no status (%s)", socket, resp.Status)
	}
	return resp.StatusCode, nil
}
