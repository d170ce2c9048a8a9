package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
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

// git runs git for one clone, in an environment of its own: neither the
// machine's nor the user's configuration, attributes, hooks, templates,
// credential helpers and .netrc have a say, and nothing is ever asked.
type git struct {
	d       *Driver
	ledger  driver.Ledger
	program string
	dir     string // the working tree
	home    string // holds the configuration, which has no secrets
	env     []string
	name    string // of the transaction
	labels  map[string]string
}

// newGit sets git up to work in dir for a remote. home is a folder that does
// not exist yet; close removes it.
func (d *Driver) newGit(tx *steps.Transaction, dir string, from *gitremote.Remote, l driver.Ledger) (*git, error) {
	program, err := exec.LookPath("git")
	if err != nil {
		return nil, errors.New("git was not found in the PATH")
	}
	g := &git{
		d: d, ledger: l, program: program, dir: dir,
		home: filepath.Join(tx.Dir, "git-"+recorded.RandomHex(4)),
		name: tx.Name, labels: tx.Labels,
	}
	g.env = process.List(from.Environment(g.home))
	// Whoever the folder belongs to: a pod's is root's, and the clone is not where nobody
	// may be root.
	g.env = append(g.env, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0="+dir)
	if err := steps.MakeDir(g.home, 0o700); err != nil {
		return nil, err
	}
	if err := from.WriteConfig(g.home); err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

func (g *git) close() { _ = steps.RemoveTree(g.home) }

// run executes git in the working tree. Everything it prints goes to out. It is
// recorded, and ends with ctx, like a host step (SPEC T2, T7).
func (g *git) run(ctx context.Context, out io.Writer, args ...string) error {
	marker := recorded.RandomHex(16)
	cmd := &exec.Cmd{
		Path: g.program, Args: append([]string{"git"}, args...), Dir: g.dir,
		Env: append(slices.Clone(g.env), markerVariable+"="+marker),
	}
	if err := prepareCommand(cmd, nil); err != nil {
		return err
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = writer, writer
	var started *group
	res := driver.Resource{Kind: steps.KindProcess, ID: marker, Labels: g.labels}
	cg := g.d.cgroups.named(g.name + "-" + marker)
	if cg != nil {
		if res.Data, err = json.Marshal(processData{Cgroup: cg.path}); err != nil {
			return err
		}
	}
	err = g.d.shared.Gate.Create(ctx, g.ledger, res, func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		started, err = startGroup(cmd, marker, cg)
		return err
	})
	_ = writer.Close()
	if err != nil {
		_ = reader.Close()
		return fmt.Errorf("start git: %w", err)
	}
	p := &hostProcess{group: started, reader: reader, out: out, exited: make(chan struct{}), drained: make(chan struct{})}
	go p.copy()
	go p.wait()
	r := &run{Run: &steps.Run{Driver: g.d.shared, Ledger: g.ledger}, d: g.d}
	if err := r.recordStarted(ctx, res, started); err != nil {
		p.stop(patience{})
		return err
	}
	select {
	case <-p.exited:
		p.finish()
	case <-ctx.Done():
		p.stop(patience{})
		return gitStopped(ctx)
	}
	if code := exitCode(cmd.ProcessState); code != 0 {
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

// gitError says that git ran and failed.
type gitError struct {
	command string
	code    int
}

func (e *gitError) Error() string { return fmt.Sprintf("git %s: exit code %d", e.command, e.code) }

// ask returns what git prints, for commands that say little and use no network.
func (g *git) ask(ctx context.Context, args ...string) (string, error) {
	tail := &gitOutput{}
	err := g.run(ctx, tail, args...)
	tail.flush()
	return strings.TrimSpace(tail.text()), err
}
