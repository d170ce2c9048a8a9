package daemonset

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/process"
	"github.com/delegate-io/dlite/internal/supervise"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task/stage"
)

// generation is a daemon set with one program, from its first start to its last end.
type generation struct {
	k        *reconciler
	program  string
	log      zerolog.Logger
	renewals chan error
	cancel   context.CancelFunc
	done     chan struct{} // closed when nothing of it runs
	again    bool          // start was called before; only the supervisor uses it

	mu      sync.Mutex
	want    *desired // the latest one with this program
	started *daemon
	up      bool // started is healthy
}

// newGeneration starts the supervision of a daemon set.
func (k *reconciler) newGeneration(d *desired) *generation {
	cfg := &k.r.cfg
	k.r.mu.Lock()
	running := k.r.running
	k.r.mu.Unlock()
	ctx, cancel := context.WithCancel(context.WithoutCancel(running)) // the reconciler stops it
	g := &generation{
		k: k, want: d, program: d.program, cancel: cancel, done: make(chan struct{}), renewals: make(chan error, 1),
		log: logger.Masked(cfg.Log.With().Str("daemon_set", d.ID).Str("daemon_type", d.Type).Logger(), k),
	}
	s := &supervise.Supervisor{
		Name: "the daemon", Start: g.start, Check: g.check, Changed: g.changed, Renew: g.renewals,
		HealthInterval: cfg.HealthInterval, HealthFailures: cfg.HealthFailures, StartTimeout: cfg.StartTimeout,
		Pause: cfg.Pause, MaxPause: cfg.MaxPause, Grace: cfg.Grace, Log: g.log,
	}
	go func() {
		defer close(g.done)
		s.Run(ctx)
	}()
	return g
}

// stop ends the daemon and waits for its end.
func (g *generation) stop() {
	g.cancel()
	<-g.done
}

// set replaces the desired state by one with the same program.
func (g *generation) set(d *desired) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.want = d
}

func (g *generation) wants() *desired {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.want
}

// renew has the daemon started anew.
func (g *generation) renew(why error) {
	select {
	case g.renewals <- why:
	default:
	}
}

// current returns the daemon if it is healthy, otherwise nil.
func (g *generation) current() *daemon {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.up {
		return nil
	}
	return g.started
}

// changed is called when the daemon becomes healthy, and when it ends.
func (g *generation) changed(healthy bool, why error) {
	g.mu.Lock()
	g.up = healthy
	g.mu.Unlock()
	g.k.update(func() {
		switch {
		case !healthy:
			g.k.healthy, g.k.problem, g.k.undone = false, why, nil
		case g.wants().settings == "": // otherwise the daemon is healthy when it has its settings
			g.k.healthy, g.k.problem = true, nil
		}
	})
	g.k.wakeUp()
}

// check checks the health. It wakes the reconciler if the tasks of the daemon are not those of the daemon set.
func (g *generation) check(ctx context.Context) error {
	g.mu.Lock()
	d, up := g.started, g.up
	g.mu.Unlock()
	has, err := d.tasks(ctx)
	if err != nil || !up {
		return err
	}
	g.k.mu.Lock()
	wanted := g.k.wanted
	g.k.mu.Unlock()
	same := len(has) == len(wanted.TaskIDs)
	for _, id := range wanted.TaskIDs {
		same = same && has[id]
	}
	if !same {
		g.k.wakeUp()
	}
	return nil
}

// daemon is one run of the program of a daemon set.
type daemon struct {
	*endpoint
	supervise.Instance
	settings string // the last settings that it took; the reconciler's
	release  func() // of the program
	erase    func() // of the directory and the record
}

func (d *daemon) ended() bool {
	select {
	case <-d.Exited():
		return true
	default:
		return false
	}
}

// Stop ends the daemon and removes the resources that were created for it.
func (d *daemon) Stop(grace time.Duration) string {
	how := d.Instance.Stop(grace)
	d.release()
	d.erase()
	return how
}

// prepared is a program that is ready to start, with its resolved config.
type prepared struct {
	config  *setConfig
	cmd     *exec.Cmd // nil for a container and a handler
	handler Handler   // nil for a program
	release func()
}

