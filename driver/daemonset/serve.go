package daemonset

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"
)

// maxBody bounds the body of a call of the delegate, in bytes.
const maxBody = 64 << 20

// Serve is the main function of a daemon that a delegate starts: it serves h where the environment says, until ctx ends.
// It answers only calls with the token of the delegate, if the delegate gave one. It prefers the socket to the port.
func Serve(ctx context.Context, h Handler) error {
	if h == nil {
		return errors.New("daemonset: Serve needs a handler")
	}
	network, address := "unix", os.Getenv(socketVariable)
	if address == "" {
		port := os.Getenv(portVariable)
		if port == "" {
			return fmt.Errorf("daemonset: neither %s nor %s is set: a delegate starts this program", socketVariable, portVariable)
		}
		network, address = "tcp", net.JoinHostPort("127.0.0.1", port)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, network, address)
	if err != nil {
		return fmt.Errorf("daemonset: %w", err)
	}
	if network == "unix" {
		// The user of a container may differ from the delegate's. The directory is closed to all others.
		if err := os.Chmod(address, 0o666); err != nil {
			_ = l.Close()
			return fmt.Errorf("daemonset: %w", err)
		}
	}
	srv := &http.Server{Handler: newServer(h, os.Getenv(tokenVariable)), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if srv.Shutdown(ctx) != nil {
			_ = srv.Close()
		}
	})
	if err = srv.Serve(l); errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	if !stop() {
		<-ended
	}
	return err
}

// server serves the calls about the tasks of a handler.
type server struct {
	handler Handler
	token   string
	mu      sync.Mutex
	tasks   map[string]bool // guarded by mu, which also serialises the calls of the handler
}

func newServer(h Handler, token string) *server {
	return &server{handler: h, token: token, tasks: map[string]bool{}}
}

// ServeHTTP implements [http.Handler].
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.token != "" && subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+s.token)) != 1 {
		s.write(w, http.StatusUnauthorized, errors.New("the token of the delegate is missing or wrong"))
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil || len(body) > maxBody {
		s.write(w, http.StatusBadRequest, fmt.Errorf("the body cannot be read, or is larger than %d bytes", maxBody))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.Method + " " + r.URL.Path {
	case "GET /tasks":
		s.write(w, http.StatusOK, nil)
	case "POST /tasks":
		s.assign(w, r, body)
	case "DELETE /tasks":
		s.remove(w, r)
	case "PUT /settings":
		if err := s.handler.Configure(r.Context(), body); err != nil {
			s.write(w, http.StatusInternalServerError, err)
			return
		}
		s.write(w, http.StatusOK, nil)
	default:
		s.write(w, http.StatusNotFound, errors.New("there is no such call"))
	}
}

func (s *server) assign(w http.ResponseWriter, r *http.Request, body []byte) {
	var in tasksBody
	if err := json.Unmarshal(body, &in); err != nil {
		s.write(w, http.StatusBadRequest, errors.New("the body is not a list of tasks"))
		return
	}
	fresh := slices.DeleteFunc(in.Tasks, func(t Task) bool { return s.tasks[t.ID] })
	if len(fresh) > 0 {
		if err := s.handler.Assign(r.Context(), fresh); err != nil {
			s.write(w, http.StatusInternalServerError, err)
			return
		}
	}
	for _, t := range fresh {
		s.tasks[t.ID] = true
	}
	s.write(w, http.StatusOK, nil)
}

func (s *server) remove(w http.ResponseWriter, r *http.Request) {
	var known []string
	for _, id := range r.URL.Query()["taskIds"] {
		if s.tasks[id] && !slices.Contains(known, id) {
			known = append(known, id)
		}
	}
	if len(known) > 0 {
		if err := s.handler.Remove(r.Context(), known); err != nil {
			s.write(w, http.StatusInternalServerError, err)
			return
		}
	}
	for _, id := range known {
		delete(s.tasks, id)
	}
	s.write(w, http.StatusOK, nil)
}

// removeAll takes all tasks away from the handler.
func (s *server) removeAll(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := slices.Sorted(maps.Keys(s.tasks))
	if len(ids) == 0 {
		return nil
	}
	s.tasks = map[string]bool{}
	return s.handler.Remove(ctx, ids)
}

// write answers with the tasks of the daemon. The caller holds mu, unless the status is 4xx.
func (s *server) write(w http.ResponseWriter, status int, err error) {
	out := tasksAnswer{Metadata: []taskMeta{}}
	if err != nil {
		out.Error = err.Error()
	} else {
		for _, id := range slices.Sorted(maps.Keys(s.tasks)) {
			out.Metadata = append(out.Metadata, taskMeta{id})
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	b, _ := json.Marshal(out) // strings always encode
	_, _ = w.Write(b)
}
