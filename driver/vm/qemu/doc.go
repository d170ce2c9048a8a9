// Package qemu provides the machines of a pool as QEMU processes on this host (rule D6).
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
// A guest runs the agent (examples/agent boot). The agent waits for its agent.Boot at the virtio
// serial port io.dlite.agent; in the guest, udev calls it /dev/virtio-ports/io.dlite.agent. With a
// snapshot, one guest boots up to that point, and all later machines are restored from it. Each
// machine receives its own keys, clock and randomness.
//
// A machine's process outlives the delegate. Three things identify it: its directory below the
// state directory, whose name has the owner and the id; the lock on a file in there, which the
// process holds for its whole life; and the id on its command line. Secrets are on no disk and on
// no command line: the boot goes over a socket, and the console stays in memory.
//
// Start reading at provider_linux.go. The package needs Linux.
package qemu