// prepare resolves the secrets of a config and gets the program.
func (k *reconciler) prepare(ctx context.Context, d *desired) (*prepared, error) {
	data, set, err := k.r.resolve(ctx, k.name(), d.Config, d.Secrets, d.literal)
	if err != nil {
		return nil, fmt.Errorf("secrets of the config: %w", err)
	}
	k.changeMasks(func() { k.hidden.Include(set) })
	p := &prepared{release: func() {}}
	if p.config, err = readConfig(data); err != nil {
		return nil, err
	}
	handler := k.r.cfg.Handlers[d.Type]
	switch {
	case p.config.Image != "":
		if k.r.cfg.Containers == nil {
			return nil, errors.New("config: it has an image, and this delegate runs no containers")
		}
	case p.config.Executable != nil || p.config.Repository != nil:
		if k.r.cfg.Programs == nil {
			return nil, errors.New("config: it names a program, and this delegate starts no programs")
		}
		ctx = secrets.NewContext(ctx, set)
		log := logger.Masked(k.r.cfg.Log.With().Str("daemon_set", d.ID).Str("daemon_type", d.Type).Logger(), k)
		if p.cmd, p.release, err = k.r.cfg.Programs(logger.NewContext(ctx, log), data); err != nil {
			return nil, err
		}
	case handler != nil:
		p.handler = handler
	default:
		return nil, fmt.Errorf("config: it has no executable_config, no repository and no image, and this delegate has no handler for type %q", d.Type)
	}
	return p, nil
}

// start starts the daemon.
func (g *generation) start(ctx context.Context) (supervise.Instance, error) {
	if g.again {
		g.k.r.restarts.Add(1)
	}
	g.again = true
	p, err := g.k.prepare(ctx, g.wants())
	if err != nil {
		return nil, err
	}
	d, err := g.launch(ctx, p)
	if err != nil {
		p.release()
		return nil, err
	}
	g.mu.Lock()
	g.started = d
	g.mu.Unlock()
	return d, nil
}

func (g *generation) launch(ctx context.Context, p *prepared) (*daemon, error) {
	if p.handler != nil {
		s := newServer(p.handler, "")
		return &daemon{endpoint: &endpoint{direct: s}, Instance: inside{s}, release: p.release, erase: func() {}}, nil
	}
	// The directory is closed to other users, such as the users of separated steps, so that they cannot reach the socket.
	dir, err := os.MkdirTemp("", ownPrefix)
	if err != nil {
		return nil, err
	}
	rec := &record{Set: g.k.id(), Type: g.k.typ, Dir: dir}
	erase := func() {
		if err := g.k.r.erase(context.WithoutCancel(ctx), rec); err != nil {
			g.log.Error().Err(err).Msg("cannot remove what a daemon has left: the next start of the delegate tries again")
		}
	}
	d := &daemon{release: p.release, erase: erase}
	if err = g.k.r.records.begin(rec); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if d.endpoint, err = newEndpoint(ctx, filepath.Join(dir, "run", "daemon.sock"), rand.Text()); err == nil {
		if p.cmd != nil {
			d.Instance, err = g.startProcess(ctx, p, d.endpoint, rec)
		} else {
			d.Instance, err = g.startContainer(ctx, p, d.endpoint, rec)
		}
	}
	if err != nil {
		erase()
		return nil, err
	}
	return d, nil
}

// variables returns the environment that tells a daemon where to serve.
func (e *endpoint) variables(socket string) map[string]string {
	return map[string]string{portVariable: strconv.Itoa(e.port), socketVariable: socket, tokenVariable: e.token}
}

// output returns the writer of a daemon's output.
func (g *generation) output() *supervise.Lines {
	return &supervise.Lines{
		Longest: 8 << 10, Each: 1000, Period: 10 * time.Second,
		Line:    func(text []byte) { g.log.Info().Str("output", string(text)).Msg("daemon output") },
		Dropped: func(n int) { g.log.Warn().Int("lines", n).Msg("lines of a daemon were left out: it writes too many") },
	}
}

