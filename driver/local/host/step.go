package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
	"github.com/delegate-io/dlite/internal/process"
	"github.com/delegate-io/dlite/internal/recorded"
	"github.com/delegate-io/dlite/task/stage"
)

const (
	// markerVariable holds a process resource's id in the environment of all
	// that a host step starts.
	markerVariable = "DLITE_PROCESS"
)

// processData is kept with a process resource.
type processData struct {
	// Cgroup is the path of the control group, where there is one. It is known
	// before the process runs, and tells all that the other two would.
	Cgroup string `json:"cgroup,omitempty"`
	PID    int    `json:"pid,omitempty"`
	// Start tells the process from a later one with the same id.
	Start string `json:"start,omitempty"`
}

// host runs the step as a process of this machine.
func (r *run) runProcess(ctx context.Context) (*driver.Result, error) {
	cmd, marker, err := r.command()
	if err != nil {
		return nil, err
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	// One pipe for both streams keeps their order.
	cmd.Stdout, cmd.Stderr = writer, writer
	var g *group
	res := driver.Resource{Kind: steps.KindProcess, ID: marker, Labels: r.Labels()}
	cg := r.cgroup(marker, func() error {
		res.Volatile = false
		return r.Ledger.Record(ctx, res)
	})
	if cg != nil {
		res.Volatile = cg.outside != nil
		if res.Data, err = json.Marshal(processData{Cgroup: cg.path}); err != nil {
			return nil, err
		}
	}
	err = r.d.shared.Gate.Create(ctx, r.Ledger, res, func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		g, err = startWhenWritten(ctx, cmd, marker, cg)
		return err
	})
	_ = writer.Close()
	if err != nil {
		_ = reader.Close()
		return nil, fmt.Errorf("start: %w", explainStart(err, r.Step.User))
	}
	if cg != nil && g.cg == nil {
		r.d.shared.Config.Log.Warn().Str("cgroup", cg.path).Msg("no control group can be made for host steps; what hides from its step may escape")
	}
	p := &hostProcess{group: g, reader: reader, out: r.Out, exited: make(chan struct{}), drained: make(chan struct{})}
	go p.copy()
	go p.wait()

	if err := r.recordStarted(ctx, res, g); err != nil {
		p.stop(patience{})
		return nil, err
	}
	if r.Step.Detach {
		return r.followHost(ctx, p, marker)
	}
	select {
	case <-p.exited:
		p.finish()
		return &driver.Result{ExitCode: exitCode(cmd.ProcessState)}, nil
	case <-ctx.Done():
		p.stop(r.patience())
		return nil, steps.Stopped(ctx)
	}
}

// cgroup is the step's control group: in that of the transaction, whose record is
// on the disk already, so that the step's own need not be until a process is
// started outside, which outside is for. Without that one the step's is by
// itself. It is nil where there can be none.
func (r *run) cgroup(marker string, outside func() error) *cgroup {
	name := r.Tx.Name + "-" + marker
	if cg := r.d.cgroups.within(r.Tx.Cgroup, name); cg != nil {
		cg.outside = outside
		return cg
	}
	return r.d.cgroups.named(name)
}

