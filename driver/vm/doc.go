// Package vm runs the steps of each transaction on its own virtual machine, from a pool of warm
// machines (rule D6).
//
//	machines, err := qemu.New(qemu.Config{...})
//	pool, err := vm.NewPool(machines, vm.PoolConfig{Name: "linux", Dir: "/var/lib/dlite/pool-linux", Min: 2, Max: 8})
//	err = pool.Start(ctx)
//	defer pool.Close(context.Background())
//	d, err := vm.New([]*vm.Pool{pool})
//	stages := transaction.New(d)
//
// A [Provider] creates and destroys machines: driver/vm/qemu, driver/vm/libvirt, driver/vm/ec2, or
// one of your own. Each machine runs the program examples/agent, or a foreign agent that serves
// the same calls (docs/protocol.md, section 5).
//
// A foreign agent has limits. It cannot stop a step, so its machine must be destroyed. After a
// restart of the delegate it may not be able to resume a step. In a shell of Windows, a step with
// outputs has no log, and a step with a log has no outputs. Clones, plugins, readiness, ulimits
// and volumes of a single step are refused. The steps share the directory /tmp/dlite-workspace,
// which is also the default working directory.
//
// If a machine dies, the driver notices it within about 2 s and fails the machine's steps.
// Machines survive the delegate's process: the next process reads from the pool's state directory
// which machines are warm, and which transaction has claimed a machine.
//
// Start reading at pool.go and driver.go. machine.go has the life cycle of a machine.
package vm
