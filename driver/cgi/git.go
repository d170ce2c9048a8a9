package cgi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/delegate-io/dlite/internal/gitremote"
	"github.com/delegate-io/dlite/internal/process"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// git checks out one commit of a repository.
type git struct {
	h       *Handler
	program string
	from    *gitremote.Remote
	home    string
	env     []string
	ref     string // empty means the default branch
	commit  string
	log     *taskLog
}

func (h *Handler) newGit(r *repository, log *taskLog, set *secrets.Set) (*git, error) {
	from, err := gitremote.New(&stage.Clone{URL: r.Clone})
	switch {
	case err != nil:
		return nil, task.BadRequest(fmt.Errorf("repository: %w", err))
	case r.SHA != "" && !gitremote.IsCommit(r.SHA):
		return nil, task.BadRequest(errors.New("repository: sha is not the full name of a commit"))
	case r.Ref != "" && !gitremote.IsRef(r.Ref):
		return nil, task.BadRequest(errors.New("repository: ref is not a valid name"))
	}
	set.Add(from.Secrets()...)
	g := &git{h: h, from: from, ref: r.Ref, commit: strings.ToLower(r.SHA), log: log}
	if g.program, err = exec.LookPath("git"); err != nil {
		return nil, errors.New("repository: git is not in the PATH of the delegate")
	}
	if g.home, err = os.MkdirTemp("", "dlite-git-"); err != nil {
		return nil, err
	}
	if err := g.prepare(); err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

// prepare writes the configuration and sets the environment.
func (g *git) prepare() error {
	if err := g.from.WriteConfig(g.home); err != nil {
		return err
	}
	env := g.from.Environment(g.home)
	if more := g.h.cfg.GitEnvironment; more != nil {
		vars, err := more(g.home)
		if err != nil {
			return fmt.Errorf("the environment of git: %w", err)
		}
		maps.Copy(env, vars)
	}
	g.env = process.List(env)
	return nil
}

func (g *git) close() { _ = os.RemoveAll(g.home) }

// resolve asks the remote for the commit if the task has only a ref: branches move.
func (g *git) resolve(ctx context.Context) error {
	if g.commit != "" {
		return nil
	}
	name := g.ref
	if name == "" {
		name = "HEAD"
	}
	out := &limited{max: 1 << 20}
	if err := g.run(ctx, g.home, out, "ls-remote", "--", g.from.URL, name, name+"^{}"); err != nil {
		return err
	}
	found := map[string]string{}
	for line := range bytes.Lines(out.b) {
		if commit, ref, ok := strings.Cut(strings.TrimSpace(string(line)), "\t"); ok && gitremote.IsCommit(commit) {
			found[ref] = commit
		}
	}
	// First the full name, then in the order of git for short names. For an annotated
	// tag the commit that it points to counts.
	for _, ref := range []string{name, "refs/tags/" + name, "refs/heads/" + name} {
		for _, form := range []string{ref + "^{}", ref} {
			if g.commit = found[form]; g.commit != "" {
				return nil
			}
		}
	}
	return fmt.Errorf("%s has no %s", g.from.URL, name)
}

// checkout writes the files of the commit to dir, without its history.
func (g *git) checkout(ctx context.Context, dir string) error {
	g.log.say("Cloning %s (commit %s)", g.from.URL, g.commit)
	start := []string{"init", "--quiet", "--template="}
	if len(g.commit) == 64 {
		start = append(start, "--object-format=sha256")
	}
	if err := g.run(ctx, dir, g.log, start...); err != nil {
		return err
	}
	const quiet = "--no-recurse-submodules"
	if err := g.run(ctx, dir, g.log, "fetch", "--quiet", quiet, "--no-tags", "--depth=1", "--", g.from.URL, g.commit); err != nil {
		if ctx.Err() != nil {
			return err
		}
		// Servers may refuse a commit that is not the tip of a ref.
		if err := g.run(ctx, dir, g.log, "fetch", "--quiet", quiet, "--tags", "--", g.from.URL, "+refs/heads/*:refs/remotes/origin/*"); err != nil {
			return err
		}
	}
	if err := g.run(ctx, dir, g.log, "checkout", "--quiet", "--force", "--detach", g.commit); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(dir, ".git"))
}

func (g *git) run(ctx context.Context, dir string, out io.Writer, args ...string) error {
	cmd := &exec.Cmd{Path: g.program, Args: append([]string{"git"}, args...), Dir: dir, Env: g.env}
	state, err := g.h.exec(ctx, cmd, nil, out, g.log)
	if err == nil && process.Code(state) != 0 {
		err = fmt.Errorf("exit code %d", process.Code(state))
	}
	if err != nil {
		return fmt.Errorf("git %s: %w", args[0], err)
	}
	return nil
}
