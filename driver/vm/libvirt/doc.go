// Package libvirt makes the machines of a pool as domains of a libvirt daemon on
// this host (SPEC D6).
//
//	machines, err := libvirt.New(libvirt.Config{
//		Image:    "/srv/images/builder.qcow2",
//		Pool:     "default",
//		MemoryMB: 4096,
//	})
//	if err != nil {
//		return err
//	}
//	pool, err := vm.NewPool(machines, vm.PoolConfig{Min: 2, Max: 8})
//
// A guest runs the agent (examples/agent boot), which waits for its agent.Boot at
// the virtio serial port [vm.PortName]. The daemon makes that port a socket on its
// own host, so the delegate has to run there, as a user who may connect to it.
//
// The domain is defined before its disk is made and undefined after it is deleted,
// and has the owner in its metadata: whatever happens in between, the daemon knows
// of the machine. Nothing secret is in its definition.
//
// Start reading at provider.go.
package libvirt
