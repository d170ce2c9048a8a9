package upgrade

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
)

// serviceRig is a machine with a real systemd. The delegate and its manager are services of it.
type serviceRig struct {
	*testbed.Machine
	t     *testing.T
	token string
}

// killOnce lets a test kill the process at an instant. The process that systemd starts after it gets no such order.
const killOnce = `[Service]
ExecStartPre=+/bin/sh -c "rm -f /srv/kill; mv /srv/kill-next /srv/kill || true"
EnvironmentFile=-/srv/kill
EnvironmentFile=-/srv/kill-always
`

func newServiceRig(t *testing.T) *serviceRig {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and starts the bundled programs")
	}
	m := &serviceRig{Machine: testbed.Systemd(t), t: t}
	program, err := os.ReadFile(testbed.BuildStatic(t, "./examples/manager"))
	require.NoError(t, err)
	m.write("/root/manager", program, 0o755)
	program = buildDelegate(t)
	m.write("/root/delegate", program, 0o755)
	all := newReleases(t)
	all.dir = m.Path("/srv/releases")
	for _, version := range []string{oldVersion, newVersion} {
		all.release(version, archiveOf(t, entry{name: "delegate", content: string(bytes.ReplaceAll(program, []byte(oldVersion), []byte(version)))}))
	}
	all.release(brokenVersion, archiveOf(t, entry{name: "delegate", content: "#!/bin/sh\ncase $1 in version) echo delegate " + brokenVersion + ";; *) exit 3;; esac\n"}))
	all.stable(newVersion)
	m.write("/root/manager.env", []byte(`ACCOUNTS="`+rigAccount+`=`+rigSecret+"\"\n"), 0o600)
	m.write("/root/config.env", []byte(strings.Join([]string{
		"ACCOUNT_ID=" + rigAccount, "TOKEN=" + rigSecret, "URL=http://127.0.0.1:3460", "NAME=upgraded", "RESUME=true",
		"UPGRADE_URL=file:///srv/releases", "UPGRADE_KEY=" + all.pub,
	}, "\n")+"\n"), 0o600)
	m.write("/etc/systemd/system/dlite-delegate.service.d/kill.conf", []byte(killOnce), 0o644)
	m.run("./manager install --env-file manager.env --wait 50s")
	m.token = strings.TrimSpace(m.run("./manager token demo --env-file manager.env 2>/dev/null"))
	m.run("./delegate install --env-file config.env --wait 50s")
	return m
}

func (m *serviceRig) write(file string, content []byte, mode os.FileMode) {
	m.t.Helper()
	require.NoError(m.t, os.MkdirAll(filepath.Dir(m.Path(file)), 0o755))
	require.NoError(m.t, os.WriteFile(m.Path(file), content, mode))
}

// run runs a script that must succeed.
func (m *serviceRig) run(script string) string {
	m.t.Helper()
	out, err := m.Run(script)
	require.NoError(m.t, err, m.log(err))
	return out
}

// log returns the log of the delegate if there is an error to explain.
func (m *serviceRig) log(err error) string {
	if err == nil {
		return ""
	}
	out, _ := m.Run("journalctl --no-pager -o short-precise -n 100 -u dlite-delegate; cat /var/lib/dlite-delegate/program/*.upgrade")
	return out
}

// settles waits until the service works with this version in one process, and its upgrade has ended in this phase.
func (m *serviceRig) settles(version, phase string) (j Journal) {
	m.t.Helper()
	var last string
	for end := time.Now().Add(rigTimeout); time.Now().Before(end); <-time.After(100 * time.Millisecond) {
		var s struct {
			State   string `json:"state"`
			Version string `json:"version"`
		}
		last = m.run("dlite-delegate status -o json || true")
		if json.Unmarshal([]byte(last), &s) != nil || s.State != "running" || s.Version != version {
			continue
		}
		b, err := os.ReadFile(m.Path("/var/lib/dlite-delegate/program/dlite-delegate.upgrade"))
		require.NoError(m.t, err)
		require.NoError(m.t, json.Unmarshal(b, &j))
		if last = string(b); j.Phase == phase {
			count := m.run(`ls -l /proc/[0-9]*/exe 2>/dev/null | grep -c "/dlite-delegate" || true`)
			if last = "processes: " + count; strings.TrimSpace(count) == "1" {
				return j
			}
		}
	}
	require.FailNow(m.t, "the service does not settle as "+version+" after "+phase, "%s\n%s", last, m.log(os.ErrDeadlineExceeded))
	return j
}

