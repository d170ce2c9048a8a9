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
	// bodyLimit limits the bodies of requests to the hub itself, in bytes.
	bodyLimit = 1 << 20
	// streams limits the concurrent requests of one connection. Each running step has
	// two.
	streams = 100_000
	// closeTime limits the wait for running requests when the hub ends.
	closeTime = 500 * time.Millisecond
)

// HubConfig configures a [Hub].
type HubConfig struct {
	// Token is the secret of the pod ([EnvToken]). Required.
	Token string
	// Agent serves the agent API (docs/protocol.md, section 5) for the container of the
	// hub. Required.
	Agent http.Handler
	// Socket, Control and Hosts are paths. The defaults are [Socket], [Control] and
	// /etc/hosts.
	Socket, Control, Hosts string
	// Log receives errors that no caller gets. Nil discards them.
	Log io.Writer
}

// Hub forwards requests of the delegate to the agents in the containers of a pod.
type Hub struct {
	cfg     HubConfig
	members *members
	names   *names

	mu      sync.Mutex
	claimed map[string]string // claimant by container; guarded by mu
	spares  map[string]string // spare volume by the id of its user; guarded by mu
}

// NewHub creates a hub. It listens in [Hub.Run].
func NewHub(cfg HubConfig) (*Hub, error) {
	if cfg.Token == "" {
		return nil, errors.New("hub: no token: set " + EnvToken)
	}
	if cfg.Agent == nil {
		return nil, errors.New("hub: no agent")
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
	steps, err := listen(ctx, h.cfg.Socket, 0o666) // containers with any user may connect
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
	running.Go(func() { h.members.accept(ctx, steps, h.cfg.Token, h.prepareContainer) })
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

// prepareContainer runs before the step of a container may begin.
func (h *Hub) prepareContainer() {
	// The start of the container has replaced the hosts file.
	if err := h.names.apply(); err != nil {
		_, _ = fmt.Fprintln(h.cfg.Log, err)
	}
}

// Handler serves the requests of the delegate.
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

// spare returns the spare volume of an id. It assigns a free one to a new id.
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

// newServer creates a server for HTTP/2 without TLS. The mode of the socket controls access.
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
