package local_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local"
	"github.com/delegate-io/dlite/task/stage"
)

// othersSecret is in the files, the environment, the command line and the output of another transaction,
// and in the files of the delegate.
const othersSecret = "visibly-fake-secret-of-another"

// attack is a script of a step that knows the paths and process ids of another transaction. It succeeds if
// it prints the secret or "reached". The variables are in the environment of the step.
type attack struct{ name, script string }

// readingAttacks change nothing if they succeed.
var readingAttacks = []attack{
	{"the workspace by its path", `cat "$A_WORKSPACE/secret"`},
	{"the scratch directory", `cat "$A_SCRATCH/secret"`},
	{"the file for outputs", `cat "$A_OUTPUT"`},
	{"the temporary volume", `cat "$A_VOLUME/secret"`},
	{"all directories of transactions", `cat "$WORK"/*/workspace/secret "$MEMORY"/*/steps/*/out/*`},
	{"the names of directories", `for d in "$WORK"/* "$MEMORY"/*; do case $d in */dlite-*) [ "$d" = "${DLITE_WORKSPACE%/*}" ] || [ "$d" = "$OWN_MEMORY" ] || echo reached; esac; done`},
	{"a file in /tmp", `cat /tmp/of-another-*`},
	{"a file in /var/tmp", `cat /var/tmp/of-another-*`},
	{"a file in /dev/shm", `cat /dev/shm/of-another-*`},
	{"a search", `find /tmp /var/tmp /dev/shm /run/user -maxdepth 7 -type f -exec grep -l visibly-fake-secret-of- {} + | grep -q . && echo reached`},
	{"the notes", `cat "$NOTES"`},
	{"the notes by a pattern", `cat /dev/shm/*/*.notes`},
	{"the key of the notes", `cat "$LEDGER/notes.key"`},
	{"the settings of the delegate", `cat "$SETTINGS"`},
	{"the socket of the other supervisor", `[ -S "$A_MEMORY/supervisor/socket" ] && echo reached`},
	{"the socket of its own supervisor", `[ -S "$OWN_MEMORY/supervisor/socket" ] && echo reached`},
	{"the list of mounts", `grep -q "$A_NAME" /proc/self/mountinfo && echo reached`},
	{"the root of a process", `cat "/proc/$A_PID/root$A_WORKSPACE/secret" "/proc/$DELEGATE/root$A_WORKSPACE/secret"`},
	{"the root of the first process", `cat "/proc/1/root$A_WORKSPACE/secret"`},
	{"the directory of a process", `cat "/proc/$A_PID/cwd/secret" /proc/[0-9]*/cwd/secret`},
	{"an open file of a process", `timeout 1 cat /proc/$A_PID/fd/[3-9]* /proc/$DELEGATE/fd/[3-9]*; ls /proc/$A_PID/fd/1 && echo reached`},
	{"a link to a file", `ln -s "$A_WORKSPACE/secret" link; cat link`},
	{"a hard link to a file", `ln "$A_WORKSPACE/secret" hard; cat hard`},
	{"the environment of a process", `tr '\0' '\n' < "/proc/$A_PID/environ"`},
	{"all environments", `cat /proc/[0-9]*/environ | tr '\0' '\n' | grep OF_ANOTHER=`},
	{"all command lines", `cat /proc/[0-9]*/cmdline | tr '\0' '\n' | grep "^visibly-fake"`},
	{"the environment of the supervisor", `cat /proc/1/environ && echo reached`},
	{"the memory of the supervisor", `dd if=/proc/1/mem bs=1 count=1 >/dev/null && echo reached`},
	{"the open files of the supervisor", `ls /proc/1/fd | grep -q . && echo reached`},
	{"the memory of the delegate", `[ -e "/proc/$DELEGATE/mem" ] && echo reached`},
	{"the list of processes", `ps ax -o pid= | grep -qw "$A_PID" && echo reached`},
	{"a test signal to a process", `kill -0 "$A_PID" && echo reached`},
	{"a test signal to the delegate", `kill -0 "$DELEGATE" && echo reached`},
	{"the namespaces of a process", `nsenter -t "$A_PID" -a cat "$A_WORKSPACE/secret"`},
	{"the namespaces of the supervisor", `nsenter -t 1 -m cat "$A_WORKSPACE/secret"; nsenter -t 1 -m true && echo reached`},
	{"the user namespace of the supervisor", `nsenter -t 1 -U true && echo reached`},
	{"a user namespace with its own mounts", `unshare -Urm sh -c 'umount -l "$WORK"; umount -l /tmp; umount -l /dev/shm; cat "$A_WORKSPACE/secret" "$NOTES"'`},
	{"a copy of the root directory's mount", `mkdir -p m; unshare -Urm sh -c 'mount --bind / m; cat "m$A_WORKSPACE/secret" "m$NOTES" "m$SETTINGS"'`},
	{"a copy of the mounts below", `mkdir -p m; unshare -Urm sh -c 'mount --rbind / m; umount -l m/tmp; umount -l m/dev/shm; cat "m$A_WORKSPACE/secret" "m$NOTES"'`},
	{"a /proc of its own", `unshare -Urmpf sh -c 'mount -t proc proc /proc; cat /proc/[0-9]*/environ' | tr '\0' '\n' | grep OF_ANOTHER=`},
	{"the /proc below", `unshare -Urm sh -c 'umount -l /proc; cat "/proc/$A_PID/environ"' | tr '\0' '\n' | grep OF_ANOTHER=`},
	{"another root directory", `unshare -Ur chroot /proc/1/root cat "$A_WORKSPACE/secret"`},
	{"shared memory of System V", `ipcs -m | grep -q "^0x" && echo reached`},
	{"root through sudo", `command -v sudo >/dev/null && sudo -n cat "$A_WORKSPACE/secret" </dev/null`},
	{"root through su", `su -c 'cat "$A_WORKSPACE/secret"' root </dev/null`},
	{"tracing", `command -v strace >/dev/null && timeout 1 strace -p "$A_PID" && echo reached; command -v gdb >/dev/null && gdb -p "$A_PID" -batch && echo reached`},
	{"the disk itself", `for d in /dev/vd? /dev/sd? /dev/nvme?n?; do [ -b "$d" ] && head -c 1 "$d" | grep -qa . && echo reached; done`},
}

