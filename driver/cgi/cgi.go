package cgi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/delegate-io/dlite/internal/artifact"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
)

// DefaultLogWait is how long an answer waits for its task's log.
const DefaultLogWait = 2 * time.Second

// Bounds of the cache.
const (
	DefaultCacheSize = 10 << 30
	DefaultCacheAge  = 30 * 24 * time.Hour
)

// Config says how a [Handler] runs programs. The zero value is ready.
type Config struct {
	// Cache is the folder of fetched programs and built repositories, which any
	// number of delegates on this machine may share. Empty means dlite/cgi in the
	// user's cache folder.
	Cache string

	// CacheSize and CacheAge bound the cache: its size in bytes, and how long ago
	// something was used last. What was used longest ago goes first, and nothing
	// that a call of any delegate uses. It is cleared after something was put
	// there, and about once an hour while tasks come, so a new program (up to 1 GiB)
	// needs room beside the size. What go keeps for builds is not in it. 0 means
	// [DefaultCacheSize] and [DefaultCacheAge], a negative value unbounded. Where
	// delegates share a cache, the smallest bound counts.
	CacheSize int64
	CacheAge  time.Duration

	// Env are variables for every program, as NAME=value: those of a proxy, say.
	// A task's own go before them.
	Env []string

	// InstallDeps installs the packages that a repository's task.yml names (deps),
	// with apt-get on Linux, through sudo where the delegate is not root, and with
	// brew on macOS. It lets whoever may send tasks change this machine, so the
	// default is to say in the task's log that it was not done.
	InstallDeps bool

	// Grace is the time between SIGTERM and SIGKILL for a program that is stopped
	// because its task's time is up, it was aborted, or its answer is too large. 0
	// means no SIGTERM.
	Grace time.Duration

	// OpenLog opens the log of a task. Nil means [ServiceLog] without a client.
	OpenLog OpenLog

	// LogWait is how long an answer waits until its task's log is delivered. What
	// is not delivered by then is delivered behind the answer's back. 0 means
	// [DefaultLogWait], a negative value not to wait.
	LogWait time.Duration
}

// Handler runs tasks as CGI programs. It is a [task.Handler], safe for concurrent
// use. It has to be closed.
type Handler struct {
	cfg   Config
	cache *artifact.Cache

	scratch scratch
	tidy    tidy
	logs    sync.WaitGroup
	ended   context.Context //nolint:containedctx // the handler's own life: its end ends the delivery of logs
	end     context.CancelFunc
}

// New makes a handler. It fails on a variable that is none, and when there is no
// folder for the cache.
func New(cfg Config) (*Handler, error) {
	if err := checkVariables(cfg.Env); err != nil {
		return nil, err
	}
	if cfg.Cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("this user has no cache folder for CGI programs, and the configuration names none: %w", err)
		}
		cfg.Cache = filepath.Join(user, "dlite", "cgi")
	}
	var err error
	if cfg.Cache, err = filepath.Abs(cfg.Cache); err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	if cfg.OpenLog == nil {
		cfg.OpenLog = ServiceLog(nil)
	}
	if cfg.LogWait == 0 {
		cfg.LogWait = DefaultLogWait
	}
	h := &Handler{cfg: cfg, cache: artifact.New(cfg.Cache, "program")}
	h.tidy.limits = artifact.Limits{Size: bound(cfg.CacheSize, DefaultCacheSize), Age: bound(cfg.CacheAge, DefaultCacheAge)}
	h.ended, h.end = context.WithCancel(context.Background())
	return h, nil
}

// Close waits until the logs of all tasks are delivered and the cache is cleared, and
// gives logs up when ctx ends; its error is then ctx's. Tasks end with their own contexts, so call it
// after them.
func (h *Handler) Close(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.logs.Wait()
		h.tidy.work.Wait()
	}()
	defer h.end()
	defer h.scratch.close()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		h.end()
		<-done
		return fmt.Errorf("logs of CGI tasks were given up: %w", ctx.Err())
	}
}

// ServeHTTP runs the task that the request carries and answers with an [Answer].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t, err := task.Decode(r, nil)
	if err != nil {
		task.WriteError(w, err)
		return
	}
	ctx := r.Context()
	set := secrets.FromContext(ctx)
	if set == nil {
		set = secrets.NewSet(secrets.Config{})
	}
	if t.Logger != nil {
		set.Add(t.Logger.Masks...)
	}
	answer, err := h.run(ctx, t, set)
	if err != nil {
		task.WriteError(w, concealed(err, set))
		return
	}
	task.WriteJSON(w, answer, http.StatusOK)
}

// run is a task's life.
func (h *Handler) run(ctx context.Context, t *task.Task, set *secrets.Set) (*Answer, error) {
	cfg, err := readConfig(t)
	if err != nil {
		return nil, err
	}
	log := h.openLog(ctx, t, set)
	answer, err := h.answer(ctx, t, cfg, log, set)
	log.close(h.cfg.LogWait)
	h.tidy.start(h.cache, logger.FromContext(ctx))
	if err != nil && ctx.Err() != nil {
		return nil, stopped(ctx)
	}
	return answer, err
}

func (h *Handler) answer(ctx context.Context, t *task.Task, cfg *config, log *taskLog, set *secrets.Set) (*Answer, error) {
	p, err := h.program(ctx, cfg, log, set)
	if err != nil {
		return nil, err
	}
	defer p.held.Release()
	if p.dir == "" {
		if p.dir, err = h.scratch.take(); err != nil {
			return nil, err
		}
		defer h.scratch.give(p.dir)
	}
	cmd := p.command()
	if cmd.Env, err = cfg.environment(h.cfg.Env, p.file, len(t.Data)); err != nil {
		return nil, err
	}
	out := &limited{max: maxAnswer}
	state, err := h.exec(ctx, cmd, t.Data, out, log)
	switch {
	case out.full:
		return nil, fmt.Errorf("the program's answer is larger than %d bytes", maxAnswer)
	case errors.Is(err, fs.ErrNotExist):
		// The program is there, or it could not have been held.
		return nil, fmt.Errorf("run the program: this machine lacks what runs it, which its #! line or its header names: %w", err)
	case err != nil:
		return nil, fmt.Errorf("run the program on %s/%s: %w", runtime.GOOS, runtime.GOARCH, err)
	}
	return judge(out.b, state, log.last)
}

// stopped says why a program was stopped.
func stopped(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &task.Error{
			Code: task.Timeout, Status: http.StatusGatewayTimeout,
			Err: errors.New("the task's time was up, and its program was stopped"),
		}
	}
	return fmt.Errorf("the program was stopped: %w", context.Cause(ctx))
}

// concealed hides secrets in an error, and keeps how the task ends.
func concealed(err error, set *secrets.Set) error {
	e := &task.Error{Code: task.Failed, Err: errors.New(set.Mask(err.Error()))}
	var known *task.Error
	if errors.As(err, &known) {
		e.Code, e.Status = known.Code, known.Status
	}
	return e
}
