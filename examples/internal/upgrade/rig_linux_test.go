package upgrade

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/internal/token"
	"github.com/delegate-io/dlite/manager/api"
)

const (
	// versions of the same length: the programs are one build, in which the text of the version is replaced.
	oldVersion    = "v1.0.1000001"
	newVersion    = "v1.0.1000002"
	brokenVersion = "v1.0.1000003"

	killVariable = "DLITE_TEST_KILL_AT"
	rigAccount   = "demo"
	rigSecret    = "000000000000000000000000000000aa" // visibly fake
	rigTimeout   = 2 * time.Minute
)

// rig is a real manager, and an address with two versions of the real delegate.
type rig struct {
	t        *testing.T
	releases *releases
	program  []byte // of oldVersion
	url      string
	client   *api.Client
}

func newRig(t *testing.T, flags ...string) *rig {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and starts the bundled programs")
	}
	r := &rig{t: t, releases: newReleases(t), program: buildDelegate(t)}
	r.releases.release(newVersion, r.archive(bytes.ReplaceAll(r.program, []byte(oldVersion), []byte(newVersion))))
	r.releases.release(oldVersion, r.archive(r.program))
	r.releases.stable(newVersion)
	r.startManager(flags...)
	return r
}

var built struct {
	once    sync.Once
	content []byte
	err     error
}

// buildDelegate returns the delegate with the instants at which it can kill itself.
func buildDelegate(t *testing.T) []byte {
	t.Helper()
	built.once.Do(func() {
		file := filepath.Join(t.TempDir(), "delegate")
		const pkg = "github.com/delegate-io/dlite/examples/internal/"
		cmd := exec.Command("go", "build", "-buildvcs=false", "-o", file, //nolint:noctx // several tests use the result
			"-ldflags=-s -w -X "+pkg+"program.release="+oldVersion+" -X "+pkg+"upgrade.faults="+killVariable, "../../delegate")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("%w: %s", err, out)
			return
		}
		built.content, built.err = os.ReadFile(file)
	})
	require.NoError(t, built.err)
	return built.content
}

func (r *rig) archive(program []byte) []byte {
	return archiveOf(r.t, entry{name: "LICENSE", content: "text"}, entry{name: "delegate", content: string(program)})
}

// startManager starts the bundled manager.
func (r *rig) startManager(flags ...string) {
	r.t.Helper()
	dir := r.t.TempDir()
	cmd := exec.CommandContext(context.WithoutCancel(r.t.Context()), testbed.BuildStatic(r.t, "./examples/manager"),
		append([]string{"server", "--listen", "127.0.0.1:0", "--http-bind", "off", "--data-dir", dir}, flags...)...)
	cmd.Env = append(os.Environ(), "ACCOUNTS="+rigAccount+"="+rigSecret)
	out, err := cmd.StdoutPipe()
	require.NoError(r.t, err)
	require.NoError(r.t, cmd.Start())
	r.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewReader(out)
	for r.url == "" {
		line, err := lines.ReadString('\n')
		require.NoError(r.t, err, "the manager has ended")
		if m := regexp.MustCompile(`serving at (http://[0-9.:]+)`).FindStringSubmatch(line); m != nil {
			r.url = m[1]
		}
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }() // ends with the manager
	secret, err := token.ParseSecret(rigSecret)
	require.NoError(r.t, err)
	text, err := secret.Issue(rigAccount, time.Now(), time.Hour)
	require.NoError(r.t, err)
	r.client, err = api.New(api.Config{URL: r.url, Account: rigAccount, Token: text})
	require.NoError(r.t, err)
}

// installed is an installed delegate.
type installed struct {
	*rig
	t      *testing.T
	name   string
	place  place
	config string
	run    *process

	attributes *syscall.SysProcAttr // nil starts the processes as this user
	environ    []string
}

// process is a process of the delegate that serves.
type process struct {
	cmd   *exec.Cmd
	log   *os.File
	ended chan struct{}
}