// changingAttacks would change or end something of the other transaction, the delegate or the machine.
var changingAttacks = []attack{
	{"writing to the workspace", `echo x > "$A_WORKSPACE/secret"`},
	{"removing the workspace", `rm -rf "$A_WORKSPACE"`},
	{"removing all directories", `rm -rf "$WORK"/* "$MEMORY"/*`},
	{"writing to the ledger", `echo x >> "$LEDGER/notes.key"`},
	{"writing to the notes", `echo x >> "$NOTES"`},
	{"killing a process", `kill -9 "$A_PID"`},
	{"killing a group", `kill -9 -- "-$A_PID"`},
	{"killing the other supervisor", `kill -9 "$A_SUPERVISOR"`},
	{"killing its own supervisor", `kill -9 1; kill -SEGV 1; kill -TERM 1; kill -QUIT 1; kill -HUP 1`},
	{"killing the delegate", `kill -9 "$DELEGATE"`},
	{"killing everything", `setsid sh -c 'kill -9 -1'`},
	{"killing a control group", `for f in $(find /sys/fs/cgroup -name cgroup.kill -o -name freezer.state); do [ -w "$f" ] && echo reached; done`},
	{"leaving its control group", `for f in $(find /sys/fs/cgroup -name cgroup.procs); do [ -w "$f" ] && echo reached; done`},
	{"taking over crashes", `{ echo "|/bin/true" > /proc/sys/kernel/core_pattern; } && echo reached`},
	{"changing users", `{ echo x >> /etc/passwd; } && echo reached`},
	{"replacing its workspace", `mv "$DLITE_WORKSPACE" x && echo reached; mv "$DLITE_WORKSPACE" "$DLITE_WORKSPACE-old" && ln -s "$A_WORKSPACE" "$DLITE_WORKSPACE" && echo reached`},
	{"replacing the directory of steps", `mv "$OWN_MEMORY/steps" "$OWN_MEMORY/old" && echo reached`},
	{"announcing a service", `mkdir "${DLITE_WORKSPACE%/*}/services" && echo reached`},
	{"unmounting", `umount -l /tmp; umount -l /dev/shm; cat "$A_WORKSPACE/secret" "$NOTES"`},
	{"making a device", `mknod disk b 254 0 && head -c 1 disk && echo reached`},
}

