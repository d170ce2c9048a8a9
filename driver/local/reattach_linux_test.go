package local_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/task/stage"
)

// line is a connection to an engine that can be held. While it is held, the client behaves like a dead
// process.
type line struct {
	listener net.Listener
	engine   string
	holdAt   string // the line is held at this text of the client; "" means never

	mu    sync.Mutex
	conns []net.Conn
	isCut bool
	wg    sync.WaitGroup

	holdOne, cutOne sync.Once
	held, cut       chan struct{}
}

func newLine(t *testing.T, engine *testbed.Engine, holdAt string) *line {
	t.Helper()
	path, ok := strings.CutPrefix(engine.Client.DaemonHost(), "unix://")
	require.True(t, ok)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(workDir(t), "engine.sock"))
	require.NoError(t, err)
	l := &line{listener: listener, engine: path, holdAt: holdAt, held: make(chan struct{}), cut: make(chan struct{})}
	l.wg.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			l.wg.Go(func() { l.serve(c) })
		}
	})
	return l
}

func (l *line) serve(c net.Conn) {
	e, err := new(net.Dialer).DialContext(context.Background(), "unix", l.engine)
	if err != nil || !l.add(c, e) {
		_ = c.Close()
		return
	}
	l.wg.Go(func() { l.copy(c, e, false); _ = c.Close() })
	l.copy(e, c, true)
	_ = e.Close()
}

func (l *line) add(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, conns...)
	return !l.isCut
}

// copy copies data until the line is held.
func (l *line) copy(to io.Writer, from io.Reader, asks bool) {
	for buf := make([]byte, 64<<10); ; {
		n, err := from.Read(buf)
		if asks && l.holdAt != "" && strings.Contains(string(buf[:n]), l.holdAt) {
			l.hold()
		}
		select {
		case <-l.held:
			<-l.cut
			return
		default:
		}
		if _, writeErr := to.Write(buf[:n]); err != nil || writeErr != nil {
			return
		}
	}
}

func (l *line) hold() { l.holdOne.Do(func() { close(l.held) }) }

// end closes the line and waits for its goroutines.
func (l *line) end() {
	l.hold()
	l.cutOne.Do(func() { close(l.cut) })
	_ = l.listener.Close()
	l.mu.Lock()
	l.isCut = true
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.mu.Unlock()
	l.wg.Wait()
}

// taken is the ledger of one step, beside the ledger of the transaction.
type taken struct {
	*ledger
	step ledger
}

func (l *taken) Record(ctx context.Context, r driver.Resource) error {
	return errors.Join(l.ledger.Record(ctx, r), l.step.Record(ctx, r))
}

// life is a rig whose first process is dead.
type life struct {
	*rig
	step  *driver.Step
	begun []driver.Resource
}

// killed runs a step whose process dies when it sends holdAt to the engine or, if holdAt is "", when
// its output contains word.
func killed(t *testing.T, step stage.Step, holdAt, word string) *life {
	t.Helper()
	r, engine := dockerRig(t)
	if holdAt != "" || word != "" {
		step = in(engine.Image, step)
	}
	l := &life{rig: r, step: &driver.Step{Step: step}}
	way := newLine(t, engine, holdAt)
	first, err := newDriver(withWorkDir(r.work), withMemoryDir(r.memory), withDockerHost(way.listener.Addr().Network()+"://"+way.listener.Addr().String()), withEngineWait(-1))
	require.NoError(t, err)
	require.NoError(t, first.Init(t.Context(), r.env, r.ledger))
	steps := &taken{ledger: r.ledger}
	out, over := newBuffer(), make(chan struct{})
	go func() {
		defer close(over)
		_, _ = first.Execute(context.WithoutCancel(t.Context()), r.env, l.step, out, steps)
	}()
	t.Cleanup(func() { way.end(); <-over; require.NoError(t, first.Close()) })
	if word != "" {
		out.waitFor(t, word)
		way.hold()
	}
	select {
	case <-way.held:
	case <-over:
		require.FailNow(t, "the step was not to end", out.String())
	}
	l.begun = steps.step.resources()
	return l
}

