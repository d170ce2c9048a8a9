package endtoend_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
)

// serviceAccount is the account of the tests of services.
const serviceAccount = "demo"

// freshMachine is a machine with systemd, with both programs in a download folder and a manager as a service.
type freshMachine struct {
	*testbed.Machine
	t     *testing.T
	token string
}

func newFreshMachine(t *testing.T) *freshMachine {
	m := &freshMachine{Machine: testbed.Systemd(t), t: t}
	for _, program := range []string{"delegate", "manager"} {
		download(t, testbed.BuildStatic(t, "./examples/"+program), m.Path("/root/download/"+program))
	}
	const secret = "f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0" // of this test
	m.write("/root/manager.env", `ACCOUNTS="`+serviceAccount+`=`+secret+`"`+"\n")
	m.write("/root/config.env", `ACCOUNT_ID="`+serviceAccount+`"
TOKEN="`+secret+`"
URL="http://127.0.0.1:3460"
NAME="fresh"
MAX_STAGES=2
`)
	return m
}

// download copies a program, as a download would.
func download(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
	require.NoError(t, os.WriteFile(to, b, 0o755))
}

func (m *freshMachine) write(file, text string) {
	m.t.Helper()
	require.NoError(m.t, os.MkdirAll(filepath.Dir(m.Path(file)), 0o755))
	require.NoError(m.t, os.WriteFile(m.Path(file), []byte(text), 0o600))
}

// run runs a script that must succeed.
func (m *freshMachine) run(script string) string {
	m.t.Helper()
	out, err := m.Run(script)
	if err != nil {
		logs, _ := m.Run("journalctl --no-pager -o short-precise -n 150 -u 'dlite-*'")
		require.NoError(m.t, err, "%s\n%s", out, logs)
	}
	return out
}

// submit submits a stage with one step, which leaves a file in its workspace when it begins.
func (m *freshMachine) submit(id, command string) {
	m.t.Helper()
	body, err := json.Marshal(map[string]any{"id": id, "steps": []any{map[string]any{"id": "step", "data": map[string]any{
		"run": map[string]any{"entrypoint": []string{"sh", "-ec"}, "commands": []string{"touch begun-" + id + "; " + command}},
	}}}})
	require.NoError(m.t, err)
	m.write("/root/stage.json", string(body))
	m.run("curl -sS --fail-with-body -H 'Authorization: Bearer " + m.token + "' 'http://127.0.0.1:3460/api/stages?accountId=" + serviceAccount + "' -d @stage.json")
}

// stage is a part of a stage of the API.
type serviceStage struct {
	Status string `json:"status"`
	Error  string `json:"error_msg"`
}

func (m *freshMachine) stage(id, wait string) (s serviceStage) {
	m.t.Helper()
	out := m.run("curl -sS --fail-with-body -H 'Authorization: Bearer " + m.token + "' 'http://127.0.0.1:3460/api/stages/" + id + "?accountId=" + serviceAccount + wait + "'")
	require.NoError(m.t, json.Unmarshal([]byte(out), &s), out)
	return s
}

// succeeds waits for the end of a stage.
func (m *freshMachine) succeeds(id string) {
	m.t.Helper()
	s := m.stage(id, "&wait=50")
	if !assert.Equal(m.t, "SUCCESS", s.Status, "stage %s: %s", id, s.Error) {
		m.t.Log(m.run("journalctl --no-pager -o short-precise -n 150 -u 'dlite-*'"))
		m.t.FailNow()
	}
}

// awaitStep waits until the commands of a stage's step run. The manager has the step as running before: a delegate that
// is killed while it starts the processes of the step cannot follow them.
func (m *freshMachine) awaitStep(id string) {
	m.t.Helper()
	m.await("the step of "+id+" runs", func() bool {
		return m.run("find /var/lib/dlite-delegate/work -name begun-"+id+" 2>/dev/null || true") != ""
	})
}

func (m *freshMachine) await(what string, done func() bool) {
	m.t.Helper()
	for begin := time.Now(); time.Since(begin) < time.Minute; {
		if done() {
			return
		}
		<-time.After(100 * time.Millisecond)
	}
	logs, _ := m.Run("systemctl status dlite-delegate; journalctl --no-pager -o short-precise -n 150 -u 'dlite-*'")
	require.FailNow(m.t, "it does not happen: "+what, logs)
}