// victims are another transaction and a delegate with files.
type victims struct {
	*rig
	out *buffer
	env map[string]string
}

// newVictims starts a transaction with a step that runs, and returns the facts that an attacker knows.
func newVictims(t *testing.T, opts ...option) *victims {
	t.Helper()
	ledger, settings, memory := t.TempDir(), filepath.Join(t.TempDir(), "config.env"), memoryDir(t)
	notes := filepath.Join(memory, "x.notes")
	for _, path := range []string{settings, notes, filepath.Join(ledger, "notes.key")} {
		require.NoError(t, os.WriteFile(path, []byte(othersSecret), 0o600))
	}
	hidden := func(c *local.Config) { c.Host.Hidden = []string{ledger, settings} }
	a := &victims{rig: newRig(t, append(opts, hidden)...), out: newBuffer()}
	a.rig.env.Envs = map[string]string{"OF_ANOTHER": othersSecret}
	if len(opts) > 0 {
		a.rig.env.Envs["SEPARATED"] = "yes" // the shared memory ends with the namespace
	}
	a.rig.env.Volumes = []*stage.Volume{{Temp: &stage.TempVolume{ID: "v", Name: "v"}}}
	a.init()
	token := filepath.Base(memory)
	step := sh("service", `umask 0; echo "$OF_ANOTHER" | tee secret "$HARNESS_SCRATCH_DIR/secret" "$DLITE_VOLUME_V/secret" "$DRONE_OUTPUT" \
		"/tmp/of-another-`+token+`" "/var/tmp/of-another-`+token+`" "/dev/shm/of-another-`+token+`" > /dev/null
		[ -z "$SEPARATED" ] || ipcmk -M 64 > /dev/null
		echo "$DLITE_WORKSPACE|$HARNESS_SCRATCH_DIR|$DRONE_OUTPUT|$DLITE_VOLUME_V|"; while :; do sleep 0.05; [ ! -e go ] || echo went; done`)
	step.Run.Command = append(step.Run.Command, othersSecret)
	step.Volumes = []*stage.VolumeMount{{Name: "v", Path: "/v"}}
	step.Detach = true
	_, err := a.d.Execute(t.Context(), a.rig.env, &driver.Step{Step: step}, a.out, a.ledger)
	require.NoError(t, err)
	a.out.waitFor(t, "|\n")
	t.Cleanup(func() {
		for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm"} {
			_ = os.Remove(filepath.Join(dir, "of-another-"+token))
		}
	})
	paths := strings.Split(a.out.String(), "|")
	a.env = map[string]string{
		"A_WORKSPACE": paths[0], "A_SCRATCH": paths[1], "A_OUTPUT": paths[2], "A_VOLUME": paths[3], "A_NAME": filepath.Base(filepath.Dir(paths[0])),
		"A_PID": hostPID(t, othersSecret), "A_SUPERVISOR": "0", "DELEGATE": strconv.Itoa(os.Getpid()),
		"WORK": a.work, "MEMORY": a.memory, "LEDGER": ledger, "SETTINGS": settings, "NOTES": notes,
	}
	a.env["A_MEMORY"] = filepath.Join(a.memory, a.env["A_NAME"])
	for _, r := range a.ledger.ofKind("supervisor") {
		pid, _, _ := strings.Cut(strings.TrimPrefix(string(r.Data), `{"pid":`), ",")
		a.env["A_SUPERVISOR"] = pid
	}
	return a
}

// hostPID returns the id of the shell that has arg as its last argument.
func hostPID(t *testing.T, arg string) string {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, file := range lines {
		b, _ := os.ReadFile(file)
		var status syscall.Stat_t
		if bytes.HasPrefix(b, []byte("sh\x00")) && bytes.HasSuffix(b, []byte("\x00"+arg+"\x00")) &&
			syscall.Stat(filepath.Dir(file), &status) == nil && strconv.Itoa(os.Getpid()) != filepath.Base(filepath.Dir(file)) {
			return filepath.Base(filepath.Dir(file))
		}
	}
	t.Fatal("the step of the other transaction does not run")
	return ""
}

// attacker returns a transaction of the same driver.
func (a *victims) attacker(t *testing.T) *rig {
	t.Helper()
	b := &rig{t: t, d: a.d, work: a.work, memory: a.memory, ledger: &ledger{}}
	b.env = &driver.Environment{ID: a.rig.env.ID + "-attacker", Envs: maps.Clone(a.env)}
	b.init()
	t.Cleanup(b.cleanup)
	_, out := b.run(sh("where", `printf %s "${DRONE_OUTPUT%/steps/*}"`))
	b.env.Envs["OWN_MEMORY"] = out
	return b
}