// startWhenWritten is startGroup for programs that we have just written: while
// another step is being started, its process may hold the file open.
func startWhenWritten(ctx context.Context, cmd *exec.Cmd, marker string, cg *cgroup) (*group, error) {
	for wait := time.Millisecond; ; wait *= 2 {
		g, err := startGroup(cmd, marker, cg)
		if !errors.Is(err, syscall.ETXTBSY) || wait > time.Second {
			return g, err
		}
		*cmd = fresh(cmd)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// fresh is cmd before its start was tried.
func fresh(cmd *exec.Cmd) exec.Cmd {
	return exec.Cmd{
		Path: cmd.Path, Args: cmd.Args, Dir: cmd.Dir, Env: cmd.Env,
		Stdin: cmd.Stdin, Stdout: cmd.Stdout, Stderr: cmd.Stderr, ExtraFiles: cmd.ExtraFiles, SysProcAttr: cmd.SysProcAttr,
	}
}

// recordStarted adds to the record what finds the process where its
// environment cannot be read.
func (r *run) recordStarted(ctx context.Context, res driver.Resource, g *group) error {
	if g.cg != nil {
		return nil
	}
	pid := g.cmd.Process.Pid
	start, err := processStart(pid)
	if err != nil {
		return nil // it has ended, or the platform cannot tell
	}
	if res.Data, err = json.Marshal(processData{PID: pid, Start: start}); err != nil {
		return err
	}
	if err := r.Ledger.Record(ctx, res); err != nil {
		return fmt.Errorf("record process: %w", err)
	}
	return nil
}

// command prepares the step's process.
func (r *run) command() (*exec.Cmd, string, error) {
	if len(r.Step.Run.Entrypoint) == 0 {
		return nil, "", errors.New("a step on the host needs an entrypoint")
	}
	acct, err := findAccount(r.Step.User)
	if err != nil {
		return nil, "", err
	}
	env, err := r.Environ(hostEnvironment(acct))
	if err != nil {
		return nil, "", err
	}
	argv, err := r.Argv(env)
	if err != nil {
		return nil, "", err
	}
	for _, m := range r.Step.Volumes {
		v, err := r.Mounted(m)
		if err != nil {
			return nil, "", err
		}
		env["DLITE_VOLUME_"+recorded.VariableName(m.Name)] = v.Path
	}
	marker := recorded.RandomHex(16)
	env[markerVariable] = marker
	dir, err := r.workingDir()
	if err != nil {
		return nil, "", err
	}
	file, err := lookPath(argv[0], dir, env["PATH"])
	if err != nil {
		return nil, "", err
	}
	if acct != nil {
		// The step's user is on the way to the workspace.
		for _, d := range []string{r.Tx.Dir, r.Tx.Memory} {
			if err := os.Chmod(d, 0o711); err != nil {
				return nil, "", err
			}
		}
	}
	cmd := &exec.Cmd{Path: file, Args: argv, Dir: dir, Env: process.List(env)}
	if err := prepareCommand(cmd, acct); err != nil {
		return nil, "", err
	}
	return cmd, marker, nil
}

// hostDir is the working directory. In the workspace it is made when missing.
func (r *run) workingDir() (string, error) {
	if r.Step.WorkingDir == "" {
		return r.Tx.WorkspaceDir(), nil
	}
	if rel, ok := r.Tx.InWorkspace(r.Step.WorkingDir); ok {
		f := &stage.File{Path: r.Step.WorkingDir, IsDir: true, Mode: 0o777}
		return filepath.Join(r.Tx.WorkspaceDir(), rel), steps.WriteFile(r.Tx.WorkspaceDir(), rel, f)
	}
	if !filepath.IsAbs(r.Step.WorkingDir) {
		return "", fmt.Errorf("working directory %q leaves the workspace", r.Step.WorkingDir)
	}
	if info, err := os.Stat(r.Step.WorkingDir); err != nil || !info.IsDir() {
		return "", fmt.Errorf("working directory %q is no folder of this machine", r.Step.WorkingDir)
	}
	return r.Step.WorkingDir, nil
}

// hostEnvironment is what a host step inherits: enough to find programs and a
// home, and nothing of the delegate's configuration.
func hostEnvironment(acct *account) map[string]string {
	env := process.Environment()
	if acct != nil {
		delete(env, "SHELL")
		delete(env, "TMPDIR")
		env["HOME"], env["USER"], env["LOGNAME"] = acct.home, acct.name, acct.name
	}
	return env
}

// lookPath finds a program in the step's own PATH, as seen from dir.
func lookPath(name, dir, pathList string) (string, error) {
	if strings.ContainsRune(name, '/') || strings.ContainsRune(name, filepath.Separator) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return name, nil
	}
	extensions := []string{""}
	if runtime.GOOS == "windows" {
		extensions = append(extensions, ".exe", ".com", ".bat", ".cmd")
	}
	for _, p := range filepath.SplitList(pathList) {
		if p == "" {
			continue // would mean the working directory, which steps write to
		}
		if !filepath.IsAbs(p) {
			p = filepath.Join(dir, p)
		}
		for _, ext := range extensions {
			file := filepath.Join(p, name+ext)
			info, err := os.Stat(file)
			if err == nil && info.Mode().IsRegular() && (runtime.GOOS == "windows" || info.Mode()&0o111 != 0) {
				return file, nil
			}
		}
	}
	return "", fmt.Errorf("%q was not found in the step's PATH", name)
}

func explainStart(err error, user string) error {
	if user != "" && errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("as user %q: %w (only root may run steps as other users)", user, err)
	}
	return err
}
