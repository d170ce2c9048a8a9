package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
	"github.com/delegate-io/dlite/internal/process"
	"github.com/delegate-io/dlite/task/stage"
)

// Config sets up a [Driver]. The zero value is ready to use.
type Config struct {
	// HTTPClient makes the downloads of plugins. Nil means a client that uses HTTP_PROXY.
	HTTPClient *http.Client
	// GitEnvironment returns further variables for git, such as those for certificates and a proxy.
	// They may refer to files that it writes to dir, which is removed after the clone. Only git's own
	// processes get them. See GitEnvironment of client.HTTP. Nil means none.
	GitEnvironment func(dir string) (map[string]string, error)
	// WorkDir contains one directory for each transaction. New creates it if it is missing. The
	// default is [os.TempDir].
	//
	// Cleanup removes a transaction's directory only if it is directly below WorkDir. Keep the same
	// WorkDir for as long as records of transactions exist.
	WorkDir string
	// MemoryDir is a directory in memory. It contains data that must not be written to a disk: the
	// secrets that steps hand on, and volumes with medium "memory". It must exist. The default is
	// /dev/shm on Linux if it is writable, otherwise WorkDir. Set it to WorkDir to use no memory.
	MemoryDir string
	// Workspace is an existing directory that is the workspace of every transaction. Neither Init nor
	// Cleanup changes it, so it suits a driver with one transaction, such as the driver in a container
	// of a pod. By default each transaction gets its own workspace.
	Workspace string
	// Grace is the time between SIGTERM and SIGKILL for a step that is stopped
	// (CLEANUP_GRACE_PERIOD_SECONDS, rule T7). The default is 0: a step is killed at once, unless it
	// asks for a soft stop, which gives it 10 seconds. Containers know whole seconds only: a fraction
	// counts as one second.
	Grace time.Duration
	// TermAttempts is how many times a host step that is stopped gets SIGTERM before SIGKILL, once
	// every TermInterval (HARNESS_SUBPROCESS_KILL_PROCESS_GROUP_MAX_SIGTERM_ATTEMPTS, rule D4). SIGKILL
	// follows one interval after the last attempt, but not before Grace is over. The driver does not
	// wait for a step that has ended. The default is 0: one SIGTERM at the beginning of Grace.
	TermAttempts int
	// TermInterval is the time between two attempts (HARNESS_SUBPROCESS_KILL_PROCESS_GROUP_RETRY_INTERVAL_SECS).
	// It must be positive if TermAttempts is.
	TermInterval time.Duration
	// PluginCache is the directory of the programs of plugin steps, each under its checksum. Several
	// drivers and processes may share it. The driver creates it for the first plugin and never removes
	// a program. The default is dlite/plugins in [os.UserCacheDir].
	//
	// The driver runs the programs in it: no other user may have write access.
	PluginCache string
	// Builtins are the programs that this program contains, by their names: the first arguments with
	// which it does their work. A plugin step that names one runs this program again, as a process of
	// the step. It finds the directories of the paths in containers in DLITE_MOUNTS, a JSON object. The
	// default is none.
	Builtins map[string][]string
	// FileLimit is the maximum size in bytes of each file that a step hands on: outputs, secret
	// outputs, environment, artifact. The driver does not read a larger file, and the step fails
	// ([driver.Result], Lost). The default is 1 MiB.
	FileLimit int64
	// WholeMachine allows a transaction to use any path of the machine: for files, for the output files and
	// the scratch directory of host steps. It also creates host volumes that do not set create. Use it only
	// where the machine belongs to one transaction at a time, as for the agent in a virtual machine: Cleanup
	// does not remove such files. The default is false.
	WholeMachine bool
	// Trusted lets steps reach each other, the delegate and everything that the delegate's user can reach:
	// they run as processes beside the delegate, as its user. By default steps of different transactions
	// are separated if the program calls [Supervise] and the machine allows it. Set Trusted if steps need
	// sudo or the rights of root. WholeMachine includes Trusted.
	Trusted bool
	// Hidden lists files and directories of the delegate that separated steps must not reach, such as its
	// configuration, its ledger and its log. The directories of other transactions, the directory dlite in
	// [os.UserCacheDir] and PluginCache are always hidden.
	Hidden []string
	// Log gets the errors that no caller receives. A call with a logger in its context logs there instead.
	// The default discards them.
	Log zerolog.Logger
}

// Driver runs steps as processes of this machine. It is safe for concurrent use. Use [New].
type Driver struct {
	shared      *steps.Driver
	cgroups     process.Cgroups
	supervision *supervision // nil if this process starts the steps itself
	starts      turns        // of supervisors, by their directories
	// ended has the markers of git's processes that this driver has waited for. Nothing needs to search the
	// machine for them.
	ended sync.Map
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Reattacher = (*Driver)(nil)
)

// New returns a driver. It fails if a field of cfg is invalid or the work directory cannot be used.
func New(cfg Config) (*Driver, error) {
	shared, err := steps.New(steps.Config(cfg))
	if err != nil {
		return nil, err
	}
	d := &Driver{shared: shared}
	shared.AddCleaner(func() steps.Cleaner { return &cleanup{d: d, ended: map[string]bool{}} })
	if !cfg.Trusted && !cfg.WholeMachine {
		d.separate()
	}
	return d, nil
}

// Shared returns the state that package local shares with container steps.
func (d *Driver) Shared() *steps.Driver { return d.shared }

// Infra returns "local".
func (d *Driver) Infra() string { return "local" }

// Close kills the detached steps and waits for them. Call no other method after Close.
func (d *Driver) Close() error {
	d.shared.Close()
	return d.supervision.close()
}

