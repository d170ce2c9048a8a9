package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/host/internal/supervisor"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
	"github.com/delegate-io/dlite/internal/process"
	"github.com/delegate-io/dlite/internal/recorded"
	"github.com/delegate-io/dlite/task/stage"
)

// runProcess runs the step as a process.
func (r *run) runProcess(ctx context.Context) (*driver.Result, error) {
	if r.Tx.Supervisor != nil {
		return r.runSupervised(ctx)
	}
	cmd, account, marker, err := r.command()
	if err != nil {
		return nil, err
	}
	res := driver.Resource{Kind: steps.KindProcess, ID: marker, Labels: r.Labels()}
	opts := process.Options{Account: account, Marker: marker, Survive: true, Background: r.Step.Detach}
	// The transaction's control group is on record. The record of a process in it need not be durable,
	// unless the process starts outside.
	name := r.Tx.Name + "-" + marker
	if opts.Cgroup = r.d.cgroups.Within(r.Tx.Cgroup, name, steps.IsOurs); opts.Cgroup != nil {
		res.Volatile = true
		opts.Outside = func() error {
			res.Volatile = false
			return r.Ledger.Record(ctx, res)
		}
	} else {
		opts.Cgroup = r.d.cgroups.Named(name)
	}
	p, err := r.d.startRecorded(ctx, r.Ledger, &res, cmd, opts, r.Out)
	if err != nil {
		return nil, fmt.Errorf("start: %w", explainStart(err, r.Step.User))
	}
	if opts.Cgroup != nil && p.Group.Cgroup() == nil {
		r.Driver.Log(ctx).Warn().Str("cgroup", opts.Cgroup.Path()).
			Msg("cannot create a control group for host steps: processes that hide from their step may escape")
	}
	if r.Step.Detach {
		return r.followDetached(ctx, p, marker)
	}
	if p.Await(ctx.Done()) {
		return &driver.Result{ExitCode: process.Code(p.Finish())}, nil
	}
	p.Stop(r.patience())
	return nil, steps.Stopped(ctx)
}

// startRecorded starts a process after its resource is on record. Without a control group it then adds
// the process id and start time to the record.
func (d *Driver) startRecorded(
	ctx context.Context, l driver.Ledger, res *driver.Resource, cmd *exec.Cmd, opts process.Options, out io.Writer,
) (*process.Piped, error) {
	if opts.Cgroup != nil {
		var err error
		if res.Data, err = json.Marshal(process.Record{Cgroup: opts.Cgroup.Path()}); err != nil {
			return nil, err
		}
	}
	p, err := process.StartPiped(cmd, out, func() (g *process.Group, err error) {
		err = d.shared.Gate.Create(ctx, l, *res, func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			g, err = process.Start(ctx, cmd, opts)
			return err
		})
		return g, err
	})
	if err != nil || p.Group.Cgroup() != nil {
		return p, err
	}
	record, err := process.NewRecord(p.Group.Pid())
	if err != nil {
		return p, nil //nolint:nilerr // it has ended, or the platform does not tell when it started
	}
	if res.Data, err = json.Marshal(record); err == nil {
		err = l.Record(ctx, *res)
	}
	if err != nil {
		p.Stop(process.Patience{})
		return nil, fmt.Errorf("record process: %w", err)
	}
	return p, nil
}

// command prepares the step's process.
func (r *run) command() (*exec.Cmd, *process.Account, string, error) {
	account, err := process.FindAccount(r.Step.User)
	if err != nil {
		return nil, nil, "", err
	}
	o, err := r.orderAs(account)
	if err != nil {
		return nil, nil, "", err
	}
	file, err := process.LookPath(o.Args[0], o.Dir, o.Env)
	if err != nil {
		return nil, nil, "", err
	}
	if account != nil {
		if err := r.letPass(); err != nil {
			return nil, nil, "", err
		}
	}
	return &exec.Cmd{Path: file, Args: o.Args, Dir: o.Dir, Env: o.Env}, account, o.ID, nil
}

