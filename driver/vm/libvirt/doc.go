// Package libvirt provides the machines of a pool as domains of a libvirt daemon on this host
// (rule D6).
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
// A guest runs the agent (examples/agent boot). The agent waits for its agent.Boot at the virtio
// serial port io.dlite.agent. The daemon makes that port a socket on its host, so the delegate must
// run there, as a user who may connect to it.
//
// The domain is defined before its disk is created, and undefined after the disk is deleted. Its
// metadata has the owner. The daemon therefore knows of the machine at any time. The definition
// contains no secret.
//
// Start reading at provider.go.
package libvirt
