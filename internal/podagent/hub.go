package podagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/delegate-io/dlite/driver/agent"
)

const (
	// bodyLimit bounds what the hub itself reads of a request.
	bodyLimit = 1 << 20
	// streams is how many requests may be under way on one connection: every
	// running step has two.
	streams = 100_000
	// closeTime is how long the hub waits for requests that are under way when it
	// ends.
	closeTime = 500 * time.Millisecond
)

// HubConfig sets up a [Hub].
type HubConfig struct {
	// Token is the pod's secret ([EnvToken]). Required.
	Token string
	// Agent serves PROTOCOL 5 for the hub's own container. Required.
	Agent http.Handler
	// Socket, Control and Hosts are paths; empty is [Socket], [Control] and
	// /etc/hosts.
	Socket, Control, Hosts string
	// Log takes what nobody is told; nil drops it.
	Log io.Writer
}

// Hub is where the delegate finds the agents of all containers of a pod.
type Hub struct {
	cfg     HubConfig
	members *members
	names   *names

	mu      sync.Mutex
	claimed map[string]string // by whom, by container; guarded by mu
	spares  map[string]string // by the id of the volume that has it; guarded by mu
}

// NewHub makes a hub. Nothing listens before [Hub.Run].
func NewHub(cfg HubConfig) (*Hub, error) {
	if cfg.Token == "" {
		return nil, errors.New("hub: there is no token: set " + EnvToken)
	}
	if cfg.Agent == nil {
		return nil, errors.New("hub: there is no agent")
	}
	for value, usual := range map[*string]string{&cfg.Socket: Socket, &cfg.Control: Control, &cfg.Hosts: "/etc/hosts"} {
		if *value == "" {
			*value = usual
		}
	}
	if cfg.Log == nil {
		cfg.Log = io.Discard
	}
	return &Hub{
		cfg: cfg, members: newMembers(), names: newNames(cfg.Hosts),
		claimed: map[string]string{}, spares: map[string]string{},
	}, nil
}

// Run serves until ctx ends.
func (h *Hub) Run(ctx context.Context) error {
	steps, err := listen(ctx, h.cfg.Socket, 0o666) // whoever a container runs as may come
	if err != nil {
		return err
	}
	control, err := listen(ctx, h.cfg.Control, 0o600)
	if err != nil {
		_ = steps.Close()
		return err
	}
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer running.Wait()
	defer cancel()
	running.Go(func() { h.names.guard(ctx, h.cfg.Log) })
	running.Go(func() { h.members.accept(ctx, steps, h.cfg.Token, h.welcome) })
	server := newServer(h.Handler())
	stopped := context.AfterFunc(ctx, func() {
		late, done := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer done()
		_ = server.Shutdown(late)
		_ = server.Close()
	})
	defer stopped()
	if err := server.Serve(control); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("hub: %w", err)
	}
	return nil
}

// welcome is what is done for a container before its step may begin.
func (h *Hub) welcome() {
	// The container's start has made the file of the names anew.
	if err := h.names.apply(); err != nil {
		_, _ = fmt.Fprintln(h.cfg.Log, err)
	}
}

// Handler is what the delegate talks to.
func (h *Hub) Handler() http.Handler {
	r := chi.NewRouter()
	r.Get("/names", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, h.names.list()) })
	r.Post("/names", h.addNames)
	r.Post("/spares", h.takeSpare)
	r.Post("/claims/{container}", h.claim)
	r.Post("/end/{container}", h.members.end)
	r.Mount("/steps/"+HubContainer, http.StripPrefix("/steps/"+HubContainer, h.cfg.Agent))
	r.Get("/steps/{container}/ready", h.members.ready)
	r.HandleFunc("/steps/{container}/*", h.members.forward)
	return r
}

func (h *Hub) addNames(w http.ResponseWriter, r *http.Request) {
	var more Names
	if !read(w, r, &more) {
		return
	}
	if err := h.names.add(more.Hosts); err != nil {
		refuse(w, http.StatusInternalServerError, err)
		return
	}
	answer(w, http.StatusOK, h.names.list())
}

func (h *Hub) takeSpare(w http.ResponseWriter, r *http.Request) {
	var wish Spare
	if !read(w, r, &wish) {
		return
	}
	answer(w, http.StatusOK, Spared{Name: h.spare(wish)})
}

// spare gives the volume that id has, or one that nobody has.
func (h *Hub) spare(wish Spare) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if name, ok := h.spares[wish.ID]; ok {
		return name
	}
	taken := map[string]bool{}
	for _, name := range h.spares {
		taken[name] = true
	}
	for _, name := range wish.Of {
		if !taken[name] {
			h.spares[wish.ID] = name
			return name
		}
	}
	return ""
}

func (h *Hub) claim(w http.ResponseWriter, r *http.Request) {
	var claim Claim
	if !read(w, r, &claim) {
		return
	}
	name := chi.URLParam(r, "container")
	h.mu.Lock()
	by, taken := h.claimed[name]
	if !taken {
		h.claimed[name] = claim.By
	}
	h.mu.Unlock()
	answer(w, http.StatusOK, Claimed{OK: !taken || by != "" && by == claim.By})
}

// newServer speaks HTTP/2 without TLS: who may connect is the socket's to say.
func newServer(handler http.Handler) *http.Server {
	s := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute, Protocols: new(http.Protocols)}
	s.Protocols.SetUnencryptedHTTP2(true)
	s.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: streams}
	return s
}

func listen(ctx context.Context, socket string, mode fs.FileMode) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	if err := os.Chmod(socket, mode); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("hub: %w", err)
	}
	return l, nil
}

func read(w http.ResponseWriter, r *http.Request, into any) bool {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, bodyLimit)).Decode(into); err != nil {
		refuse(w, http.StatusBadRequest, fmt.Errorf("read the request: %w", err))
		return false
	}
	return true
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func refuse(w http.ResponseWriter, status int, err error) {
	answer(w, status, agent.Error{Message: err.Error()})
}