// goOn reattaches, as the next process does.
func (l *life) goOn() (*driver.Result, string, error) {
	l.t.Helper()
	b, err := json.Marshal(l.env)
	require.NoError(l.t, err)
	var env driver.Environment
	require.NoError(l.t, json.Unmarshal(b, &env))
	out := newBuffer()
	res, err := l.d.Reattach(l.t.Context(), &env, l.step, out, l.ledger, l.begun)
	return res, out.String(), err
}

func (l *life) path(name string) string {
	l.t.Helper()
	found, err := filepath.Glob(filepath.Join(l.work, "*", "workspace", name))
	require.NoError(l.t, err)
	if len(found) == 1 {
		return found[0]
	}
	dirs, err := filepath.Glob(filepath.Join(l.work, "*", "workspace"))
	require.NoError(l.t, err)
	require.Len(l.t, dirs, 1)
	return filepath.Join(dirs[0], name)
}

// Rule T5: a running container is followed to its end, and its output is read from the beginning.
func TestReattachFollowsARunningContainer(t *testing.T) {
	t.Parallel()
	l := killed(t, sh("s", `echo one; echo err >&2; while [ ! -e go ]; do sleep 0.01; done; echo two; echo K=v >> $DRONE_OUTPUT; printf part; exit 3`), "", "err\n")
	require.NoError(t, os.WriteFile(l.path("go"), nil, 0o600))
	res, out, err := l.goOn()
	require.NoError(t, err)
	assert.Equal(t, 3, res.ExitCode)
	assert.Equal(t, map[string]string{"K": "v"}, res.Outputs)
	assert.ElementsMatch(t, []string{"one", "err", "two", "part"}, strings.Split(out, "\n"), "the order of two streams is not fixed")
}

// Rule T5: the result of a container that has ended meanwhile is found.
func TestReattachFindsHowAContainerEnded(t *testing.T) {
	t.Parallel()
	l := killed(t, sh("s", `echo one; echo K=v >> $DRONE_OUTPUT; exit 4`), "", "one\n")
	awaitExit(t, l)
	res, out, err := l.goOn()
	require.NoError(t, err)
	assert.Equal(t, 4, res.ExitCode)
	assert.Equal(t, "one\n", out)
	assert.Equal(t, "v", res.Outputs["K"])
}

// Rule T5: a container that was about to be started is started, once.
func TestReattachStartsAContainerThatWasAboutToStart(t *testing.T) {
	t.Parallel()
	l := killed(t, sh("s", `echo ran >> ran; cat ran`), "/start", "")
	res, out, err := l.goOn()
	require.NoError(t, err)
	assert.Zero(t, res.ExitCode)
	assert.Equal(t, "ran\n", out)
}

// Rule T5: before that, the step has not begun and may run again.
func TestReattachReportsThatAStepHasNotBegun(t *testing.T) {
	t.Parallel()
	l := killed(t, sh("s", `echo ran`), "/containers/create", "")
	_, out, err := l.goOn()
	require.ErrorIs(t, err, driver.ErrNotBegun)
	assert.Empty(t, out)
	res, err := l.d.Execute(t.Context(), l.env, l.step, io.Discard, l.ledger)
	require.NoError(t, err)
	assert.Zero(t, res.ExitCode)
	none := slices.DeleteFunc(slices.Clone(l.begun), func(r driver.Resource) bool { return r.Kind == "container" })
	l.begun = none
	_, _, err = l.goOn()
	require.ErrorIs(t, err, driver.ErrNotBegun, "a network alone is no beginning")
}

// Rule T5: the result of a container that is gone is lost.
func TestReattachCannotFollowAContainerThatIsGone(t *testing.T) {
	t.Parallel()
	l := killed(t, sh("s", `echo one; sleep 600`), "", "one\n")
	engine := testbed.Docker(t)
	require.NoError(t, engine.Client.ContainerRemove(t.Context(), containerOf(t, l), container.RemoveOptions{Force: true}))
	_, _, err := l.goOn()
	require.ErrorIs(t, err, driver.ErrLost)
}

// Rules T5 and T7: the time-out continues and ends the container.
func TestReattachKeepsTheTimeOut(t *testing.T) {
	t.Parallel()
	l := killed(t, sh("s", `echo one; sleep 600`), "", "one\n")
	l.step.Timeout = 1
	_, _, err := l.goOn()
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = testbed.Docker(t).Client.ContainerInspect(t.Context(), containerOf(t, l))
	assert.True(t, errdefs.IsNotFound(err), "%v", err)
}

