//go:build unix

package local_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/task/stage"
)

func TestACloneMergesACommitIntoABranch(t *testing.T) {
	t.Parallel()
	s := newGitServer(t, nil)
	p := s.addProject(t, "project")
	dir := filepath.Join(s.dir, "project")
	// Another file, so that the branches do not conflict.
	gitIn(t, dir, "checkout", "-q", "-b", "other", p.two)
	other := commit(t, dir, "another", "other")
	gitIn(t, dir, "update-ref", "refs/pull/9/head", "HEAD")
	gitIn(t, dir, "checkout", "-q", "trunk")
	merge := func(number, commit string, depth int) stage.Clone {
		return stage.Clone{URL: s.URL + "/project/.git", Branch: "trunk", Ref: "refs/pull/" + number + "/head", Commit: commit, Merge: true, Depth: depth}
	}
	for _, depth := range []int{0, 1, 50} {
		r := newRig(t)
		log := r.cloned(merge("9", other, depth))
		assert.Equal(t, "trunk", gitIn(t, r.workspace(), "branch", "--show-current"))
		assert.Equal(t, p.three+" "+other, gitIn(t, r.workspace(), "log", "-1", "--format=%P"), log)
		assert.FileExists(t, filepath.Join(r.workspace(), "another"))
		assert.Equal(t, "", gitIn(t, r.workspace(), "status", "--porcelain"))
	}
	for want, c := range map[string]stage.Clone{
		"merge commit " + p.side + " into branch trunk": merge("7", p.side, 1),
		"commit " + p.three + " is not part of ref":     merge("9", p.three, 0),
		"merge needs a commit, its ref and the branch":  {URL: s.URL + "/project/.git", Branch: "trunk", Merge: true},
		"the repository has no ref refs/pull/8/head":    merge("8", p.side, 0),
	} {
		_, err := newRig(t).clone(t.Context(), c)
		require.ErrorContains(t, err, want)
	}
}
