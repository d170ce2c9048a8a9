//go:build unix

package daemonset_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/driver/daemonset"
)

// The tests' program is also the daemon and the delegate that the tests start.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv(journalVariable) != "":
		runDaemon(os.Getenv(journalVariable))
		return
	case os.Getenv(delegateVariable) != "":
		runDelegate(os.Getenv(delegateVariable))
		return
	}
	goleak.VerifyTestMain(m)
}

const (
	// journalVariable names the directory in which a daemon writes what it does, one file for each process.
	journalVariable = "DLITE_TEST_JOURNAL"
	// modeVariable selects the behaviour of the daemon.
	modeVariable     = "DLITE_TEST_MODE"
	delegateVariable = "DLITE_TEST_DELEGATE"
)

// recording is a handler that writes down its calls.
type recording struct {
	mu    sync.Mutex
	lines []string // guarded by mu
	file  *os.File
	told  chan struct{}
}

func (r *recording) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	line := fmt.Sprintf(format, args...)
	r.lines = append(r.lines, line)
	if r.file != nil {
		_, _ = r.file.WriteString(line + "\n")
	}
	select {
	case r.told <- struct{}{}:
	default:
	}
}

func (r *recording) Configure(_ context.Context, settings json.RawMessage) error {
	var s struct{ Refuse bool }
	if json.Unmarshal(settings, &s) == nil && s.Refuse {
		return errors.New("these settings are refused")
	}
	r.add("settings %s", settings)
	return nil
}

func (r *recording) Assign(_ context.Context, tasks []daemonset.Task) error {
	for _, t := range tasks {
		if bytes.Contains(t.Params.Data, []byte("crash")) {
			os.Exit(3)
		}
		r.add("assign %s %s %v", t.ID, t.Params.Data, t.Secrets)
		fmt.Printf("working on %s with %v\n", t.ID, t.Secrets)
	}
	return nil
}

func (r *recording) Remove(_ context.Context, ids []string) error {
	slices.Sort(ids)
	r.add("remove %s", strings.Join(ids, " "))
	return nil
}

// runDaemon is a daemon.
func runDaemon(dir string) {
	mode := os.Getenv(modeVariable)
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(os.Getpid())), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		panic(err)
	}
	r := &recording{file: f, told: make(chan struct{}, 1)}
	_, leaked := os.LookupEnv("DLITE_TEST_LEAK")
	r.add("started %s args=%v greeting=%s leaked=%v", mode, os.Args[1:], os.Getenv("GREETING"), leaked)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	switch mode {
	case "die":
		os.Exit(4)
	case "parent":
		startChild(dir)
	case "deaf":
		signal.Ignore(syscall.SIGTERM)
		ctx = context.Background()
	case "port":
		// A daemon that knows only the port, as daemons of other projects do.
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:"+os.Getenv("DAEMON_SERVER_PORT"))
		if err != nil {
			panic(err)
		}
		context.AfterFunc(ctx, func() { os.Exit(0) })
		var mu sync.Mutex
		ids := map[string]bool{}
		panic(http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { //nolint:gosec // a test
			mu.Lock()
			defer mu.Unlock()
			var in struct {
				Tasks []struct {
					ID     string `json:"id"`
					Params struct {
						Data []byte `json:"binary_data"`
					} `json:"params"`
				} `json:"tasks"`
			}
			switch q.Method {
			case http.MethodPost:
				if err := json.NewDecoder(q.Body).Decode(&in); err != nil {
					panic(err)
				}
				for _, t := range in.Tasks {
					ids[t.ID] = true
					r.add("assign %s %s", t.ID, t.Params.Data)
				}
			case http.MethodDelete:
				for _, id := range q.URL.Query()["taskIds"] {
					delete(ids, id)
					r.add("remove %s", id)
				}
			}
			list := []map[string]string{}
			for id := range ids {
				list = append(list, map[string]string{"id": id})
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"tasks_metadata": list, "error": ""})
		})))
	}
	if err := daemonset.Serve(ctx, r); err != nil {
		r.add("error %v", err)
		os.Exit(5)
	}
	r.add("stopped")
}

// startChild starts a process that leaves the process group of the daemon.
func startChild(dir string) {
	cmd := exec.Command("/bin/sh", "-c", `touch "$0/child-$$"; exec sleep 1000`, dir) //nolint:noctx // the delegate ends it
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
}
