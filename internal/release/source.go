package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// revisionVariable and dateVariable replace git in a source archive, which has no commit.
const (
	revisionVariable = "REVISION"
	dateVariable     = "SOURCE_DATE_EPOCH"
)

// readSource returns the commit of the repository in root. Without dirty, changes that are not committed are an error:
// the release could not be repeated.
func readSource(ctx context.Context, root, version string, dirty bool) (source, error) {
	src := source{root: root, version: version, revision: os.Getenv(revisionVariable)}
	seconds := os.Getenv(dateVariable)
	if _, err := os.Lstat(filepath.Join(root, ".git")); errors.Is(err, os.ErrNotExist) {
		if src.revision == "" || seconds == "" {
			return src, fmt.Errorf("%s is no clone: set %s to the commit's hash and %s to its time, in seconds since 1970", root, revisionVariable, dateVariable)
		}
	} else if err := src.fromGit(ctx, &seconds, dirty); err != nil {
		return src, err
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || unix <= 0 {
		return src, fmt.Errorf("%s: %q is not a number of seconds since 1970", dateVariable, seconds)
	}
	src.date = time.Unix(unix, 0).UTC()
	return src, nil
}

// fromGit reads hash and time of the commit.
func (s *source) fromGit(ctx context.Context, seconds *string, dirty bool) error {
	revision, err := s.git(ctx, "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	s.revision = revision
	if *seconds, err = s.git(ctx, "show", "--no-patch", "--format=%ct", "HEAD"); err != nil {
		return err
	}
	changes, err := s.git(ctx, "status", "--porcelain")
	switch {
	case err != nil:
		return err
	case changes != "" && !dirty:
		return fmt.Errorf("the working tree has changes that are not committed, so that the release could not be repeated:\n%s", changes)
	case changes != "":
		s.revision += "-dirty"
	}
	if tagged, err := s.git(ctx, "rev-parse", "--verify", "--quiet", "refs/tags/"+s.version+"^{commit}"); err == nil && tagged != revision {
		return fmt.Errorf("tag %s is commit %.12s, and the working tree is at %.12s: check the tag out", s.version, tagged, revision)
	}
	return nil
}

// git returns the output of a git command in the repository.
func (s *source) git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = s.root
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], commandError(err))
	}
	return strings.TrimSpace(string(out)), nil
}
