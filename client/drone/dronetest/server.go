package dronetest

import (
	"crypto/subtle"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Server is a Drone server. It is safe for concurrent use.
type Server struct {
	// URL is the address of the server.
	URL string
	// Hold is how long the server holds a call for a stage or a watch. Set it before the first
	// call. Zero means 30 s.
	Hold time.Duration
	// Fault returns the fault with which a call fails. Set it before the first call. Nil means
	// no faults.
	Fault func(*http.Request) Fault
	// OnCall is called for every call that has passed the check of the secret, before it is
	// handled. Set it before the first call.
	OnCall func(*http.Request)

	secret string
	http   *httptest.Server

	mu       sync.Mutex
	lastID   int64
	builds   map[int64]*buildRow
	stages   map[int64]*stageRow
	steps    map[int64]*stepRow
	watchers map[int64][]chan struct{}
	cards    map[int64]json.RawMessage
	changed  chan struct{} // closed at the next change
	restart  chan struct{} // closed at the next restart
	down     bool

	// NoCards makes the server answer 404 to cards, as older servers do. Set it before the
	// first call.
	NoCards bool
}

// Fault is a way in which a call fails.
type Fault int

const (
	// NoFault means that the call is handled.
	NoFault Fault = iota
	// Unavailable means that the answer is status 503, and the call has no effect.
	Unavailable
	// Broken means that the answer is status 500, and the call has no effect.
	Broken
	// Lost means that the call has its effect, and the connection ends without an answer.
	Lost
)

type buildRow struct {
	id        int64
	submitted Build
	row       object
	stages    []*stageRow
}

type stageRow struct {
	id    int64
	build *buildRow
	row   object
	steps []*stepRow
	ends  int
}

type stepRow struct {
	id       int64
	stage    *stageRow
	row      object
	stream   bool // the live stream exists
	live     []Line
	log      []Line
	uploaded bool
	ends     int
}

func (r *stageRow) set(members object) {
	maps.Copy(r.row, members)
	r.row["version"] = r.row.int("version") + 1
}

func (r *stepRow) set(members object) {
	maps.Copy(r.row, members)
	r.row["version"] = r.row.int("version") + 1
}

// New starts a server whose runners need a secret.
func New(secret string) *Server {
	s := &Server{
		secret: secret, builds: map[int64]*buildRow{}, stages: map[int64]*stageRow{}, steps: map[int64]*stepRow{},
		watchers: map[int64][]chan struct{}{}, cards: map[int64]json.RawMessage{},
		changed: make(chan struct{}), restart: make(chan struct{}),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /rpc/v2/ping", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("POST /rpc/v2/stage", s.request)
	mux.HandleFunc("POST /rpc/v2/stage/{id}", s.accept)
	mux.HandleFunc("GET /rpc/v2/stage/{id}", s.details)
	mux.HandleFunc("PUT /rpc/v2/stage/{id}", s.updateStage)
	mux.HandleFunc("PUT /rpc/v2/step/{id}", s.updateStep)
	mux.HandleFunc("POST /rpc/v2/build/{id}/watch", s.watch)
	mux.HandleFunc("POST /rpc/v2/step/{id}/logs/batch", s.batch)
	mux.HandleFunc("POST /rpc/v2/step/{id}/logs/upload", s.upload)
	mux.HandleFunc("POST /rpc/v2/step/{id}/card", s.card)
	s.http = httptest.NewServer(s.guard(mux))
	s.URL = s.http.URL
	return s
}

// Close ends the server and all calls that it holds.
func (s *Server) Close() {
	s.Restart()
	s.http.CloseClientConnections()
	s.http.Close()
}

// Restart ends all connections and removes the state that the server keeps in memory: held calls and
// live streams. The builds remain.
func (s *Server) Restart() {
	s.mu.Lock()
	close(s.restart)
	s.restart = make(chan struct{})
	s.watchers = map[int64][]chan struct{}{}
	for _, st := range s.steps {
		st.stream = false
	}
	s.mu.Unlock()
	s.http.CloseClientConnections()
}

// SetDown begins or ends a time in which the server accepts no call.
func (s *Server) SetDown(down bool) {
	s.mu.Lock()
	s.down = down
	s.mu.Unlock()
	if down {
		s.Restart()
	}
}

// guard checks the secret and applies faults.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		down := s.down
		s.mu.Unlock()
		if down {
			panic(http.ErrAbortHandler)
		}
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("X-Drone-Token")), []byte(s.secret)) != 1 {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		if s.OnCall != nil {
			s.OnCall(r)
		}
		fault := NoFault
		if s.Fault != nil {
			fault = s.Fault(r)
		}
		switch fault {
		case Unavailable:
			http.Error(w, "Service Unavailable", http.StatusServiceUnavailable)
		case Broken:
			http.Error(w, "database is locked", http.StatusInternalServerError)
		case Lost:
			next.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// notify wakes all waiting calls. The caller holds mu.
func (s *Server) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// The texts with which the server refuses a call.
const (
	conflict  = "Optimistic Lock Error"
	noRows    = "sql: no rows in result set"
	duplicate = "UNIQUE constraint failed: "
)

// fail refuses a call as the real server does: the text decides on the status.
func fail(w http.ResponseWriter, text string) {
	status := http.StatusInternalServerError
	if text == conflict {
		status = http.StatusConflict
	}
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text))
}

// answer writes JSON. The real server declares no type.
func answer(w http.ResponseWriter, v any) {
	_ = json.NewEncoder(w).Encode(v)
}

func id(r *http.Request) int64 {
	n, _ := strconv.ParseInt(r.PathValue("id"), 10, 64)
	return n
}

func (s *Server) hold() time.Duration {
	if s.Hold > 0 {
		return s.Hold
	}
	return 30 * time.Second
}

func unix() int64 { return time.Now().Unix() }

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// sorted returns the stages by their ids.
func (s *Server) sorted() []*stageRow {
	all := slices.Collect(maps.Values(s.stages))
	slices.SortFunc(all, func(a, b *stageRow) int { return int(a.id - b.id) })
	return all
}
