package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/examples/internal/program"
	"github.com/delegate-io/dlite/internal/httpserver"
)

// Config describes a running program to its service manager and to Read.
type Config struct {
	// Program is the name of the program, such as delegate.
	Program string
	// Socket is the path of the socket for Read. Empty means none.
	Socket string
	// Status returns the state of the program. It must not block and is called from several goroutines. Attach sets
	// the fields that are the same for all programs.
	Status func() Status
	// Upgrade stages an upgrade of the program, see AskUpgrade. Nil means that the program does not
	// upgrade itself.
	Upgrade func(context.Context, Upgrade) (Upgraded, error)
	// Alive returns an error if the program hangs and must be restarted. Nil means that it never hangs.
	Alive func(context.Context) error
	// Linger is how long a drain may take without work until systemd kills the program, besides the 5 minutes of the unit.
	Linger time.Duration
	// Detached is for a process beside the one of the service, such as one that tries a new version out. Neither the
	// service manager nor Read gets to know it.
	Detached bool
	Log      zerolog.Logger
}

// Host connects a running program with its service manager.
type Host struct {
	cfg     Config
	started time.Time
	notify  notifier
	server  *http.Server
	starts  string                 // the file with the number of starts
	paused  atomic.Pointer[string] // why Pause waits
	worked  atomic.Bool            // the program has been ready
	end     context.CancelFunc
	running sync.WaitGroup
}

// Attach serves the status at the socket. If systemd started the program, Attach also tells it when the program is
// ready, that it drains, and that it is alive, until Close. The program needs no further calls: Attach reads
// Config.Status regularly.
func Attach(ctx context.Context, cfg Config) (*Host, error) {
	h := &Host{cfg: cfg, started: time.Now(), notify: newNotifier(os.Getenv), starts: startsFile()}
	if cfg.Detached {
		h.cfg.Socket, h.notify, h.starts = "", notifier{}, ""
	}
	if err := h.listen(ctx); err != nil {
		return nil, err
	}
	ctx, h.end = context.WithCancel(context.WithoutCancel(ctx))
	if h.notify.active() || h.starts != "" {
		h.running.Go(func() { h.report(ctx) })
	}
	return h, nil
}

// Close tells systemd that the program stops, and removes the socket.
func (h *Host) Close() error {
	h.end()
	var err error
	if h.server != nil {
		err = h.server.Close()
	}
	h.running.Wait()
	h.notify.send("STOPPING=1")
	if h.worked.Load() {
		h.forgetStarts()
	}
	return err
}

// status returns the status with the fields that all programs share.
func (h *Host) status() Status {
	s := h.cfg.Status()
	if why := h.paused.Load(); why != nil {
		s.Message = *why
	}
	s.Program, s.Version, s.PID, s.Started = h.cfg.Program, program.Version(), os.Getpid(), h.started
	return s
}

// listen serves the status. Only the user of the program and root can connect.
func (h *Host) listen(ctx context.Context) error {
	if h.cfg.Socket == "" {
		return nil
	}
	l, err := listenUnix(ctx, h.cfg.Socket)
	if err != nil {
		return fmt.Errorf("the socket of the status: %w", err)
	}
	routes := chi.NewRouter()
	routes.Get(statusPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(h.status()) // the caller may be gone
	})
	if h.cfg.Upgrade != nil {
		routes.Post(upgradePath, h.serveUpgrade)
	}
	h.server = httpserver.New(routes)
	h.server.ConnContext = withPeer
	h.running.Go(func() {
		if err := h.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			h.cfg.Log.Warn().Err(err).Msg("the status of the service is not served any more")
		}
	})
	return nil
}

// listenUnix listens at a path. It replaces the socket of a process that has ended.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	if c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("another process serves %s: end it, or choose another path", path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSocket == 0 {
		return nil, fmt.Errorf("%s exists and is no socket", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}
