package testbed

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// LibvirtDaemon is a real libvirt for one test. It runs without privileges and uses none of
// the paths of the machine's own libvirt.
type LibvirtDaemon struct {
	// Socket is the path of the daemon's socket, URI the URI of its QEMU driver.
	Socket, URI string
	// Dir is a directory that the daemon and its machines may use.
	Dir string

	user *syscall.Credential // nil means this process's user
}

// nobody is the user of the daemon if the test runs as root. libvirt would treat root as the
// machine's administrator.
const nobody = 65534

// Libvirt starts a daemon that ends with the test, together with all its machines. Without
// libvirt the test ends, see [Unavailable].
func Libvirt(tb testing.TB) *LibvirtDaemon {
	tb.Helper()
	program, err := exec.LookPath("libvirtd")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/libvirtd")
	}
	if err != nil {
		Unavailable(tb, "libvirt", "there is no libvirtd: %v", err)
	}
	// A socket's path must be short.
	dir, err := os.MkdirTemp("", "dlite-lv-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	Keep(tb, dir)
	d := &LibvirtDaemon{Socket: filepath.Join(dir, "run/libvirt/libvirt-sock"), URI: "qemu:///session", Dir: dir}
	if os.Geteuid() == 0 {
		d.user = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LIBVIRT_DEFAULT_URI=" + d.URI}
	for name, below := range map[string]string{
		"XDG_RUNTIME_DIR": "run", "XDG_CONFIG_HOME": "config", "XDG_CACHE_HOME": "cache", "XDG_DATA_HOME": "data",
	} {
		env = append(env, name+"="+d.Folder(tb, below))
	}
	d.own(tb, dir)
	ready, err := new(net.ListenConfig).ListenPacket(tb.Context(), "unixgram", filepath.Join(dir, "notify"))
	if err != nil {
		tb.Fatal(err)
	}
	defer ready.Close() //nolint:errcheck // it has served
	d.own(tb, filepath.Join(dir, "notify"))
	var log bytes.Buffer
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), program)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(env, "NOTIFY_SOCKET="+filepath.Join(dir, "notify")), &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: d.user}
	if err := cmd.Start(); err != nil {
		tb.Fatalf("start libvirt: %v", err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		d.endMachines(tb)
	})
	const longest = time.Minute
	_ = ready.SetReadDeadline(time.Now().Add(longest))
	message := make([]byte, 1024)
	for {
		n, _, err := ready.ReadFrom(message)
		if err != nil {
			_ = cmd.Process.Kill()
			tb.Fatalf("libvirt did not start: %v", err)
		}
		if strings.Contains(string(message[:n]), "READY=1") {
			return d
		}
	}
}

// Folder creates a directory that the daemon may use.
func (d *LibvirtDaemon) Folder(tb testing.TB, name string) string {
	tb.Helper()
	dir := filepath.Join(d.Dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		tb.Fatal(err)
	}
	d.own(tb, dir)
	return dir
}

// Copy copies a file to a path that the daemon's machines may read.
func (d *LibvirtDaemon) Copy(tb testing.TB, path string) string {
	tb.Helper()
	in, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer in.Close() //nolint:errcheck // it is only read
	out, err := os.Create(filepath.Join(d.Dir, filepath.Base(path)))
	if err == nil {
		_, err = io.Copy(out, in)
	}
	if err == nil {
		err = out.Close()
	}
	if err != nil {
		tb.Fatal(err)
	}
	d.own(tb, out.Name())
	return out.Name()
}

func (d *LibvirtDaemon) own(tb testing.TB, path string) {
	tb.Helper()
	if d.user == nil {
		return
	}
	if err := os.Chown(path, int(d.user.Uid), int(d.user.Gid)); err != nil {
		tb.Fatal(err)
	}
}

// Machines returns the ids of the processes that use files of the daemon.
func (d *LibvirtDaemon) Machines() []int {
	var found []int
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		line, err := os.ReadFile(f)
		if err != nil || !bytes.Contains(line, []byte("\x00-name\x00")) || !bytes.Contains(line, []byte(d.Dir+"/")) {
			continue
		}
		var pid int
		for _, digit := range filepath.Base(filepath.Dir(f)) {
			pid = 10*pid + int(digit-'0')
		}
		found = append(found, pid)
	}
	return found
}

// endMachines ends processes that outlive the daemon. The test fails if there are any.
func (d *LibvirtDaemon) endMachines(tb testing.TB) {
	tb.Helper()
	for _, pid := range d.Machines() {
		tb.Errorf("left behind: machine of libvirt, process %d", pid)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}
