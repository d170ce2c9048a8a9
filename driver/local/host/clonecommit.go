package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// wholeHistory is a depth that fetches the whole history, also into a repository that has it already.
const wholeHistory = "2147483647"

// fetchedRef is the ref that leads to the commit of a clone.
const fetchedRef = "refs/dlite/clone"

// fetchCommitOf fetches a ref and finds the commit in it. If the depth cuts the commit off, it fetches
// the whole history: only that shows whether the ref contains the commit.
func (c *cloning) fetchCommitOf(ctx context.Context, ref, name string) error {
	refspec := "+" + ref + ":" + fetchedRef
	if err := c.explainMissing(c.fetch(ctx, refspec), name); err != nil {
		return err
	}
	if !c.leadsTo(ctx, fetchedRef) && c.Depth > 0 {
		if err := c.fetchWhole(ctx, refspec); err != nil {
			return err
		}
	}
	if !c.leadsTo(ctx, fetchedRef) {
		return c.preferStop(ctx, nil, "commit "+c.Commit+" is not part of "+name)
	}
	return nil
}

func (c *cloning) fetchWhole(ctx context.Context, refspecs ...string) error {
	args := []string{"fetch", "--progress", "--force", "--depth", wholeHistory, "--no-recurse-submodules", "origin"}
	return c.runRemote(ctx, append(args, refspecs...)...)
}

// merge merges the commit into the branch that is checked out. A merge needs the commit at which the
// histories part: if the depth cuts it off, merge fetches the whole history.
func (c *cloning) merge(ctx context.Context) error {
	if err := c.fetchCommitOf(ctx, c.Ref, "ref "+c.Ref); err != nil {
		return err
	}
	if _, err := c.git.output(ctx, "merge-base", "HEAD", c.Commit); err != nil && c.Depth > 0 {
		branch := strings.TrimPrefix(c.Branch, "refs/heads/")
		if err := c.fetchWhole(ctx, "+refs/heads/"+branch+":refs/remotes/origin/"+branch, "+"+c.Ref+":"+fetchedRef); err != nil {
			return err
		}
	}
	err := c.runLocal(ctx, "-c", "user.name=dlite", "-c", "user.email=dlite@localhost", "merge", "--quiet", "--no-edit", c.Commit)
	var failed *cloneFailure
	if errors.As(err, &failed) {
		return fmt.Errorf("merge commit %s into branch %s: %w", c.Commit, c.Branch, err)
	}
	return err
}
