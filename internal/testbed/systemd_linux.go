package testbed

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

//go:embed systemd.sh
var systemdScript string

// Machine is a machine with a real systemd: processes, mounts, network, control groups and users are its own, and it
// has the programs of this machine. Its methods are for one goroutine at a time.
type Machine struct {
	tb     testing.TB
	root   string
	cgroup string
	keeper *exec.Cmd
	input  io.Closer
	pid    string // of its first process, outside
}

// machineKeeper starts systemd, and kills it when the input closes, also if the test process is killed.
const machineKeeper = `echo $$ >"$1/cgroup.procs" || exit 1
unshare --pid --mount --uts --ipc --cgroup --net --fork --kill-child=KILL sh -c "$3" sh "$2" </dev/null &
pid=$!
echo $pid
read -r _
kill -KILL $pid
wait $pid`

// machineTools are the programs that a Machine needs.
var machineTools = []string{"unshare", "nsenter", "pivot_root", "ip", "systemctl", "useradd", "userdel", "curl"}

// systemdProgram is the place of systemd on Debian.
const systemdProgram = "/usr/lib/systemd/systemd"

// Systemd starts a machine. It needs root and the packages systemd, util-linux, iproute2, passwd and curl; without them
// the test ends, see [Unavailable]. At the end of the test all its processes and files are removed.
func Systemd(tb testing.TB) *Machine {
	tb.Helper()
	if os.Geteuid() != 0 {
		Unavailable(tb, "systemd", "only root can start one")
	}
	for _, tool := range machineTools {
		if _, err := exec.LookPath(tool); err != nil {
			Unavailable(tb, "systemd", "there is no %s", tool)
		}
	}
	if _, err := os.Stat(systemdProgram); err != nil {
		Unavailable(tb, "systemd", "there is no %s", systemdProgram)
	}
	groups, err := unifiedGroups()
	if err != nil {
		Unavailable(tb, "systemd", "%v", err)
	}
	b := make([]byte, 6)
	_, _ = rand.Read(b)
	m := &Machine{tb: tb, root: tb.TempDir(), cgroup: filepath.Join(groups, "dlite-systemd-"+hex.EncodeToString(b))}
	if err := os.Mkdir(m.cgroup, 0o755); err != nil {
		Unavailable(tb, "systemd", "no control group can be made: %v", err)
	}
	tb.Cleanup(func() {
		m.halt()
		m.removeGroups()
	})
	if err := m.furnish(); err != nil {
		tb.Fatal(err)
	}
	m.boot()
	return m
}

// unifiedGroups returns where the control groups of version 2 are mounted.
func unifiedGroups() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(mounts)) {
		if before, after, _ := strings.Cut(line, " - "); strings.HasPrefix(after, "cgroup2 ") {
			return strings.Fields(before)[4], nil
		}
	}
	return "", errors.New("there are no control groups of version 2")
}

// Path returns the place of a file of the machine. Files in /run, /tmp and /dev are in memory and have none.
func (m *Machine) Path(file string) string {
	if rest, ok := strings.CutPrefix(file, "/usr/local/"); ok {
		return filepath.Join(m.root, "local", rest)
	}
	return filepath.Join(m.root, file)
}

