package testbed

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// guestFile is a directory, a link or a file of a guest. Its path has no leading slash.
type guestFile struct {
	path    string
	mode    int64 // includes the type, as in stat
	link    string
	content []byte
}

const (
	modeFolder = 0o040000
	modeFile   = 0o100000
	modeLink   = 0o120000
)

// guestInit is the guest's first program, from memory and from a disk.
const guestInit = `#!/bin/busybox sh
export PATH=/bin HOME=/root
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
if [ -e /modules ]; then
  for m in $(cat /modules/order); do insmod /modules/$m; done
fi
if [ ! -e /opt/agent ]; then
  mkdir /disk
  mount -t ext4 /dev/vda /disk || exec poweroff -f
  umount /sys /proc /dev
  exec switch_root /disk /init
fi
mkdir -p /dev/shm /dev/virtio-ports
for d in /run /dev/shm; do mount -t tmpfs tmpfs $d; done
chmod 1777 /tmp /dev/shm
for p in /sys/class/virtio-ports/*; do
  [ -e $p/name ] && ln -s ../${p##*/} /dev/virtio-ports/$(cat $p/name)
done
ip link set lo up
ip addr add 10.0.2.15/24 dev eth0
ip link set eth0 up
ip route add default via 10.0.2.2
/opt/spy :9080 &
exec /opt/agent boot --port /dev/virtio-ports/io.dlite.agent
`

// guestModules are the modules that the kernel needs to find its devices, in the order of
// their dependencies.
var guestModules = []string{
	"virtio/virtio_ring", "virtio/virtio", "virtio/virtio_mmio", "virtio/virtio_pci_legacy_dev",
	"virtio/virtio_pci_modern_dev", "virtio/virtio_pci", "core/failover", "net/net_failover", "net/virtio_net",
	"block/virtio_blk", "char/virtio_console", "hw_random/virtio-rng",
}

// guestFiles returns the files of a whole guest. The files below opt are not needed to mount a
// disk.
func (b *guestBuilder) guestFiles(programs map[string]string) ([]guestFile, error) {
	files := []guestFile{
		{path: "init", mode: modeFile | 0o755, content: []byte(guestInit)},
		{path: "etc/passwd", mode: modeFile | 0o644, content: []byte("root:x:0:0:root:/root:/bin/sh\nbuilder:x:1000:1000:builder:/tmp:/bin/sh\n")},
		{path: "etc/group", mode: modeFile | 0o644, content: []byte("root:x:0:\nbuilder:x:1000:\n")},
		{path: "etc/hosts", mode: modeFile | 0o644, content: []byte("127.0.0.1 localhost guest\n")},
		{path: "etc/resolv.conf", mode: modeFile | 0o644, content: []byte("nameserver 10.0.2.3\n")},
	}
	var folders []guestFile
	for _, d := range []string{"bin", "dev", "etc", "modules", "opt", "proc", "root", "run", "sys", "tmp", "var", "var/tmp"} {
		folders = append(folders, guestFile{path: d, mode: modeFolder | 0o755})
	}
	files = append(folders, files...)
	busybox, applets, err := staticBusybox(b.ctx)
	if err != nil {
		return nil, err
	}
	files = append(files, guestFile{path: "bin/busybox", mode: modeFile | 0o755, content: busybox})
	for _, a := range applets {
		if a != "busybox" {
			files = append(files, guestFile{path: "bin/" + a, mode: modeLink | 0o777, link: "busybox"})
		}
	}
	release := strings.TrimPrefix(filepath.Base(b.bzImage), "vmlinuz-")
	var order strings.Builder
	for _, m := range guestModules {
		found, _ := filepath.Glob("/lib/modules/" + release + "/kernel/*/" + m + ".ko")
		if more, _ := filepath.Glob("/lib/modules/" + release + "/kernel/*/*/" + m + ".ko"); len(found) == 0 {
			found = more
		}
		if len(found) != 1 {
			return nil, fmt.Errorf("the kernel %s has no module %s", release, m)
		}
		f, err := copyFile("modules/"+filepath.Base(found[0]), found[0], modeFile|0o644)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
		_, _ = fmt.Fprintln(&order, filepath.Base(found[0]))
	}
	files = append(files, guestFile{path: "modules/order", mode: modeFile | 0o644, content: []byte(order.String())})
	for _, name := range []string{"agent", "spy"} {
		f, err := copyFile("opt/"+name, programs[name], modeFile|0o755)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// writeBelow creates the file on a disk. Only root can create files that belong to root.
func (f guestFile) writeBelow(root string) error {
	path := filepath.Join(root, filepath.FromSlash(f.path))
	switch f.mode &^ 0o7777 {
	case modeFolder:
		return os.MkdirAll(path, os.FileMode(f.mode&0o777))
	case modeLink:
		return os.Symlink(f.link, path)
	}
	return os.WriteFile(path, f.content, os.FileMode(f.mode&0o777))
}

// writeCpio writes files in the "new ASCII" format.
func writeCpio(w io.Writer, files []guestFile) error {
	for i, f := range append(files, guestFile{path: "TRAILER!!!"}) {
		content := f.content
		if f.link != "" {
			content = []byte(f.link)
		}
		name := f.path + "\x00"
		header := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
			i+1, f.mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0)
		for _, part := range []string{header + name, string(content)} {
			if _, err := io.WriteString(w, part+strings.Repeat("\x00", (4-len(part)%4)%4)); err != nil {
				return err
			}
		}
	}
	return nil
}

// lz4Payload returns the kernel in a bzImage. The offsets come from Linux's boot protocol. The
// last four bytes of the payload hold its unpacked length.
func lz4Payload(image []byte) ([]byte, error) {
	const setupSectors, payloadOffset, payloadLength, sector = 0x1f1, 0x248, 0x24c, 512
	if len(image) < payloadLength+4 || string(image[0x202:0x206]) != "HdrS" {
		return nil, fmt.Errorf("not a bzImage")
	}
	start := (int(image[setupSectors])+1)*sector + int(binary.LittleEndian.Uint32(image[payloadOffset:]))
	end := start + int(binary.LittleEndian.Uint32(image[payloadLength:])) - 4
	if start >= end || end > len(image) || binary.LittleEndian.Uint32(image[start:]) != 0x184c2102 {
		return nil, fmt.Errorf("the kernel is not packed with LZ4")
	}
	return image[start:end], nil
}
