// Package qemu makes the machines of a pool with QEMU, as processes of this host
// (SPEC D6).
//
//	machines, err := qemu.New(qemu.Config{
//		StateDir: "/var/lib/dlite/qemu",
//		Image:    "/srv/images/builder.qcow2",
//		MemoryMB: 4096,
//		Snapshot: true,
//	})
//	if err != nil {
//		return err
//	}
//	pool, err := vm.NewPool(machines, vm.PoolConfig{Min: 2, Max: 8})
//
// A guest runs the agent (examples/agent boot), which waits for its agent.Boot at
// the virtio serial port [vm.PortName] (in the guest, udev calls it
// /dev/virtio-ports/io.dlite.agent). With a snapshot, one guest
// is started up to that line, and every machine after it goes on from there: it
// has what was loaded by then, and keys, clock and randomness of its own.
//
// A machine's process belongs to nobody's session and outlives the delegate. What
// finds it again is its folder below the state folder, whose name has the owner
// and the id, the lock on a file in there, which the process holds from its first
// instant to its last, and the id on its command line. Nothing secret is on a disk
// or a command line: the boot goes over a socket, and the console stays in memory.
//
// Start reading at provider_linux.go. The package needs Linux.
package qemu
