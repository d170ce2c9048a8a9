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

// Config configures a [Handler]. The zero value is valid.
type Config struct {
	// Cache is the directory of downloaded programs and built repositories. Several
	// delegates on this machine may share it. Empty means dlite/cgi in the cache
	// directory of the user.
	Cache string

	// CacheSize limits the size of the cache in bytes, CacheAge the time since the
	// last use of an entry. The handler removes the least recently used entries first,
	// and never an entry that a call of any delegate uses. It does so after it adds an
	// entry, and about once an hour while tasks arrive. So a new program (up to 1 GiB)
	// needs space in addition to CacheSize. The build cache of go is not part of it. 0
	// means 10 GiB and 30 days; a negative value means no limit. If delegates share a
	// cache, the smallest limit applies.
	CacheSize int64
	CacheAge  time.Duration

	// Env are variables of each program, as NAME=value, for example for a proxy.
	// Variables of the task override them.
	Env []string

	// InstallDeps installs the packages in the deps of a repository's task.yml: with
	// apt-get on Linux (through sudo if the delegate is not root), with brew on macOS.
	// Then each sender of tasks can change this machine. By default the handler does
	// not install them, and writes that to the log of the task.
	InstallDeps bool

	// Grace is the time between SIGTERM and SIGKILL when the handler stops a program,
	// because of the time-out of its task, an abort, or a too large answer. 0 means no
	// SIGTERM.
	Grace time.Duration

	// OpenLog opens the log for the standard error of a task's program. URL and Key of
	// the target are empty if the task names no log service. OpenLog must return at
	// once. Errors come from Write or Close, which must return eventually, and do not
	// fail the task. If Write blocks for 2 s, the handler drops lines and does not delay
	// the program. Nil, as the function or as its result, means the log service in the
	// task (docs/protocol.md, section 4), or, for a task without a log service, one event
	// at info level for each line in the logger of the context.
	OpenLog func(ctx context.Context, target logger.StreamConfig) logger.TaskLog

	// HTTPClient makes the requests to log services and the downloads of programs. Nil
	// means clients that use HTTP_PROXY.
	HTTPClient *http.Client

	// GitEnvironment returns further variables for git, such as those for certificates
	// and a proxy. They may refer to files that it writes to dir, which is removed after
	// the clone. Only git's own processes get them. See GitEnvironment of client.HTTP.
	// Nil means none.
	GitEnvironment func(dir string) (map[string]string, error)

	// LogWait limits the time that an answer waits for the delivery of the log of its
	// task. The delivery continues after the answer if necessary. 0 means 2 s; with a
	// negative value the answer does not wait.
	LogWait time.Duration
}

// Handler runs tasks as CGI programs. It is a [task.Handler], safe for concurrent
// use. The caller must close it.
type Handler struct {
	cfg   Config
	cache *artifact.Cache

	scratch scratch
	tidy    tidy
	logs    sync.WaitGroup
	ended   context.Context //nolint:containedctx // ends with the handler, and then ends the delivery of logs
	end     context.CancelFunc
}

// New creates a handler. It fails if a variable is not valid, or if it cannot determine
// or create the directory of the cache.
func New(cfg Config) (*Handler, error) {
	if err := checkVariables(cfg.Env); err != nil {
		return nil, err
	}
	if cfg.Cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("no cache directory for CGI programs: this user has none, and Config.Cache is empty: %w", err)
		}
		cfg.Cache = filepath.Join(user, "dlite", "cgi")
	}
	var err error
	if cfg.Cache, err = filepath.Abs(cfg.Cache); err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	if cfg.LogWait == 0 {
		cfg.LogWait = 2 * time.Second
	}
	h := &Handler{cfg: cfg, cache: artifact.New(cfg.Cache, "program").With(cfg.HTTPClient)}
	h.tidy.limits = artifact.Limits{Size: bound(cfg.CacheSize, 10<<30), Age: bound(cfg.CacheAge, 30*24*time.Hour)}
	h.ended, h.end = context.WithCancel(context.Background())
	return h, nil
}

// Close waits until the logs of all tasks are delivered and the cache is within its
// limits. If ctx ends first, Close drops the remaining logs and returns the error of
// ctx. It does not stop tasks: call it after they have ended.
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
		return fmt.Errorf("the delivery of logs of CGI tasks was cancelled: %w", ctx.Err())
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
		task.WriteError(w, maskedError(err, set))
		return
	}
	task.WriteJSON(w, answer, http.StatusOK)
}

// run runs a task from its config to its answer.
func (h *Handler) run(ctx context.Context, t *task.Task, set *secrets.Set) (*Answer, error) {
	cfg, err := readConfig(t)
	if err != nil {
		return nil, err
	}
	log := h.newTaskLog(ctx, t, set)
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
		// The program exists: the cache has returned it.
		return nil, fmt.Errorf("run the program: the interpreter in its #! line, or the loader in its header, does not exist on this machine: %w", err)
	case err != nil:
		return nil, fmt.Errorf("run the program on %s/%s: %w", runtime.GOOS, runtime.GOARCH, err)
	}
	return newAnswer(out.b, state, log.last)
}

// stopped returns the reason why a program was stopped.
func stopped(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &task.Error{
			Code: task.Timeout, Status: http.StatusGatewayTimeout,
			Err: errors.New("the time-out of the task has passed, and its program was stopped"),
		}
	}
	return fmt.Errorf("the program was stopped: %w", context.Cause(ctx))
}

// maskedError masks the secrets in an error, and keeps its code.
func maskedError(err error, set *secrets.Set) error {
	e := &task.Error{Code: task.Failed, Err: errors.New(set.Mask(err.Error()))}
	var known *task.Error
	if errors.As(err, &known) {
		e.Code, e.Status = known.Code, known.Status
	}
	return e
}