// startProcess starts a daemon as a process of this machine.
func (g *generation) startProcess(ctx context.Context, p *prepared, e *endpoint, rec *record) (supervise.Instance, error) {
	if p.config.CPU > 0 || p.config.MemoryBytes > 0 {
		g.log.Warn().Msg("cpu and memory_bytes limit only containers: the daemon is a process, and runs without them")
	}
	for _, sub := range []string{"run", "work"} {
		if err := os.Mkdir(filepath.Join(rec.Dir, sub), 0o700); err != nil {
			return nil, err
		}
	}
	rec.Marker = rand.Text()
	env := process.Environment()
	for _, v := range p.config.Envs {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	maps.Copy(env, e.variables(e.socket))
	env[process.MarkerVariable] = rec.Marker
	cmd := p.cmd
	cmd.Args, cmd.Env = append(cmd.Args, p.config.Args...), process.List(env)
	if cmd.Dir == "" {
		cmd.Dir = filepath.Join(rec.Dir, "work")
	}
	opts := process.Options{Marker: rec.Marker, Cgroup: g.k.r.cgroups.Named(ownPrefix + rec.Marker)}
	if opts.Cgroup != nil {
		rec.Process = process.Record{Cgroup: opts.Cgroup.Path()}
		opts.Outside = func() error { return rec.setProcess(process.Record{}) }
	}
	if err := rec.save(); err != nil {
		return nil, err
	}
	out := g.output()
	piped, err := process.StartPiped(cmd, out, func() (*process.Group, error) { return process.Start(ctx, cmd, opts) })
	if err != nil {
		return nil, err
	}
	i := supervise.Process{Piped: piped, Out: out}
	if piped.Group.Cgroup() == nil {
		if r, err := process.NewRecord(piped.Group.Pid()); err == nil { // otherwise it has ended
			if err := rec.setProcess(r); err != nil {
				i.Stop(0)
				return nil, err
			}
		}
	}
	return i, nil
}

// socketDir is the directory of the socket in a container.
const socketDir = "/run/dlite-daemon"

// container is a daemon in a container.
type container struct {
	cancel context.CancelFunc
	exited chan struct{}
	how    string // set before exited is closed
	out    *supervise.Lines
}

// Exited implements [supervise.Instance].
func (c *container) Exited() <-chan struct{} { return c.exited }

// Stop implements [supervise.Instance]. The driver's grace applies.
func (c *container) Stop(time.Duration) string {
	c.cancel()
	<-c.exited
	c.out.Flush()
	return c.how
}

// startContainer starts a daemon as a container.
func (g *generation) startContainer(ctx context.Context, p *prepared, e *endpoint, rec *record) (supervise.Instance, error) {
	run := filepath.Join(rec.Dir, "run")
	if err := os.Mkdir(run, 0o700); err != nil {
		return nil, err
	}
	// A container may run as another user. The directory above is closed to all users of this machine.
	if err := os.Chmod(run, 0o777); err != nil { //nolint:gosec // see above
		return nil, err
	}
	labels := maps.Clone(g.k.r.cfg.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	id := filepath.Base(rec.Dir)
	labels[driver.LabelTransaction] = id
	env := &driver.Environment{
		ID: id, Labels: labels, Mask: g.k.Mask,
		Volumes: []*stage.Volume{{Host: &stage.HostVolume{ID: "run", Name: "run", Path: run}}},
	}
	d := g.k.r.cfg.Containers
	if err := d.Init(ctx, env, rec); err != nil {
		return nil, err
	}
	vars := e.variables(socketDir + "/daemon.sock")
	for _, v := range p.config.Envs {
		if name, value, _ := strings.Cut(v, "="); vars[name] == "" {
			vars[name] = value
		}
	}
	port := strconv.Itoa(e.port)
	step := &driver.Step{KeepOutput: keptOutput, Step: stage.Step{
		ID: "daemon", Name: g.k.typ, Image: p.config.Image, Pull: p.config.Pull, Auth: p.config.Auth,
		Run: stage.Run{Command: p.config.Args}, Environment: vars, SoftStop: true,
		Volumes: []*stage.VolumeMount{{Name: "run", Path: socketDir}}, PortBindings: map[string]string{"127.0.0.1:" + port: port},
		MemLimit: p.config.MemoryBytes, CPUQuota: int64(p.config.CPU * cpuPeriod),
	}}
	if step.CPUQuota > 0 {
		step.CPUPeriod = cpuPeriod
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &container{cancel: cancel, exited: make(chan struct{}), out: g.output()}
	go func() {
		defer close(c.exited)
		res, err := d.Execute(ctx, env, step, c.out, rec)
		res.End()
		switch {
		case err != nil:
			c.how = err.Error()
		case res.OOMKilled:
			c.how = "it ran out of memory"
		default:
			c.how = fmt.Sprintf("exit code %d", res.ExitCode)
		}
	}()
	return c, nil
}

const (
	// cpuPeriod is the period of a limit of processors, in microseconds.
	cpuPeriod = 100_000
	// keptOutput is how much output of a container its engine keeps, in bytes.
	keptOutput = 1 << 20
)

// inside is a daemon in this process.
type inside struct{ server *server }

// Exited implements [supervise.Instance]: a handler does not end by itself.
func (inside) Exited() <-chan struct{} { return nil }

// Stop implements [supervise.Instance]. It takes the tasks away from the handler.
func (i inside) Stop(grace time.Duration) string {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := i.server.removeAll(ctx); err != nil {
		return "its tasks could not be removed: " + err.Error()
	}
	return "stopped"
}
