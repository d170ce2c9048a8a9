package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
	"github.com/delegate-io/dlite/internal/gitremote"
	"github.com/delegate-io/dlite/internal/process"
	"github.com/delegate-io/dlite/internal/recorded"
)

// git runs git for one clone in its own environment. Git ignores the configuration, attributes, hooks,
// templates, credential helpers and .netrc of the machine and of the user. It never prompts.
type git struct {
	d       *Driver
	ledger  driver.Ledger
	program string
	dir     string // the working tree
	home    string // contains the configuration, without secrets
	env     []string
	name    string // of the transaction
	labels  map[string]string
}

// newGit prepares git to work in dir for a remote. It creates a home directory, which close removes.
func (d *Driver) newGit(tx *steps.Transaction, dir string, from *gitremote.Remote, skipVerify bool, l driver.Ledger) (*git, error) {
	program, err := exec.LookPath("git")
	if err != nil {
		return nil, errors.New("git is not in the PATH")
	}
	g := &git{
		d: d, ledger: l, program: program, dir: dir,
		home: filepath.Join(tx.Dir, "git-"+recorded.RandomHex(4)),
		name: tx.Name, labels: tx.Labels,
	}
	if err := steps.MakeDir(g.home, 0o700); err != nil {
		return nil, err
	}
	if err := g.prepare(from, skipVerify); err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

// prepare writes the configuration and sets the environment.
func (g *git) prepare(from *gitremote.Remote, skipVerify bool) error {
	if err := from.WriteConfig(g.home); err != nil {
		return err
	}
	env := from.Environment(g.home)
	if more := g.d.shared.Config.GitEnvironment; more != nil {
		vars, err := more(g.home)
		if err != nil {
			return fmt.Errorf("the environment of git: %w", err)
		}
		maps.Copy(env, vars)
	}
	if skipVerify {
		env["GIT_SSL_NO_VERIFY"] = "true"
	}
	// The directory may belong to another user: in a pod it belongs to root, and the clone may run as
	// another user.
	g.env = append(process.List(env), "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0="+g.dir)
	return nil
}

func (g *git) close() { _ = steps.RemoveTree(g.home) }

// run executes git in the working tree and copies its output to out. The process is on record and ends
// with ctx, like a host step (rules T2 and T7).
func (g *git) run(ctx context.Context, out io.Writer, args ...string) error {
	marker := recorded.RandomHex(16)
	cmd := &exec.Cmd{
		Path: g.program, Args: append([]string{"git"}, args...), Dir: g.dir,
		Env: append(slices.Clone(g.env), process.MarkerVariable+"="+marker),
	}
	res := driver.Resource{Kind: steps.KindProcess, ID: marker, Labels: g.labels}
	opts := process.Options{Cgroup: g.d.cgroups.Named(g.name + "-" + marker), Marker: marker, Survive: true}
	p, err := g.d.startRecorded(ctx, g.ledger, &res, cmd, opts, out)
	if err != nil {
		return fmt.Errorf("start git: %w", err)
	}
	select {
	case <-p.Group.Exited():
	case <-ctx.Done():
		p.Stop(process.Patience{})
		return gitStopped(ctx)
	}
	state := p.Finish()
	g.d.ended.Store(marker, true)
	if code := process.Code(state); code != 0 {
		return &gitError{command: args[0], code: code}
	}
	return nil
}

func gitStopped(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return fmt.Errorf("git was stopped: %w", cause)
	}
	return fmt.Errorf("git was stopped: %w: %w", cause, err)
}

// gitError is the exit code of a git command that failed.
type gitError struct {
	command string
	code    int
}

func (e *gitError) Error() string { return fmt.Sprintf("git %s: exit code %d", e.command, e.code) }

// output returns the output of a git command that prints little and needs no network.
func (g *git) output(ctx context.Context, args ...string) (string, error) {
	tail := &gitOutput{}
	err := g.run(ctx, tail, args...)
	tail.flush()
	return strings.TrimSpace(tail.text()), err
}
