package upgrade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/daemonset"
	"github.com/delegate-io/dlite/manager/api"
)

// daemonJournal is set in a process that is a daemon: the file that gets a line at each start.
const daemonJournal = "DLITE_TEST_DAEMON_JOURNAL"

// idle is a daemon without work.
type idle struct{}

func (idle) Configure(context.Context, json.RawMessage) error { return nil }
func (idle) Assign(context.Context, []daemonset.Task) error   { return nil }
func (idle) Remove(context.Context, []string) error           { return nil }

// playDaemon is the program of a daemon set. It returns its exit code.
func playDaemon(journal string) int {
	f, err := os.OpenFile(journal, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(f, "started")
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		err = daemonset.Serve(ctx, idle{})
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// trialTime is how long the process of a trial is watched after its registration. A daemon starts in a tenth of it.
const trialTime = 3 * time.Second

// try starts the program as the process of a trial, and ends it some time after it has registered.
func (i *installed) try() {
	i.t.Helper()
	ours, theirs, err := pair()
	require.NoError(i.t, err)
	cmd := exec.CommandContext(i.t.Context(), i.place.program, "server", "--env-file", i.config)
	cmd.Env, cmd.ExtraFiles = append(os.Environ(), trialVariable+"=3"), []*os.File{theirs}
	require.NoError(i.t, cmd.Start())
	require.NoError(i.t, theirs.Close())
	require.NoError(i.t, ours.SetReadDeadline(time.Now().Add(rigTimeout)))
	line := make([]byte, len(registered))
	_, err = io.ReadFull(ours, line)
	require.NoError(i.t, err)
	require.Equal(i.t, registered, string(line))
	require.NoError(i.t, ours.SetReadDeadline(time.Now().Add(trialTime)))
	_, err = ours.Read(line)
	require.ErrorIs(i.t, err, os.ErrDeadlineExceeded, "the process has ended")
	require.NoError(i.t, ours.Close())
	require.NoError(i.t, cmd.Wait())
}

// Rule G4: the process of a trial starts and reports no daemons. The new program starts them once.
func TestATrialStartsNoDaemons(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { http.ServeFile(w, req, "/proc/self/exe") }))
	t.Cleanup(files.Close)
	dir := t.TempDir()
	journal := filepath.Join(dir, "journal")
	config, err := json.Marshal(map[string]any{
		"executable_config": map[string]any{"name": "daemon", "version": "1", "executables": []any{
			map[string]string{"os": runtime.GOOS, "arch": runtime.GOARCH, "url": files.URL + "/daemon"},
		}},
		"envs": []string{daemonJournal + "=" + journal},
	})
	require.NoError(t, err)
	_, err = r.client.SetDaemonSet(t.Context(), api.DaemonSet{ID: "daemon", Type: "test", Config: config})
	require.NoError(t, err)
	starts := func() int {
		b, err := os.ReadFile(journal)
		if !errors.Is(err, os.ErrNotExist) {
			require.NoError(t, err)
		}
		return strings.Count(string(b), "started\n")
	}
	healthy := func() bool {
		set, err := r.client.DaemonSet(t.Context(), "daemon")
		require.NoError(t, err)
		return len(set.Delegates) == 1 && set.Delegates[0].Healthy
	}

	i := r.install(t, "with daemons", "CGI_CACHE_DIR="+filepath.Join(dir, "cache"))
	i.try()
	require.Zero(t, starts())
	set, err := r.client.DaemonSet(t.Context(), "daemon")
	require.NoError(t, err)
	require.Len(t, set.Delegates, 1)
	require.Zero(t, set.Delegates[0].ReportedAt)

	i.start("")
	i.until("a healthy daemon", healthy)
	require.Equal(t, 1, starts())
	i.stage(newVersion, bound)
	require.Equal(t, newVersion, i.settled())
	i.until("the daemon of the new program", func() bool { return starts() > 1 && healthy() })
	assert.Equal(t, 2, starts(), i.text())
}