func (m *serviceRig) restarts() string {
	return m.run("systemctl show -p NRestarts --value dlite-delegate")
}

// api calls the manager.
func (m *serviceRig) api(path, flags string) string {
	m.t.Helper()
	return m.run("curl -sS --fail-with-body -H 'Authorization: Bearer " + m.token + "' 'http://127.0.0.1:3460/api/" + path + "accountId=" + rigAccount + "' " + flags)
}

// Rule G4: root upgrades a service of the system, under a real systemd. The running step continues, systemd sees one process
// all the time, a kill at any instant leads to the old or the new version, and a version that does not work is taken back.
func TestASystemdServiceUpgradesItself(t *testing.T) {
	m := newServiceRig(t)
	m.run(`echo '{"id":"long","steps":[{"id":"step","data":{"run":{"entrypoint":["sh","-ec"],"commands":["touch begun; for i in 1 2 3 4 5 6 7 8; do sleep 1; done; echo end"]}}}]}' >stage.json`)
	m.api("stages?", "-d @stage.json")
	for end := time.Now().Add(rigTimeout); m.run("find /var/lib/dlite-delegate/work -name begun") == ""; <-time.After(100 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "the step does not begin: %s", m.log(os.ErrDeadlineExceeded))
	}
	pid := m.run("systemctl show -p MainPID --value dlite-delegate")
	out := m.run("dlite-delegate upgrade")
	for _, phase := range []string{"is verified", Trial, Probation, Done} {
		assert.Contains(t, out, phase)
	}
	assert.Contains(t, m.api("stages/long?wait=50&", ""), `"SUCCESS"`)
	assert.Equal(t, oldVersion, m.settles(newVersion, Done).From)
	assert.Equal(t, pid, m.run("systemctl show -p MainPID --value dlite-delegate"), "the new program has another process")
	assert.Equal(t, "0\n", m.restarts())
	assert.Contains(t, m.run("/usr/local/bin/dlite-delegate version"), oldVersion, "root's program has changed")
	assert.Contains(t, m.run("dlite-delegate upgrade --to "+newVersion), "runs already")
	m.run("dlite-delegate restart")
	m.settles(newVersion, Done)
	m.Reboot()
	m.settles(newVersion, Done)

	version := newVersion
	for _, step := range []string{"trial", "trying", "tried", "swap", "kept", "replaced", "swapped", "probation", "registered"} {
		t.Run("killed at "+step, func(t *testing.T) {
			m.t = t
			to := newVersion
			if version == newVersion {
				to = oldVersion
			}
			m.write("/srv/kill-next", []byte(killVariable+"="+step+"\n"), 0o644)
			m.run("dlite-delegate restart")
			was := m.restarts()
			m.run("timeout 100 dlite-delegate upgrade --allow-downgrade --to " + to + " || true") // it may lose the process
			m.settles(to, Done)
			assert.NotEqual(t, was, m.restarts(), "the process was not killed")
			version = to
		})
	}
	m.t = t
	t.Run("a version that ends at once", func(t *testing.T) {
		m.t = t
		_, err := m.Run("dlite-delegate upgrade --to " + brokenVersion)
		require.ErrorContains(t, err, "ended before it registered (exit status 3)")
		m.settles(version, Failed)
	})
	t.Run("a version that ends at each start returns to the previous one", func(t *testing.T) {
		m.t = t
		if version == newVersion {
			m.run("dlite-delegate upgrade --allow-downgrade --to " + oldVersion)
		}
		m.settles(oldVersion, map[bool]string{true: Done, false: Failed}[version == newVersion])
		m.write("/srv/kill-always", []byte(killVariable+"=probation\n"), 0o644)
		m.run("dlite-delegate restart")
		m.run("timeout 100 dlite-delegate upgrade --to " + newVersion + " || true")
		j := m.settles(oldVersion, Failed)
		assert.Equal(t, fmt.Sprintf("it was started %d times and did not register", maxStarts), j.Reason)
	})
	m.t = t
	m.run("dlite-delegate uninstall && test ! -e /var/lib/dlite-delegate && test ! -e /usr/local/bin/dlite-delegate")
}