// letPass lets all users through the directories that lead to the workspace.
func (r *run) letPass() error {
	for _, d := range []string{r.Tx.Dir, r.Tx.Memory} {
		if err := os.Chmod(d, 0o711); err != nil {
			return err
		}
	}
	return nil
}

// order prepares the step's process for the supervisor.
func (r *run) order() (*supervisor.Order, error) {
	account, err := process.FindAccount(r.Step.User)
	if err != nil {
		return nil, err
	}
	own := r.Tx.Supervisor.User
	switch {
	case own == "" && account != nil && os.Geteuid() != 0:
		return nil, fmt.Errorf("start: %w", explainStart(fs.ErrPermission, r.Step.User))
	case own != "" && r.Step.User != "" && account == nil:
		return nil, fmt.Errorf("a step may not run as the delegate's user %q: the delegate separates steps from itself", r.Step.User)
	}
	o, err := r.orderAs(account)
	if err != nil {
		return nil, err
	}
	if account != nil {
		o.User = r.Step.User
		return o, r.letPass()
	}
	return o, nil
}

// orderAs describes the step's process.
func (r *run) orderAs(account *process.Account) (*supervisor.Order, error) {
	if len(r.Step.Run.Entrypoint) == 0 {
		return nil, errors.New("a step on the host needs an entrypoint")
	}
	env, err := r.Environ(r.hostEnvironment(account))
	if err != nil {
		return nil, err
	}
	argv, err := r.Argv(env)
	if err != nil {
		return nil, err
	}
	for _, m := range r.Step.Volumes {
		v, err := r.Mounted(m)
		if err != nil {
			return nil, err
		}
		env["DLITE_VOLUME_"+recorded.VariableName(m.Name)] = v.Path
	}
	own := r.Step.Plugin != nil && r.Step.Plugin.Builtin != ""
	if own {
		if env["DLITE_MOUNTS"], err = r.mounts(); err != nil {
			return nil, err
		}
	}
	marker := recorded.RandomHex(16)
	env[process.MarkerVariable] = marker
	dir, err := r.workingDir()
	if err != nil {
		return nil, err
	}
	return &supervisor.Order{ID: marker, Args: argv, Own: own, Dir: dir, Env: process.List(env), Detach: r.Step.Detach}, nil
}

// workingDir returns the working directory of the step. It creates a missing directory in the
// workspace.
func (r *run) workingDir() (string, error) {
	if r.Step.WorkingDir == "" {
		return r.Tx.WorkspaceDir(), nil
	}
	if rel, ok := r.Tx.InWorkspace(r.Step.WorkingDir); ok {
		f := &stage.File{Path: r.Step.WorkingDir, IsDir: true, Mode: 0o777}
		return filepath.Join(r.Tx.WorkspaceDir(), rel), steps.WriteFile(r.Tx.WorkspaceDir(), rel, f)
	}
	if !filepath.IsAbs(r.Step.WorkingDir) {
		return "", fmt.Errorf("working directory %q is outside the workspace", r.Step.WorkingDir)
	}
	if r.Tx.Supervisor != nil {
		return r.Step.WorkingDir, nil // its steps may see another one
	}
	if info, err := os.Stat(r.Step.WorkingDir); err != nil || !info.IsDir() {
		return "", fmt.Errorf("working directory %q is not a directory of this machine", r.Step.WorkingDir)
	}
	return r.Step.WorkingDir, nil
}

// hostEnvironment returns the variables that a host step inherits. The configuration of the delegate
// is not among them.
func (r *run) hostEnvironment(account *process.Account) map[string]string {
	env := process.Environment()
	if account == nil && r.Tx.Supervisor != nil && r.Tx.Supervisor.User != "" {
		account = &process.Account{Name: "dlite", Home: filepath.Join(r.Tx.Dir, "home")}
	}
	if account != nil {
		delete(env, "SHELL")
		delete(env, "TMPDIR")
		env["HOME"], env["USER"], env["LOGNAME"] = account.Home, account.Name, account.Name
	}
	return env
}

func explainStart(err error, user string) error {
	if user != "" && errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("as user %q: %w (only root may run steps as other users)", user, err)
	}
	return err
}
