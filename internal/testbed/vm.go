package testbed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// GuestSpyPort is the port of the spy in a guest, see internal/testbed/spy.
const GuestSpyPort = 9080

// Guest holds the files that start a virtual machine. The guest is a Linux with busybox, the
// agent (examples/agent) and the spy. The agent waits for its agent.Boot at a serial port.
type Guest struct {
	// QEMU is the emulator. Kernel is an uncompressed Linux.
	QEMU, Kernel string
	// Initrd contains the whole guest, which then runs in memory. DiskInitrd only mounts Disk,
	// a raw ext4 image with the guest on the first virtio disk.
	Initrd, DiskInitrd, Disk string
	// Append is the kernel's command line for an emulated guest. Without it the guest waits
	// for ever for a clock that is not emulated.
	Append string
}

// guestAppend: every argument saves time under emulation, or is needed there.
const guestAppend = "console=ttyS0 panic=-1 reboot=t quiet mitigations=off nokaslr random.trust_cpu=on " +
	"no_timer_check rcupdate.rcu_expedited=1 8250.nr_uarts=1 cryptomgr.notests tsc_early_khz=2445432 tsc=reliable"

// VM creates a guest from this machine's packages, see run.sh, and the programs of this clone.
// It stays in the cache until one of these changes. Without the packages the test ends, see
// [Unavailable].
func VM(tb testing.TB) *Guest {
	tb.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		Unavailable(tb, "vm", "guests are made on linux/amd64 alone")
	}
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		Unavailable(tb, "vm", "there is no QEMU: %v", err)
	}
	kernels, _ := filepath.Glob("/boot/vmlinuz-*-cloud-amd64")
	if len(kernels) == 0 {
		Unavailable(tb, "vm", "there is no kernel for guests (package linux-image-cloud-amd64)")
	}
	for _, tool := range []string{"lz4", "mke2fs", "qemu-img"} {
		if _, err := exec.LookPath(tool); err != nil {
			Unavailable(tb, "vm", "there is no %s", tool)
		}
	}
	slices.Sort(kernels)
	cache := Cache(tb, "vm")
	unlock, err := lockFile(filepath.Join(cache, "lock"))
	if err != nil {
		tb.Fatal(err)
	}
	defer unlock()
	const longest = 10 * time.Minute
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), longest)
	defer cancel()
	b := &guestBuilder{ctx: ctx, cache: cache, bzImage: kernels[len(kernels)-1]}
	g, err := b.build()
	if err != nil {
		tb.Fatalf("make a guest: %v", err)
	}
	g.QEMU = qemu
	return g
}

type guestBuilder struct {
	ctx     context.Context //nolint:containedctx // a builder lives as long as one call
	cache   string
	bzImage string
}

func (b *guestBuilder) build() (*Guest, error) {
	programs := map[string]string{}
	for name, pkg := range map[string]string{"agent": "./examples/agent", "spy": "./internal/testbed/spy"} {
		path, err := buildStatic(b.ctx, pkg)
		if err != nil {
			return nil, err
		}
		programs[name] = path
	}
	g := &Guest{Append: guestAppend}
	var err error
	if g.Kernel, err = b.kernel(); err != nil {
		return nil, err
	}
	full, err := b.guestFiles(programs)
	if err != nil {
		return nil, err
	}
	if g.Initrd, err = b.once("guest", ".cpio", full, b.cpio); err != nil {
		return nil, err
	}
	if g.Disk, err = b.once("guest", ".ext4", full, b.ext4); err != nil {
		return nil, err
	}
	small := slices.DeleteFunc(slices.Clone(full), func(f guestFile) bool { return strings.HasPrefix(f.path, "opt/") })
	g.DiskInitrd, err = b.once("mount", ".cpio", small, b.cpio)
	return g, err
}

// once creates a file, unless it exists. The file's name contains a hash of its sources. It
// also removes old files that were made of other sources.
func (b *guestBuilder) once(name, suffix string, files []guestFile, write func(path string, files []guestFile) error) (string, error) {
	sum := sha256.New()
	for _, f := range files {
		_, _ = fmt.Fprintf(sum, "%s %o %s %d\n", f.path, f.mode, f.link, len(f.content))
		_, _ = sum.Write(f.content)
	}
	path := filepath.Join(b.cache, name+"-"+hex.EncodeToString(sum.Sum(nil))[:16]+suffix)
	now := time.Now()
	if os.Chtimes(path, now, now) == nil {
		return path, nil
	}
	const unused = 24 * time.Hour
	others, _ := filepath.Glob(filepath.Join(b.cache, name+"-*"+suffix))
	for _, o := range others {
		if info, err := os.Stat(o); err == nil && now.Sub(info.ModTime()) > unused {
			_ = os.Remove(o)
		}
	}
	if err := write(path+".new", files); err != nil {
		return "", err
	}
	return path, os.Rename(path+".new", path)
}

// kernel unpacks the packaged kernel, because an emulated machine is slow at that.
func (b *guestBuilder) kernel() (string, error) {
	packed, err := os.ReadFile(b.bzImage)
	if err != nil {
		return "", err
	}
	return b.once("vmlinux", "", []guestFile{{path: "vmlinuz", content: packed}}, func(path string, _ []guestFile) error {
		payload, err := lz4Payload(packed)
		if err != nil {
			return err
		}
		out, err := os.Create(path)
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(b.ctx, "lz4", "-dcq")
		cmd.Stdin, cmd.Stdout = strings.NewReader(string(payload)), out
		err = cmd.Run()
		if closed := out.Close(); err == nil {
			err = closed
		}
		return err
	})
}

// cpio writes the archive that a kernel unpacks into its memory.
func (b *guestBuilder) cpio(path string, files []guestFile) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	err = writeCpio(f, files)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// ext4 creates a disk with the same files.
func (b *guestBuilder) ext4(path string, files []guestFile) error {
	root, err := os.MkdirTemp(b.cache, "root-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(root) }()
	for _, f := range files {
		if err := f.writeBelow(root); err != nil {
			return err
		}
	}
	_ = os.Remove(path)
	const size = "256m"
	cmd := exec.CommandContext(b.ctx, "mke2fs", "-q", "-t", "ext4", "-E", "root_owner=0:0", "-d", root, path, size)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mke2fs: %w: %s", err, text)
	}
	return nil
}

// copyFile returns a file of this machine for the guest.
func copyFile(path, from string, mode int64) (guestFile, error) {
	f, err := os.Open(from)
	if err != nil {
		return guestFile{}, err
	}
	defer f.Close() //nolint:errcheck // it is only read
	content, err := io.ReadAll(f)
	return guestFile{path: path, mode: mode, content: content}, err
}