// try reports whether an attack succeeds.
func (b *rig) try(one attack) (bool, string) {
	b.t.Helper()
	out := newBuffer()
	step := sh("attack", "exec 2>&1 </dev/null; "+one.script)
	step.Timeout = 5
	if _, err := b.d.Execute(b.t.Context(), b.env, &driver.Step{Step: step}, out, b.ledger); err != nil {
		return false, err.Error()
	}
	return strings.Contains(out.String(), othersSecret) || strings.Contains(out.String(), "reached"), out.String()
}

// Rules T8 and S5: a step reads, ends and changes nothing of another transaction or of the delegate, even
// if it knows all paths and process ids. The attacks are real: most succeed if steps are trusted.
func TestStepsCannotTouchOtherTransactionsOrTheDelegate(t *testing.T) {
	t.Parallel()
	t.Run(fmt.Sprintf("uid %d", os.Geteuid()), func(t *testing.T) {
		a := newVictims(t, separated())
		require.NotEqual(t, "0", a.env["A_SUPERVISOR"], "steps are not separated here")
		b := a.attacker(t)
		tried := 0
		for _, one := range append(readingAttacks, changingAttacks...) {
			tried++
			if ok, out := b.try(one); ok {
				t.Errorf("%s: %s", one.name, out)
			}
		}
		secret, err := os.ReadFile(filepath.Join(a.env["A_WORKSPACE"], "secret"))
		require.NoError(t, err)
		require.Equal(t, othersSecret+"\n", string(secret))
		for _, name := range []string{"NOTES", "SETTINGS"} {
			b, err := os.ReadFile(a.env[name])
			require.NoError(t, err)
			require.Equal(t, othersSecret, string(b), name)
		}
		require.NoError(t, os.WriteFile(filepath.Join(a.env["A_WORKSPACE"], "go"), nil, 0o600))
		a.out.waitFor(t, "went\n")
		t.Logf("tried %d ways as user %d, none succeeded", tried, os.Geteuid())
	})
	if os.Geteuid() == 0 {
		t.Run("as another user", func(t *testing.T) { runAs(t, 54321, "^TestStepsCannotTouchOtherTransactionsOrTheDelegate$") })
	}
}

// The attacks are real: without separation most of those that only read succeed. As root they could harm
// the machine.
func TestTrustedStepsReachEachOther(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		runAs(t, 54322, "^TestTrustedStepsReachEachOther$")
		return
	}
	a := newVictims(t)
	b := a.attacker(t)
	n := 0
	for _, one := range readingAttacks {
		if ok, _ := b.try(one); ok {
			n++
		}
	}
	require.GreaterOrEqual(t, n, 20)
	t.Logf("%d of %d ways succeed", n, len(readingAttacks))
}

// runAs runs a test of this program as another user.
func runAs(t *testing.T, uid int, name string) {
	t.Helper()
	dir := workDir(t)
	program := filepath.Join(dir, "test")
	require.NoError(t, copyProgram(program, os.Args[0]))
	home := filepath.Join(dir, "home")
	require.NoError(t, os.Mkdir(home, 0o700))
	require.NoError(t, os.Chown(home, uid, uid))
	cmd := exec.CommandContext(t.Context(), program, "-test.run="+name, "-test.v")
	cmd.Dir, cmd.Env = home, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "--- PASS: "+strings.Trim(name, "^$"))
	t.Log(string(out))
}

func copyProgram(to, from string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755) //nolint:gosec // another user runs it
}

// A delegate may have inherited files of the program that started it, and a supervisor has the delegate's program.
func TestSeparatedStepsInheritNoFiles(t *testing.T) {
	t.Parallel()
	fd, err := unix.Open(os.DevNull, unix.O_RDONLY, 0) // programs that this process starts inherit it
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	r := newRig(t, separated())
	r.init()
	_, out := r.run(stage.Step{ID: "step", Run: stage.Run{Entrypoint: []string{"ls", "/proc/self/fd"}}})
	require.Equal(t, "0\n1\n2\n3\n", out, "ls itself has a directory open")
}