// Rule T5: a background container runs until the cleanup, with its output.
func TestReattachKeepsABackgroundContainerRunning(t *testing.T) {
	t.Parallel()
	step := sh("db", `echo up; while [ ! -e go ]; do sleep 0.01; done; echo more; sleep 600`)
	step.Detach = true
	step.Ready = &stage.Ready{Command: []string{"test", "-e", "ready"}}
	l := killed(t, step, "", "up\n")
	require.NoError(t, os.WriteFile(l.path("ready"), nil, 0o600))
	out := newBuffer()
	res, err := l.d.Reattach(t.Context(), l.env, l.step, out, l.ledger, l.begun)
	require.NoError(t, err)
	assert.True(t, res.Detached)
	require.NoError(t, os.WriteFile(l.path("go"), nil, 0o600))
	out.waitFor(t, "more\n")
	assert.Equal(t, "up\nmore\n", out.String())
}

// Rule T5: a service that has ended by itself does not fail.
func TestReattachDoesNotMissAServiceThatHasEnded(t *testing.T) {
	t.Parallel()
	r, engine := dockerRig(t)
	r.init()
	step := in(engine.Image, sh("db", `echo up; while [ ! -e go ]; do sleep 0.01; done; echo done`))
	step.Detach = true
	steps := &taken{ledger: r.ledger}
	_, err := r.d.Execute(t.Context(), r.env, &driver.Step{Step: step}, io.Discard, steps)
	require.NoError(t, err)
	l := &life{rig: r, step: &driver.Step{Step: step}, begun: steps.step.resources()}
	require.NoError(t, os.WriteFile(l.path("go"), nil, 0o600))
	awaitExit(t, l)
	second, err := newDriver(withWorkDir(r.work), withMemoryDir(r.memory))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, second.Close()) })
	out := newBuffer()
	res, err := second.Reattach(t.Context(), r.env, l.step, out, r.ledger, l.begun)
	require.NoError(t, err)
	assert.True(t, res.Detached)
	out.waitFor(t, "up\ndone\n")
}

// Rules T5 and T2: a host process cannot be followed. It is killed.
func TestReattachKillsAProcessOfTheHost(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	steps := &taken{ledger: r.ledger}
	out, over := newBuffer(), make(chan struct{})
	step := &driver.Step{Step: sh("s", "echo $$; exec sleep 600")}
	go func() {
		defer close(over)
		_, _ = r.d.Execute(t.Context(), r.env, step, out, steps)
	}()
	out.waitFor(t, "\n")
	second, err := newDriver(withWorkDir(r.work), withMemoryDir(r.memory))
	require.NoError(t, err)
	_, err = second.Reattach(t.Context(), r.env, step, io.Discard, r.ledger, steps.step.resources())
	require.ErrorIs(t, err, driver.ErrLost)
	<-over // the process is dead
	require.NoError(t, second.Close())
}

// The driver's own lines arrive as empty lines, so that the line numbers stay the same.
func TestReattachKeepsTheNumbersOfLines(t *testing.T) {
	t.Parallel()
	step := sh("s", `echo one; exit 0`)
	step.Auth = &stage.Auth{Address: "registry.test", Username: "u", Password: "visibly-fake"}
	step.Pull = "IfNotPresent"
	l := killed(t, step, "", "one\n")
	awaitExit(t, l)
	for i := range l.begun {
		if l.begun[i].Kind == "container" {
			l.begun[i].Data = json.RawMessage(strings.Replace(string(l.begun[i].Data), "{", `{"said":2,`, 1))
		}
	}
	_, out, err := l.goOn()
	require.NoError(t, err)
	assert.Equal(t, "\n\none\n", out)
}

func containerOf(t *testing.T, l *life) string {
	t.Helper()
	for _, r := range l.begun {
		if r.Kind == "container" {
			return r.ID
		}
	}
	require.FailNow(t, "no container is on record")
	return ""
}

func awaitExit(t *testing.T, l *life) {
	t.Helper()
	ended, lost := testbed.Docker(t).Client.ContainerWait(t.Context(), containerOf(t, l), container.WaitConditionNotRunning)
	select {
	case <-ended:
	case err := <-lost:
		require.NoError(t, err)
	}
}