// furnish makes the files of a fresh machine.
func (m *Machine) furnish() error {
	for _, dir := range []string{
		"etc/systemd/system", "var/lib", "var/log", "var/tmp", "var/cache", "local/bin", "root", "home",
		"usr", "proc", "sys", "dev", "run", "tmp",
	} {
		if err := os.MkdirAll(filepath.Join(m.root, dir), 0o755); err != nil {
			return err
		}
	}
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	for file, text := range map[string]string{
		"etc/passwd":        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
		"etc/group":         "root:x:0:\nnogroup:x:65534:\ntty:x:5:\nutmp:x:43:\nsystemd-journal:x:102:\n",
		"etc/shadow":        "root:*:1:0:99999:7:::\n",
		"etc/gshadow":       "root:*::\n",
		"etc/nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files\n",
		"etc/hosts":         "127.0.0.1 localhost fresh\n",
		"etc/hostname":      "fresh\n",
		"etc/machine-id":    hex.EncodeToString(id) + "\n",
		"etc/os-release":    "ID=fresh\n",
	} {
		if err := os.WriteFile(filepath.Join(m.root, file), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if b, err := os.ReadFile("/etc/ld.so.cache"); err == nil {
		if err := os.WriteFile(filepath.Join(m.root, "etc/ld.so.cache"), b, 0o644); err != nil {
			return err
		}
	}
	links := map[string]string{"etc/systemd/system/default.target": "/usr/lib/systemd/system/multi-user.target", "var/run": "/run"}
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		links[dir] = "usr/" + dir
	}
	// These change this machine, or wait for hardware.
	for _, unit := range []string{
		"systemd-sysctl", "systemd-remount-fs", "systemd-udevd", "systemd-udev-trigger", "systemd-modules-load", "systemd-binfmt",
		"systemd-logind", "systemd-timesyncd", "systemd-resolved", "systemd-networkd",
	} {
		links["etc/systemd/system/"+unit+".service"] = "/dev/null"
	}
	links["etc/systemd/system/getty.target"] = "/dev/null"
	for link, target := range links {
		if err := os.Symlink(target, filepath.Join(m.root, link)); err != nil {
			return err
		}
	}
	return nil
}

// boot starts systemd and returns when it has started everything.
func (m *Machine) boot() {
	m.tb.Helper()
	var stderr bytes.Buffer
	// No context: the process ends at the latest when its input closes.
	m.keeper = exec.CommandContext(context.Background(), "sh", "-c", machineKeeper, "sh", m.cgroup, m.root, systemdScript)
	m.keeper.Stderr = &stderr
	in, err := m.keeper.StdinPipe()
	if err != nil {
		m.tb.Fatal(err)
	}
	out, err := m.keeper.StdoutPipe()
	if err == nil {
		err = m.keeper.Start()
	}
	if err != nil {
		m.tb.Fatal(err)
	}
	m.input = in
	line := make([]byte, 32)
	n, err := out.Read(line)
	if err != nil {
		m.halt()
		Unavailable(m.tb, "systemd", "its namespaces cannot be made: %v: %s", err, stderr.String())
	}
	unshare := strings.TrimSpace(string(line[:n]))
	var last string
	for begin := time.Now(); time.Since(begin) < callTimeout; {
		b, err := os.ReadFile("/proc/" + unshare + "/task/" + unshare + "/children")
		if err != nil {
			break // it has ended
		}
		if m.pid = strings.TrimSpace(string(b)); m.pid != "" {
			// It exits with 1 if a unit has failed, for instance for lack of a right of this machine.
			if last, _ = m.Run("systemctl is-system-running --wait"); strings.Contains("running degraded", strings.TrimSpace(last)) && strings.TrimSpace(last) != "" {
				return
			}
		}
		<-time.After(50 * time.Millisecond)
	}
	m.halt()
	Unavailable(m.tb, "systemd", "it does not start: %s %s", last, stderr.String())
}

// halt kills all processes of the machine.
func (m *Machine) halt() {
	if m.input == nil {
		return
	}
	_ = m.input.Close()
	_ = m.keeper.Wait() // its status has no meaning
	m.input, m.pid = nil, ""
}

// Reboot kills all processes of the machine at once, and starts it again with its files.
func (m *Machine) Reboot() {
	m.tb.Helper()
	m.halt()
	m.removeGroups()
	if err := os.Mkdir(m.cgroup, 0o755); err != nil {
		m.tb.Fatal(err)
	}
	m.boot()
}

// Run runs a script of sh on the machine, as root. It returns both outputs.
func (m *Machine) Run(script string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", "--target", m.pid, "--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup", "--root", "--wd", "--",
		"env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "HOME=/root", "LC_ALL=C.UTF-8", "sh", "-c", "cd /root && "+script)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", script, err, out)
	}
	return string(out), err
}

// removeGroups removes the control groups of the machine. The kernel may need a moment for the last processes.
func (m *Machine) removeGroups() {
	var err error
	for range 250 {
		if err = removeGroup(m.cgroup); err == nil {
			return
		}
		<-time.After(20 * time.Millisecond)
	}
	m.tb.Errorf("remove the control group of the machine: %v", err)
}

// removeGroup removes a control group with those below it.
func removeGroup(dir string) error {
	var groups []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			groups = append(groups, path)
		}
		return nil
	})
	for i := len(groups) - 1; i >= 0 && err == nil; i-- {
		if err = os.Remove(groups[i]); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return err
}