// Init creates the directories of a transaction, its volumes and its files (rule D2). A second Init
// of an environment reuses the resources of the first.
//
// Paths in env.Files are relative to the workspace, or absolute and below the workspace or
// /workspace. A host volume without create must exist. Init checks env.Clone out before it writes the
// files; the output of git goes to env.Log.
func (d *Driver) Init(ctx context.Context, env *driver.Environment, l driver.Ledger) error {
	if env.ID == "" {
		return errors.New("init: the transaction has no id")
	}
	var tx *steps.Transaction
	again := len(env.State) > 0
	if again {
		var err error
		if tx, err = steps.OpenTransaction(env); err != nil {
			return err
		}
	} else {
		tx = d.shared.NewTransaction(env)
		if d.supervision != nil {
			tx.Supervisor = d.supervision.plan(tx)
		} else if cg := d.cgroups.Named(tx.Name); cg != nil {
			tx.Cgroup = cg.Path()
		}
	}
	if err := d.makeDirectories(ctx, tx, l); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	if err := d.shared.MakeVolumes(ctx, tx, env.Volumes, l, env.Log); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	if env.Clone != nil && !again {
		// Before the files, because a file may replace one of the repository.
		env.CloneBegan = time.Now()
		err := d.clone(ctx, tx, env, l)
		env.CloneEnded = time.Now()
		if err != nil {
			return fmt.Errorf("init: %w", err)
		}
	}
	for _, f := range env.Files {
		if f == nil {
			continue
		}
		if err := tx.WriteFile(f); err != nil {
			return fmt.Errorf("init: %w", err)
		}
	}
	state, err := json.Marshal(tx)
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	env.State = state
	return nil
}

// makeDirectories creates the transaction's directories and the control group of its host steps. The
// record of the directories is durable, and so the earlier record of the control group is durable too.
// If no control group can be made, each step tries to make its own.
func (d *Driver) makeDirectories(ctx context.Context, tx *steps.Transaction, l driver.Ledger) error {
	if tx.Cgroup == "" {
		return d.shared.MakeDirectories(ctx, tx, l)
	}
	r := driver.Resource{Kind: steps.KindGroup, ID: tx.Cgroup, Labels: tx.Labels, Volatile: true}
	return d.shared.Gate.Create(ctx, l, r, func() error {
		if err := d.shared.MakeDirectories(ctx, tx, l); err != nil {
			return err
		}
		if err := os.Mkdir(tx.Cgroup, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			tx.Cgroup = ""
		}
		return nil
	})
}

// Execute runs a step until it ends, or starts a detached step (rule D4). It refuses a step with an
// image. After the step's own time-out, which does not concern a detached step, the error wraps
// [context.DeadlineExceeded].
func (d *Driver) Execute(ctx context.Context, env *driver.Environment, step *driver.Step, out io.Writer, l driver.Ledger) (*driver.Result, error) {
	return d.shared.Execute(ctx, env, step, out, l, backend{d})
}

// backend implements [steps.Backend].
type backend struct{ d *Driver }

func (b backend) Check(step *stage.Step) error {
	if step.Image != "" && step.Plugin == nil {
		return errors.New("the step has an image, and this driver runs no containers")
	}
	return checkPlugin(step)
}

func (b backend) Run(ctx context.Context, r *steps.Run) (*driver.Result, error) {
	h := &run{Run: r, d: b.d}
	if r.Step.Plugin != nil {
		return h.runPlugin(ctx)
	}
	return h.runProcess(ctx)
}

// Reattach continues to follow a step that an earlier delegate process started through a supervisor
// (rule T5). Without a supervisor it cannot follow the process: its output since then is lost, and its
// exit code went to the earlier delegate. It then kills the process and returns [driver.ErrLost]. If
// begun names no process, or the process was never started, Reattach returns [driver.ErrNotBegun].
func (d *Driver) Reattach(
	ctx context.Context, env *driver.Environment, step *driver.Step, out io.Writer, l driver.Ledger, begun []driver.Resource,
) (*driver.Result, error) {
	shared, err := d.shared.NewRun(env, step, out, l)
	if err != nil {
		return nil, err
	}
	processes := slices.DeleteFunc(slices.Clone(begun), func(r driver.Resource) bool { return r.Kind != steps.KindProcess })
	if len(processes) == 0 {
		return nil, driver.ErrNotBegun
	}
	last := processes[len(processes)-1]
	if readSupervised(last).Supervisor != nil {
		r := &run{Run: shared, d: d}
		res, err := r.reattach(ctx, last)
		if err == nil && res.Detached {
			return res, nil
		}
		r.Out.Close()
		switch {
		case err == nil:
			return res, nil
		case errors.Is(err, driver.ErrNotBegun):
			return nil, err
		case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
			err = errors.Join(steps.Stopped(ctx), err)
		}
		if !errors.Is(err, driver.ErrLost) {
			return nil, r.Fail(err)
		}
	}
	_, err = d.Cleanup(ctx, processes)
	return nil, fmt.Errorf("step %q: %w", step.ID, errors.Join(driver.ErrLost, err))
}

// Cleanup removes the resources of the records and returns those that it could not remove (rules T2
// and T3). It needs only the records and the same work directory, so it works in another process too.
//
// With a grace, Cleanup first asks everything that still runs to end, all at once. It waits for the
// grace, but at most for half of the time of ctx, and then kills the rest. It removes processes first,
// and directories last. It removes only resources with a name of this driver, and follows no links.
func (d *Driver) Cleanup(ctx context.Context, rs []driver.Resource) ([]driver.Resource, error) {
	return d.shared.Cleanup(ctx, rs)
}

// run is the execution of one host step.
type run struct {
	*steps.Run
	d *Driver
}