// serviceStatus is the output of "delegate status -o json".
type serviceStatus struct {
	State    string `json:"state"`
	PID      int    `json:"pid"`
	Version  string `json:"version"`
	Message  string `json:"message"`
	Delegate struct {
		SlotsMax  int `json:"slots_max"`
		SlotsUsed int `json:"slots_used"`
		Stages    int `json:"stages"`
		Servers   []struct {
			Heartbeat time.Time `json:"heartbeat"`
		} `json:"servers"`
	} `json:"delegate"`
}

// status returns the status of the delegate and the exit code of the command.
func (m *freshMachine) status() (s serviceStatus, code string) {
	m.t.Helper()
	out := m.run("$(command -v dlite-delegate || echo download/delegate) status -o json 2>/dev/null; echo \" $?\"")
	at := strings.LastIndex(out, " ")
	require.NoError(m.t, json.Unmarshal([]byte(out[:at]), &s), out)
	return s, strings.TrimSpace(out[at:])
}

// awaitOther waits until another process than pid works.
func (m *freshMachine) awaitOther(pid int) (s serviceStatus) {
	m.t.Helper()
	m.await("another process works", func() bool {
		s, _ = m.status()
		return s.State == "running" && s.PID != pid
	})
	return s
}

// tree returns all files of the machine with their modes and contents, except those that systemd and the tools for
// users write.
func (m *freshMachine) tree() map[string]string {
	m.t.Helper()
	files := map[string]string{}
	for _, top := range []string{"/etc", "/usr/local/", "/var", "/home", "/root"} {
		root := m.Path(top)
		require.NoError(m.t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			name := filepath.Join(top, strings.TrimPrefix(path, strings.TrimSuffix(root, "/")))
			switch {
			case strings.HasPrefix(name, "/var/lib/systemd"), strings.HasPrefix(name, "/var/lib/dlite-manager/"), strings.HasPrefix(name, "/var/log"), strings.HasPrefix(name, "/var/tmp"),
				name == "/root/stage.json", name == "/etc/.pwd.lock", name == "/etc/.updated", name == "/var/.updated":
				return nil
			case strings.HasPrefix(name, "/etc/") && strings.HasSuffix(name, "-"):
				return nil // the copies that useradd and userdel make
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			files[name] = info.Mode().String()
			if info.Mode().IsRegular() {
				b, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				sum := sha256.Sum256(b)
				files[name] += " " + hex.EncodeToString(sum[:8])
			}
			return nil
		}))
	}
	return files
}

