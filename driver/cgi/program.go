package cgi

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"

	"github.com/delegate-io/dlite/internal/artifact"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
)

// program is what is run.
type program struct {
	// file is the program, or the script that interpreter runs.
	file        string
	interpreter string
	// dir is the working directory; empty is one of the call's own.
	dir string
	// held keeps it in the cache.
	held *artifact.Held
}

func (p *program) command() *exec.Cmd {
	cmd := &exec.Cmd{Path: p.file, Args: []string{p.file}, Dir: p.dir}
	if p.interpreter != "" {
		cmd.Path, cmd.Args = p.interpreter, []string{p.interpreter, p.file}
	}
	return cmd
}

// program finds what a task's config names, and fetches it when it is not there. It
// is the caller's to release.
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