func (r *rig) install(t *testing.T, name string, settings ...string) *installed {
	t.Helper()
	dir := t.TempDir()
	i := &installed{rig: r, t: t, name: name, place: place{program: filepath.Join(dir, "bin", "delegate")}, config: filepath.Join(dir, "config.env")}
	require.NoError(t, os.Mkdir(i.place.dir(), 0o755))
	require.NoError(t, os.WriteFile(i.place.program, r.program, 0o755)) //nolint:gosec // a program
	lines := append([]string{
		"ACCOUNT_ID=" + rigAccount, "TOKEN=" + rigSecret, "URL=" + r.url, "NAME=" + name, "HTTP_BIND=off", "TRUSTED_STEPS=true",
		"LEDGER_DIR=" + filepath.Join(dir, "ledger"), "WORK_DIR=" + filepath.Join(dir, "work"), "DOCKER_HOST=unix:///nonexistent.sock",
		"UPGRADE_URL=file://" + r.releases.dir, "UPGRADE_KEY=" + r.releases.pub, "LOG_FORMAT=json",
	}, settings...)
	require.NoError(t, os.WriteFile(i.config, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	t.Cleanup(func() { i.kill() })
	return i
}

// start starts the delegate. It kills itself at an instant, unless that is empty.
func (i *installed) start(killAt string) {
	i.t.Helper()
	log, err := os.CreateTemp(i.t.TempDir(), "log")
	require.NoError(i.t, err)
	p := &process{log: log, ended: make(chan struct{})}
	require.NoError(i.t, retryBusy(i.t.Context(), func() error {
		p.cmd = exec.CommandContext(context.WithoutCancel(i.t.Context()), i.place.program, "server", "--env-file", i.config)
		p.cmd.Env = append(append(os.Environ(), i.environ...), killVariable+"="+killAt)
		p.cmd.SysProcAttr = i.attributes
		p.cmd.Stdout, p.cmd.Stderr = log, log
		return p.cmd.Start()
	}))
	i.run = p
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait()
	}()
}

// kill kills the running process, if there is one.
func (i *installed) kill() {
	if i.run == nil {
		return
	}
	_ = i.run.cmd.Process.Kill()
	<-i.run.ended
	_ = i.run.log.Close()
	i.run = nil
}

// waitKilled waits until the process has killed itself.
func (i *installed) waitKilled() {
	i.t.Helper()
	select {
	case <-i.run.ended:
	case <-time.After(rigTimeout):
		require.Fail(i.t, "the delegate has not killed itself", i.text())
	}
	status, ok := i.run.cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(i.t, ok && status.Signal() == syscall.SIGKILL, "%s\n%s", i.run.cmd.ProcessState, i.text())
	_ = i.run.log.Close()
	i.run = nil
}

func (i *installed) text() string {
	if i.run == nil {
		return "it does not run"
	}
	b, _ := os.ReadFile(i.run.log.Name())
	j, _ := os.ReadFile(i.place.journal())
	return string(b) + "\n" + string(j)
}

// command runs a command of the installed program.
func (i *installed) command(args ...string) (string, error) {
	var out []byte
	err := retryBusy(i.t.Context(), func() (err error) {
		cmd := exec.CommandContext(i.t.Context(), i.place.program, args...)
		cmd.Env, cmd.SysProcAttr = append(os.Environ(), i.environ...), i.attributes
		out, err = cmd.CombinedOutput()
		return err
	})
	return string(out), err
}

// version returns the version of the program in its place. It fails the test if the program does not run.
func (i *installed) version() string {
	i.t.Helper()
	out, err := i.command("version")
	require.NoError(i.t, err, out)
	fields := strings.Fields(out)
	require.GreaterOrEqual(i.t, len(fields), 2, out)
	require.Contains(i.t, []string{oldVersion, newVersion, brokenVersion}, fields[1])
	return fields[1]
}

// stage stages a version as the command does, and returns at once.
func (i *installed) stage(version string, bound time.Duration) {
	i.t.Helper()
	c := i.releases.config(i.version())
	c.Bound = bound
	_, err := fetch(i.t.Context(), i.place, c, version, true, "")
	require.NoError(i.t, err)
}

// until waits until done.
func (i *installed) until(what string, done func() bool) {
	i.t.Helper()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for end := time.After(rigTimeout); !done(); {
		select {
		case <-look.C:
		case <-end:
			require.Fail(i.t, "not in time: "+what, i.text())
		}
	}
}

// processes returns the number of processes of the installed programs of all versions.
func (i *installed) processes() (n int) {
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	require.NoError(i.t, err)
	for _, link := range links {
		if exe, err := os.Readlink(link); err == nil && strings.HasPrefix(exe, i.place.dir()+string(filepath.Separator)) {
			n++
		}
	}
	return n
}

func (i *installed) delegate() (d api.Delegate) {
	all, err := i.client.Delegates(i.t.Context())
	require.NoError(i.t, err)
	for _, one := range all {
		if one.Name == i.name && one.State != "LOST" {
			require.Empty(i.t, d.ID, "one delegate is two")
			d = one
		}
	}
	return d
}

// settled waits until the upgrade has ended, and checks that the program in its place runs as the delegate. It returns
// the version.
func (i *installed) settled() string {
	i.t.Helper()
	var j *Journal
	i.until("the end of the upgrade", func() bool {
		var err error
		j, err = i.place.read()
		require.NoError(i.t, err)
		return j != nil && j.final()
	})
	version := i.version()
	want := j.From
	if j.Phase == Done {
		want = j.Version
	}
	require.Equal(i.t, want, version, "%s: %s", j.Phase, j.Reason)
	i.until("the registration of "+version, func() bool {
		d := i.delegate()
		return d.Version == version && d.State == "ALIVE"
	})
	i.until("the process of "+version, func() bool { // it replaces itself in an instant
		exe, err := os.Stat(fmt.Sprintf("/proc/%d/exe", i.run.cmd.Process.Pid))
		file, fileErr := os.Stat(i.place.program)
		return errors.Join(err, fileErr) == nil && os.SameFile(exe, file)
	})
	return version
}
