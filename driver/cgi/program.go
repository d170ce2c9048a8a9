package cgi

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"runtime"

	"github.com/delegate-io/dlite/internal/artifact"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
)

// program is a program that is ready to run.
type program struct {
	// file is the program, or the script for the interpreter.
	file        string
	interpreter string
	// dir is the working directory; empty means an empty directory for the call.
	dir string
	// held prevents the removal from the cache.
	held *artifact.Held
}

func (p *program) command() *exec.Cmd {
	cmd := &exec.Cmd{Path: p.file, Args: []string{p.file}, Dir: p.dir}
	if p.interpreter != "" {
		cmd.Path, cmd.Args = p.interpreter, []string{p.interpreter, p.file}
	}
	return cmd
}

// program returns the program of a config, and downloads or builds it if it is not in the
// cache. The caller must release it.
func (h *Handler) program(ctx context.Context, c *config, log *taskLog, set *secrets.Set) (*program, error) {
	if c.Executable == nil {
		return h.built(ctx, c.Repository, log, set)
	}
	exe, err := artifact.Choose(c.Executable.Executables, runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return nil, task.BadRequest(fmt.Errorf("program %q: %w", c.Executable.Name, err))
	}
	exe.Compressed = exe.Compressed || c.Executable.Compressed
	held, err := h.cache.Program(ctx, exe, c.Executable.Name+" "+c.Executable.Version, log.say)
	if err != nil {
		return nil, fmt.Errorf("program %q: %w", c.Executable.Name, err)
	}
	return &program{file: held.Path, held: held}, nil
}

// Command returns the command of the program that a config names (docs/protocol.md, section 2), for a caller that runs
// the program itself, such as package daemonset. It downloads or builds a program that is not in the cache; messages
// about that go to the logger of ctx. The command has no environment, and a working directory only for a repository.
// The caller must call release after the end of the program: until then no cache limit removes the program.
func (h *Handler) Command(ctx context.Context, config json.RawMessage) (cmd *exec.Cmd, release func(), err error) {
	t := &task.Task{ID: "program", Type: "program", Config: config}
	c, err := readConfig(t)
	if err != nil {
		return nil, nil, err
	}
	set := secrets.FromContext(ctx)
	if set == nil {
		set = secrets.NewSet(secrets.Config{})
	}
	log := h.newTaskLog(ctx, t, set)
	defer log.close(h.cfg.LogWait)
	p, err := h.program(ctx, c, log, set)
	if err != nil {
		return nil, nil, maskedError(err, set)
	}
	return p.command(), p.held.Release, nil
}
