package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
	"github.com/delegate-io/dlite/internal/gitremote"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task/stage"
)

// A git command that needs the network runs up to cloneAttempts times. clonePause is the first pause.
// Each further pause is four times as long.
const (
	cloneAttempts = 3
	clonePause    = 500 * time.Millisecond
)

// cloning is the execution of one clone.
type cloning struct {
	*stage.Clone
	git  *git
	from *gitremote.Remote
	log  io.Writer
}

// clone checks a repository out into the workspace (rule D2). Its errors and its log show no
// credentials.
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
	if c.git, err = d.newGit(tx, dir, c.from, c.SkipVerify, l); err != nil {
		return fmt.Errorf("clone %s: %w", c.from.URL, err)
	}
	defer c.git.close()
	if err = c.checkout(ctx); err == nil {
		return nil
	}
	hidden := secrets.NewSet(secrets.Config{})
	hidden.Add(c.from.Secrets()...)
	err = &cloneError{text: hidden.Mask(fmt.Sprintf("clone %s: %v", c.from.URL, err)), cause: err}
	_, _ = fmt.Fprintln(c.log, err)
	return err
}

// cloneError hides the credentials that the text of its cause may show.
type cloneError struct {
	text  string
	cause error
}

func (e *cloneError) Error() string { return e.text }

// Is reports only why a context ended.
func (e *cloneError) Is(target error) bool { return errors.Is(e.cause, target) }

// cloneDir creates the directory to clone into. The workspace is new and contains no links.
func cloneDir(tx *steps.Transaction, requested string) (string, error) {
	if requested == "" {
		return tx.WorkspaceDir(), nil
	}
	rel, ok := tx.InWorkspace(requested)
	if !ok {
		return "", fmt.Errorf("the clone's directory %q is not in the workspace", requested)
	}
	err := steps.WriteFile(tx.WorkspaceDir(), rel, &stage.File{Path: requested, IsDir: true, Mode: 0o777})
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
	if c.Merge && (c.Commit == "" || c.Branch == "" || c.Ref == "") {
		return errors.New("merge needs a commit, its ref and the branch to merge it into")
	}
	if c.Depth < 0 {
		return fmt.Errorf("depth %d is negative", c.Depth)
	}
	return c.checkSparse()
}

// checkSparse bounds the patterns, and refuses those that git would take as options or as several.
func (c *cloning) checkSparse() error {
	const mostPatterns, mostBytes = 1000, 1024
	if len(c.Sparse) > mostPatterns {
		return fmt.Errorf("sparse has %d patterns: at most %d are possible", len(c.Sparse), mostPatterns)
	}
	for i, pattern := range c.Sparse {
		if pattern == "" || len(pattern) > mostBytes || pattern[0] == '-' || strings.ContainsFunc(pattern, unicode.IsControl) {
			return fmt.Errorf("sparse[%d] is %.64q: it must be a directory or a pattern of at most %d bytes that does not begin with -", i, pattern, mostBytes)
		}
	}
	return nil
}

