package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
	"github.com/delegate-io/dlite/internal/gitremote"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task/stage"
)

// How often what needs the network is tried, and how long the first pause is;
// each next one is four times as long.
const (
	cloneAttempts = 3
	clonePause    = 500 * time.Millisecond
)

// wholeHistory is a depth that means all, also in a repository that is whole.
const wholeHistory = "2147483647"

// cloning is one clone under way.
type cloning struct {
	*stage.Clone
	git  *git
	from *gitremote.Remote
	log  io.Writer
}

// clone checks a repository out into the workspace (SPEC D2). Its errors and
// what it logs show no credentials.
func (d *Driver) clone(ctx context.Context, tx *steps.Transaction, env *driver.Environment, l driver.Ledger) error {
	c := &cloning{Clone: env.Clone, log: env.Log}
	if c.log == nil {
		c.log = io.Discard
	}
	var err error
	if c.from, err = gitremote.New(c.Clone); err != nil {
		return err
	}
	if err := c.check(); err != nil {
		return err
	}
	dir, err := cloneDir(tx, c.Dir)
	if err != nil {
		return err
	}
	if c.git, err = d.newGit(tx, dir, c.from, l); err != nil {
		return fmt.Errorf("clone %s: %w", c.from.URL, err)
	}
	defer c.git.close()
	if err = c.all(ctx); err == nil {
		return nil
	}
	hidden := secrets.NewSet(secrets.Config{})
	hidden.Add(c.from.Secrets()...)
	err = &cloneError{text: hidden.Mask(fmt.Sprintf("clone %s: %v", c.from.URL, err)), cause: err}
	_, _ = fmt.Fprintln(c.log, err)
	return err
}

// cloneError hides what its cause would show.
type cloneError struct {
	text  string
	cause error
}

func (e *cloneError) Error() string { return e.text }

// Is lets callers see why a context ended, and nothing else.
func (e *cloneError) Is(target error) bool { return errors.Is(e.cause, target) }

// cloneDir makes the folder to clone into. The workspace is new: there are no
// links in it yet.
func cloneDir(tx *steps.Transaction, wish string) (string, error) {
	if wish == "" {
		return tx.WorkspaceDir(), nil
	}
	rel, ok := tx.InWorkspace(wish)
	if !ok {
		return "", fmt.Errorf("the clone's folder %q is not in the workspace", wish)
	}
	err := steps.WriteFile(tx.WorkspaceDir(), rel, &stage.File{Path: wish, IsDir: true, Mode: 0o777})
	return filepath.Join(tx.WorkspaceDir(), rel), err
}

func (c *cloning) check() error {
	if c.Commit != "" && !gitremote.IsCommit(c.Commit) {
		return fmt.Errorf("commit %q is not a full object name", c.Commit)
	}
	for what, name := range map[string]string{"branch": c.Branch, "tag": c.Tag, "ref": c.Ref} {
		if name != "" && !gitremote.IsRef(name) {
			return fmt.Errorf("%s %q is not a valid name", what, name)
		}
	}
	if c.Depth < 0 {
		return fmt.Errorf("depth %d is negative", c.Depth)
	}
	return nil
}

// all does the whole of it.
func (c *cloning) all(ctx context.Context) error {
	if c.LFS {
		// Asked before anything is fetched.
		if _, err := c.git.ask(ctx, "lfs", "version"); err != nil {
			return c.unless(ctx, err, "lfs is wanted, but git-lfs was not found in the PATH")
		}
	}
	_, _ = fmt.Fprintf(c.log, "Cloning %s (%s)\n", c.from.URL, c.what())
	start := []string{"init", "--quiet", "--template="}
	if len(c.Commit) == 64 {
		start = append(start, "--object-format=sha256")
	}
	if err := c.must(ctx, start...); err != nil {
		return err
	}
	if err := c.must(ctx, "remote", "add", "origin", c.from.URL); err != nil {
		return err
	}
	target, err := c.fetchTarget(ctx)
	if err != nil {
		return err
	}
	if err := c.must(ctx, append([]string{"checkout", "--quiet", "--force"}, target...)...); err != nil {
		return err
	}
	if c.LFS {
		if err := c.must(ctx, "lfs", "install", "--local", "--skip-repo"); err != nil {
			return err
		}
		if err := c.network(ctx, "lfs", "pull", "origin"); err != nil {
			return fmt.Errorf("fetch lfs objects: %w", err)
		}
	}
	if c.Submodules {
		args := []string{"submodule", "update", "--init", "--recursive", "--force"}
		if c.Depth > 0 {
			args = append(args, "--depth", strconv.Itoa(c.Depth))
		}
		if err := c.network(ctx, args...); err != nil {
			return fmt.Errorf("submodules: %w", err)
		}
	}
	head, err := c.git.ask(ctx, "log", "-1", "--format=%h %s")
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(c.log, "Checked out %s\n", head)
	return nil
}