// Rules G4 and X2: the life of a delegate as a service, on a machine with a real systemd. The stages run through the
// bundled manager, which is a service too.
func TestTheLifeOfAService(t *testing.T) {
	m := newFreshMachine(t)
	m.run("download/manager install --env-file manager.env --wait 50s")
	m.token = strings.TrimSpace(m.run("download/manager token demo --env-file manager.env 2>/dev/null"))
	before := m.tree()

	t.Run("one command installs it, and a stage runs", func(t *testing.T) {
		begin := time.Now()
		m.t = t
		m.run("download/delegate install --env-file config.env --wait 50s")
		m.submit("first", "echo hello")
		m.succeeds("first")
		t.Logf("from the install to the end of the first stage: %.1f s", time.Since(begin).Seconds())

		s, code := m.status()
		assert.Equal(t, "0", code)
		assert.Equal(t, "running", s.State)
		assert.Equal(t, 2, s.Delegate.SlotsMax)
		assert.NotEmpty(t, s.Version)
		require.Len(t, s.Delegate.Servers, 1)
		assert.False(t, s.Delegate.Servers[0].Heartbeat.IsZero())
		m.await("systemd shows the state", func() bool {
			return strings.Contains(m.run("systemctl show -p StatusText dlite-delegate"), "running: 0 stages, 0 of 2 slots used")
		})
	})
	t.Run("it has few rights, and its settings are secret", func(t *testing.T) {
		m.t = t
		assert.Equal(t, "-rw------- 0 0\n", m.run("stat -c '%A %u %g' /etc/dlite-delegate/config.env"))
		pid, _ := m.status()
		assert.Regexp(t, `NoNewPrivs:\s+1`, m.run(fmt.Sprintf("cat /proc/%d/status", pid.PID)))
		assert.Regexp(t, `CapBnd:\s+0000000000000000`, m.run(fmt.Sprintf("cat /proc/%d/status", pid.PID)))
		assert.NotContains(t, m.run(fmt.Sprintf("tr '\\0' ' ' </proc/%d/cmdline; tr '\\0' ' ' </proc/%d/environ; journalctl --no-pager", pid.PID, pid.PID)), "f0f0f0")
		// B2: a step reaches neither the settings nor the socket.
		m.submit("curious", "if cat /run/credentials/*/* /etc/dlite-delegate/config.env; then exit 3; fi; if ls /run/dlite-delegate | grep .; then exit 4; fi; touch /etc/x && exit 5; true")
		m.succeeds("curious")
	})
	t.Run("kill -9 leads to another process, which follows the step to its end", func(t *testing.T) {
		m.t = t
		old, _ := m.status()
		m.submit("killed", "for i in 1 2 3 4 5; do echo tick; sleep 1; done")
		m.awaitStep("killed")
		m.run(fmt.Sprintf("kill -9 %d", old.PID))
		next := m.awaitOther(old.PID)
		assert.Equal(t, 1, next.Delegate.Stages)
		assert.Equal(t, 1, next.Delegate.SlotsUsed)
		m.succeeds("killed")
	})
	t.Run("the watchdog restarts a process that hangs", func(t *testing.T) {
		m.t = t
		m.write("/etc/systemd/system/dlite-delegate.service.d/watchdog.conf", "[Service]\nWatchdogSec=5\n")
		m.run("systemctl daemon-reload && dlite-delegate restart")
		old, _ := m.status()
		m.run(fmt.Sprintf("kill -STOP %d", old.PID))
		m.awaitOther(old.PID)
		assert.Contains(t, m.run("journalctl --no-pager -u dlite-delegate"), "Failed with result 'watchdog'")
	})
	t.Run("stop drains", func(t *testing.T) {
		m.t = t
		m.submit("drained", "sleep 3")
		m.awaitStep("drained")
		// systemd would kill a program that says nothing after one second.
		m.write("/etc/systemd/system/dlite-delegate.service.d/watchdog.conf", "[Service]\nTimeoutStopSec=1\n")
		m.run("systemctl daemon-reload")
		out := m.run("dlite-delegate stop")
		assert.Contains(t, out, "draining: 1 stages")
		assert.Equal(t, "SUCCESS", m.stage("drained", "").Status)
		s, code := m.status()
		assert.Equal(t, "stopped", s.State)
		assert.Equal(t, "3", code)
		assert.Contains(t, m.run("systemctl show -p Result dlite-delegate"), "success")
	})
	t.Run("it comes back by itself when the machine starts again", func(t *testing.T) {
		m.t = t
		m.run("dlite-delegate start")
		m.Reboot()
		m.await("the delegate works", func() bool { s, _ := m.status(); return s.State == "running" })
		m.submit("rebooted", "echo hello")
		m.succeeds("rebooted")
	})
	t.Run("stop ends a delegate that waits for its manager", func(t *testing.T) {
		m.t = t
		m.run("dlite-manager stop")
		_, err := m.Run("dlite-delegate restart --wait 1s")
		require.ErrorContains(t, err, "has not accepted the registration yet")
		s, code := m.status()
		assert.Equal(t, "starting", s.State)
		assert.Equal(t, "0", code)
		m.run("dlite-delegate stop")
		s, _ = m.status()
		assert.Equal(t, "stopped", s.State)
		m.run("dlite-manager start && dlite-delegate start")
	})
	t.Run("another install upgrades the program and keeps the settings", func(t *testing.T) {
		m.t = t
		settings, err := os.ReadFile(m.Path("/etc/dlite-delegate/config.env"))
		require.NoError(t, err)
		program, err := os.ReadFile(m.Path("/root/download/delegate"))
		require.NoError(t, err)
		newer := append(program, "newer"...) // what follows the program in its file has no effect
		require.NoError(t, os.WriteFile(m.Path("/root/download/newer"), newer, 0o755))
		old, _ := m.status()
		m.submit("upgraded", "sleep 2")
		m.awaitStep("upgraded")
		m.run("download/newer install")
		m.run("rm download/newer")
		assert.Equal(t, "SUCCESS", m.stage("upgraded", "").Status)
		m.awaitOther(old.PID)
		installed, err := os.ReadFile(m.Path("/usr/local/bin/dlite-delegate"))
		require.NoError(t, err)
		assert.Equal(t, len(newer), len(installed))
		kept, err := os.ReadFile(m.Path("/etc/dlite-delegate/config.env"))
		require.NoError(t, err)
		assert.Equal(t, string(settings), string(kept))
	})
	t.Run("a wrong setting stops it with a reason", func(t *testing.T) {
		m.t = t
		_, err := m.Run("cp config.env wrong.env && echo MAX_STAGE=1 >>wrong.env && dlite-delegate install --env-file wrong.env")
		require.ErrorContains(t, err, "did you mean MAX_STAGES?")
		s, _ := m.status()
		assert.Equal(t, "running", s.State) // the installed settings are as before
		m.run("cp wrong.env /etc/dlite-delegate/config.env && rm wrong.env && systemctl restart dlite-delegate || true")
		m.await("it has failed", func() bool { s, _ := m.status(); return s.State == "failed" })
		_, code := m.status()
		assert.Equal(t, "3", code)
		assert.Contains(t, m.run("systemctl show -p ExecMainStatus dlite-delegate"), "78")
		m.run("cp config.env /etc/dlite-delegate/config.env && dlite-delegate start")
	})
	t.Run("the init script runs once before the registration, and its failure ends the program", func(t *testing.T) {
		m.t = t
		m.run(`printf "INIT_SCRIPT='echo prepared; echo %%TOKEN%% f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0; echo once >>/var/lib/dlite-delegate/prepared'\n" >>/etc/dlite-delegate/config.env`)
		m.run("dlite-delegate restart && dlite-delegate restart")
		assert.Equal(t, "once\n", m.run("cat /var/lib/dlite-delegate/prepared"))
		logs := m.run("journalctl --no-pager -u dlite-delegate")
		assert.Contains(t, logs, "prepared")
		assert.NotContains(t, logs, "f0f0f0")

		m.run(`cp config.env failing.env && printf "INIT_SCRIPT='echo broken; exit 7'\n" >>failing.env`)
		_, err := m.Run("dlite-delegate install --env-file failing.env --wait 4s")
		require.ErrorContains(t, err, "does not work yet")
		logs = m.run("journalctl --no-pager -u dlite-delegate")
		assert.Contains(t, logs, "INIT_SCRIPT: exit status 7")
		assert.Contains(t, logs, "status=75/TEMPFAIL")
		assert.Contains(t, logs, "earlier starts have failed: waiting before this one")
		m.run("rm failing.env && dlite-delegate install --env-file config.env")
	})
	t.Run("as root, steps have users of their own", func(t *testing.T) {
		m.t = t
		m.run("dlite-delegate install --rights root")
		m.submit("as-root", "test $(id -u) -gt 1000000; touch file; touch /etc/x && exit 5; true")
		m.succeeds("as-root")
		m.run("dlite-delegate install --rights own")
		m.submit("as-own", "test $(id -u) -lt 1000; echo hello")
		m.succeeds("as-own")
	})
	t.Run("uninstall leaves nothing", func(t *testing.T) {
		m.t = t
		out := m.run("dlite-delegate uninstall")
		after := m.tree()
		for file, was := range before {
			assert.Equal(t, was, after[file], file)
		}
		for file := range after {
			assert.Contains(t, before, file)
		}
		assert.Contains(t, out, "removed /etc/dlite-delegate/config.env")
		s, code := m.status()
		assert.Equal(t, "not installed", s.State)
		assert.Equal(t, "4", code)
		assert.Empty(t, m.run("pgrep -f dlite-delegate | grep -v $$ || true"), "processes")
		assert.NotContains(t, m.run("systemctl list-units --all --no-pager; ls /run; ls /dev/shm"), "dlite-delegate")
	})
	t.Run("uninstall of a manager keeps its data unless told", func(t *testing.T) {
		m.t = t
		assert.Contains(t, m.run("dlite-manager status"), "running")
		m.run("dlite-manager uninstall --keep-settings")
		assert.FileExists(t, m.Path("/var/lib/dlite-manager/manager.db"))
		assert.FileExists(t, m.Path("/etc/dlite-manager/config.env"))
		m.run("download/manager install --wait 50s") // with the kept settings and data
		assert.Equal(t, "SUCCESS", m.stage("first", "").Status)
		m.run("dlite-manager uninstall --delete-data")
		assert.NoDirExists(t, m.Path("/var/lib/dlite-manager"))
		assert.NoDirExists(t, m.Path("/etc/dlite-manager"))
	})
}