// sparseMode returns the option of git sparse-checkout for the patterns.
func (c *cloning) sparseMode() string {
	if slices.ContainsFunc(c.Sparse, func(p string) bool { return strings.ContainsAny(p, `*?[!\`) }) {
		return "--no-cone"
	}
	return "--cone"
}

// checkout clones and checks out the whole repository.
func (c *cloning) checkout(ctx context.Context) error {
	if c.LFS {
		// Check before the first fetch.
		if _, err := c.git.output(ctx, "lfs", "version"); err != nil {
			return c.preferStop(ctx, err, "lfs is set, but git-lfs is not in the PATH")
		}
	}
	_, _ = fmt.Fprintf(c.log, "Cloning %s (%s)\n", c.from.URL, c.describe())
	start := []string{"init", "--quiet", "--template="}
	if len(c.Commit) == 64 {
		start = append(start, "--object-format=sha256")
	}
	if err := c.runLocal(ctx, start...); err != nil {
		return err
	}
	if err := c.runLocal(ctx, "remote", "add", "origin", c.from.URL); err != nil {
		return err
	}
	if len(c.Sparse) > 0 {
		if err := c.runLocal(ctx, append([]string{"sparse-checkout", "set", c.sparseMode()}, c.Sparse...)...); err != nil {
			return fmt.Errorf("sparse: %w", err)
		}
	}
	target, err := c.fetchTarget(ctx)
	if err != nil {
		return err
	}
	if err := c.runLocal(ctx, append([]string{"checkout", "--quiet", "--force"}, target...)...); err != nil {
		return err
	}
	if c.Merge {
		if err := c.merge(ctx); err != nil {
			return err
		}
	}
	if c.LFS {
		if err := c.runLocal(ctx, "lfs", "install", "--local", "--skip-repo"); err != nil {
			return err
		}
		if err := c.runRemote(ctx, "lfs", "pull", "origin"); err != nil {
			return fmt.Errorf("fetch lfs objects: %w", err)
		}
	}
	if c.Submodules {
		args := []string{"submodule", "update", "--init", "--recursive", "--force"}
		if c.Depth > 0 {
			args = append(args, "--depth", strconv.Itoa(c.Depth))
		}
		if err := c.runRemote(ctx, args...); err != nil {
			return fmt.Errorf("submodules: %w", err)
		}
	}
	head, err := c.git.output(ctx, "log", "-1", "--format=%h %s")
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(c.log, "Checked out %s\n", head)
	return nil
}

// describe returns the repository and the commit, for the log.
func (c *cloning) describe() string {
	switch {
	case c.Merge:
		return "commit " + c.Commit + " of ref " + c.Ref + " merged into branch " + c.Branch
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

// base returns the ref that Branch or Ref means.
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

// fetchTarget fetches the requested ref or commit and returns the arguments of checkout for it.
func (c *cloning) fetchTarget(ctx context.Context) ([]string, error) {
	switch {
	case c.Merge:
		return c.fetchBranch(ctx, strings.TrimPrefix(c.Branch, "refs/heads/"))
	case c.Commit != "" && c.Branch != "":
		return []string{"-B", strings.TrimPrefix(c.Branch, "refs/heads/"), c.Commit}, c.fetchCommitOf(ctx, c.base(), c.baseName())
	case c.Commit != "" && c.base() != "":
		return []string{"--detach", c.Commit}, c.fetchCommitOf(ctx, c.base(), c.baseName())
	case c.Commit != "":
		return []string{"--detach", c.Commit}, c.fetchCommit(ctx)
	case c.Tag != "":
		ref := "refs/tags/" + strings.TrimPrefix(c.Tag, "refs/tags/")
		return []string{"--detach", ref}, c.explainMissing(c.fetch(ctx, "+"+ref+":"+ref), "tag "+c.Tag)
	case c.Branch != "":
		return c.fetchBranch(ctx, strings.TrimPrefix(c.Branch, "refs/heads/"))
	case c.Ref != "":
		return []string{"--detach", "FETCH_HEAD"}, c.explainMissing(c.fetch(ctx, c.Ref), "ref "+c.Ref)
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
	return []string{"--detach", "FETCH_HEAD"}, c.explainMissing(c.fetch(ctx, "HEAD"), "default branch: the repository may be empty")
}

func (c *cloning) fetchBranch(ctx context.Context, branch string) ([]string, error) {
	tracking := "refs/remotes/origin/" + branch
	err := c.fetch(ctx, "+refs/heads/"+branch+":"+tracking)
	return []string{"-B", branch, "--track", "origin/" + branch}, c.explainMissing(err, "branch "+branch)
}

// fetchCommit fetches a commit, even if no ref contains it.
func (c *cloning) fetchCommit(ctx context.Context) error {
	err := c.fetch(ctx, c.Commit)
	var failed *cloneFailure
	if errors.As(err, &failed) && (failed.kind == failedUnadvertised || failed.kind == failedNoRef) {
		// A server may refuse a commit that is not the tip of a ref.
		if err = c.fetchAll(ctx); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	if !c.hasCommit(ctx, c.Commit) {
		return c.preferStop(ctx, nil, "the repository has no commit "+c.Commit+", or no branch or tag that leads to it")
	}
	return nil
}

// fetchAll fetches all branches and tags with their whole history.
func (c *cloning) fetchAll(ctx context.Context) error {
	return c.runRemote(ctx, "fetch", "--progress", "--force", "--tags", "--no-recurse-submodules", "origin", "+refs/heads/*:refs/remotes/origin/*")
}

func (c *cloning) hasCommit(ctx context.Context, commit string) bool {
	_, err := c.git.output(ctx, "cat-file", "-e", commit+"^{commit}")
	return err == nil
}

func (c *cloning) leadsTo(ctx context.Context, ref string) bool {
	_, err := c.git.output(ctx, "merge-base", "--is-ancestor", c.Commit, ref)
	return err == nil
}

func (c *cloning) fetch(ctx context.Context, refspec string) error {
	args := []string{"fetch", "--progress", "--force", "--no-recurse-submodules"}
	if c.Depth > 0 {
		args = append(args, "--no-tags", "--depth", strconv.Itoa(c.Depth))
	}
	return c.runRemote(ctx, append(args, "origin", refspec)...)
}

// cloneFailure is a git command that failed for a known reason.
type cloneFailure struct {
	kind gitFailure
	text string
}

func (e *cloneFailure) Error() string { return e.text }

// explainMissing replaces the error for a missing ref by one that names it.
func (c *cloning) explainMissing(err error, what string) error {
	var failed *cloneFailure
	if errors.As(err, &failed) && failed.kind == failedNoRef {
		return fmt.Errorf("the repository has no %s", what)
	}
	return err
}

// preferStop returns the error of the context if the context has ended, and otherwise an error with
// text.
func (c *cloning) preferStop(ctx context.Context, err error, text string) error {
	if ctx.Err() != nil {
		return gitStopped(ctx)
	}
	var ran *gitError
	if err != nil && !errors.As(err, &ran) {
		return err
	}
	return errors.New(text)
}

// runLocal runs a git command that needs no network.
func (c *cloning) runLocal(ctx context.Context, args ...string) error {
	out := &gitOutput{to: c.log}
	err := c.git.run(ctx, out, args...)
	out.flush()
	return c.explain(err, out)
}

// runRemote runs a git command that needs the network.
func (c *cloning) runRemote(ctx context.Context, args ...string) error {
	return c.retry(ctx, &gitOutput{to: c.log}, args...)
}

// retry runs a git command again if it failed because of the network.
func (c *cloning) retry(ctx context.Context, out *gitOutput, args ...string) error {
	for attempt, pause := 1, clonePause; ; attempt, pause = attempt+1, 4*pause {
		out.kept = nil
		err := c.git.run(ctx, out, args...)
		out.flush()
		var ran *gitError
		if err == nil || !errors.As(err, &ran) || attempt == cloneAttempts || out.failure() != failedNetwork {
			return c.explain(err, out)
		}
		_, _ = fmt.Fprintf(c.log, "git %s failed, perhaps because of the network; attempt %d of %d follows\n", args[0], attempt+1, cloneAttempts)
		timer := time.NewTimer(pause + rand.N(pause/2))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return gitStopped(ctx)
		}
	}
}

// explain converts the output of git to an error that names the reason.
func (c *cloning) explain(err error, out *gitOutput) error {
	var ran *gitError
	if !errors.As(err, &ran) {
		return err
	}
	kind, reason := out.failure(), out.reason()
	text := map[gitFailure]string{
		failedAuth:     "authentication failed: the credentials are wrong, missing or not sufficient",
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