// what says what is cloned.
func (c *cloning) what() string {
	switch {
	case c.Commit != "" && c.base() != "":
		return "commit " + c.Commit + " of " + c.baseName()
	case c.Commit != "":
		return "commit " + c.Commit
	case c.Tag != "":
		return "tag " + c.Tag
	case c.base() != "":
		return c.baseName()
	}
	return "default branch"
}

// base is the ref that Branch or Ref means.
func (c *cloning) base() string {
	if c.Branch != "" {
		return "refs/heads/" + strings.TrimPrefix(c.Branch, "refs/heads/")
	}
	return c.Ref
}

func (c *cloning) baseName() string {
	if c.Branch != "" {
		return "branch " + c.Branch
	}
	return "ref " + c.Ref
}

// fetchTarget fetches what is wanted and returns checkout's arguments for it.
func (c *cloning) fetchTarget(ctx context.Context) ([]string, error) {
	switch {
	case c.Commit != "" && c.base() != "":
		return []string{"--detach", c.Commit}, c.fetchCommitOf(ctx)
	case c.Commit != "":
		return []string{"--detach", c.Commit}, c.fetchCommit(ctx)
	case c.Tag != "":
		ref := "refs/tags/" + strings.TrimPrefix(c.Tag, "refs/tags/")
		return []string{"--detach", ref}, c.named(c.fetch(ctx, "+"+ref+":"+ref), "tag "+c.Tag)
	case c.Branch != "":
		return c.fetchBranch(ctx, strings.TrimPrefix(c.Branch, "refs/heads/"))
	case c.Ref != "":
		return []string{"--detach", "FETCH_HEAD"}, c.named(c.fetch(ctx, c.Ref), "ref "+c.Ref)
	}
	heads := &gitOutput{}
	if err := c.retry(ctx, heads, "ls-remote", "--symref", "origin", "HEAD"); err != nil {
		return nil, err
	}
	for _, line := range heads.kept {
		if after, ok := strings.CutPrefix(line, "ref: refs/heads/"); ok {
			if branch, _, ok := strings.Cut(after, "\t"); ok && gitremote.IsRef(branch) {
				return c.fetchBranch(ctx, branch)
			}
		}
	}
	return []string{"--detach", "FETCH_HEAD"}, c.named(c.fetch(ctx, "HEAD"), "default branch: the repository may be empty")
}

func (c *cloning) fetchBranch(ctx context.Context, branch string) ([]string, error) {
	tracking := "refs/remotes/origin/" + branch
	err := c.fetch(ctx, "+refs/heads/"+branch+":"+tracking)
	return []string{"-B", branch, "--track", "origin/" + branch}, c.named(err, "branch "+branch)
}

// fetchCommit fetches a commit that any ref, or none, leads to.
func (c *cloning) fetchCommit(ctx context.Context) error {
	err := c.fetch(ctx, c.Commit)
	var failed *cloneFailure
	if errors.As(err, &failed) && (failed.kind == failedUnadvertised || failed.kind == failedNoRef) {
		// Servers may refuse what is not the tip of a ref.
		if err = c.fetchAll(ctx); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	if !c.has(ctx, c.Commit) {
		return c.unless(ctx, nil, "the repository has no commit "+c.Commit+", or no branch or tag that leads to it")
	}
	return nil
}

// fetchAll fetches what every branch and tag leads to, whatever the depth.
func (c *cloning) fetchAll(ctx context.Context) error {
	return c.network(ctx, "fetch", "--progress", "--force", "--tags", "--no-recurse-submodules", "origin", "+refs/heads/*:refs/remotes/origin/*")
}

// fetchCommitOf fetches a ref and finds the commit in it. Where depth has cut
// the commit off, the rest is fetched too: whether it belongs to the ref cannot
// be told otherwise.
func (c *cloning) fetchCommitOf(ctx context.Context) error {
	const kept = "refs/dlite/clone"
	refspec := "+" + c.base() + ":" + kept
	if err := c.named(c.fetch(ctx, refspec), c.baseName()); err != nil {
		return err
	}
	if !c.leadsTo(ctx, kept) && c.Depth > 0 {
		if err := c.network(ctx, "fetch", "--progress", "--force", "--depth", wholeHistory, "--no-recurse-submodules", "origin", refspec); err != nil {
			return err
		}
	}
	if !c.leadsTo(ctx, kept) {
		return c.unless(ctx, nil, "commit "+c.Commit+" is not part of "+c.baseName())
	}
	return nil
}

func (c *cloning) has(ctx context.Context, commit string) bool {
	_, err := c.git.ask(ctx, "cat-file", "-e", commit+"^{commit}")
	return err == nil
}

func (c *cloning) leadsTo(ctx context.Context, ref string) bool {
	_, err := c.git.ask(ctx, "merge-base", "--is-ancestor", c.Commit, ref)
	return err == nil
}

func (c *cloning) fetch(ctx context.Context, refspec string) error {
	args := []string{"fetch", "--progress", "--force", "--no-recurse-submodules"}
	if c.Depth > 0 {
		args = append(args, "--no-tags", "--depth", strconv.Itoa(c.Depth))
	}
	return c.network(ctx, append(args, "origin", refspec)...)
}

// cloneFailure is what git could not do.
type cloneFailure struct {
	kind gitFailure
	text string
}

func (e *cloneFailure) Error() string { return e.text }

// named says what was not found.
func (c *cloning) named(err error, what string) error {
	var failed *cloneFailure
	if errors.As(err, &failed) && failed.kind == failedNoRef {
		return fmt.Errorf("the repository has no %s", what)
	}
	return err
}

// unless prefers the context's end to what it made fail.
func (c *cloning) unless(ctx context.Context, err error, text string) error {
	if ctx.Err() != nil {
		return gitStopped(ctx)
	}
	var ran *gitError
	if err != nil && !errors.As(err, &ran) {
		return err
	}
	return errors.New(text)
}

// must runs what uses no network.
func (c *cloning) must(ctx context.Context, args ...string) error {
	out := &gitOutput{to: c.log}
	err := c.git.run(ctx, out, args...)
	out.flush()
	return c.explain(err, out)
}

// network runs what uses the network.
func (c *cloning) network(ctx context.Context, args ...string) error {
	return c.retry(ctx, &gitOutput{to: c.log}, args...)
}

// retry runs git again when the network may be to blame.
func (c *cloning) retry(ctx context.Context, out *gitOutput, args ...string) error {
	for attempt, pause := 1, clonePause; ; attempt, pause = attempt+1, 4*pause {
		out.kept = nil
		err := c.git.run(ctx, out, args...)
		out.flush()
		var ran *gitError
		if err == nil || !errors.As(err, &ran) || attempt == cloneAttempts || out.failure() != failedNetwork {
			return c.explain(err, out)
		}
		_, _ = fmt.Fprintf(c.log, "git %s failed for what may pass; trying again (%d of %d)\n", args[0], attempt+1, cloneAttempts)
		timer := time.NewTimer(pause + rand.N(pause/2))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return gitStopped(ctx)
		}
	}
}

// explain turns git's words into what went wrong.
func (c *cloning) explain(err error, out *gitOutput) error {
	var ran *gitError
	if !errors.As(err, &ran) {
		return err
	}
	kind, reason := out.failure(), out.reason()
	text := map[gitFailure]string{
		failedAuth:     "authentication failed: the credentials are wrong, missing or do not suffice",
		failedHostKey:  "the host's ssh key is not known on this machine",
		failedNotFound: "the repository was not found, or the credentials may not see it",
		failedNetwork:  "the network failed",
		failedProtocol: "a transport that is not allowed",
	}[kind]
	if text != "" {
		reason = text + " (" + reason + ")"
	}
	return &cloneFailure{kind: kind, text: fmt.Sprintf("%v: %s", ran, reason)}
}
