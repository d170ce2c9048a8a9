// Package vm runs the steps of a transaction on a virtual machine of its own,
// which comes from a pool of warm ones (SPEC D6).
//
//	machines, err := qemu.New(qemu.Config{...})
//	pool, err := vm.NewPool(machines, vm.PoolConfig{Name: "linux", Dir: "/var/lib/dlite/pool-linux", Min: 2, Max: 8})
//	err = pool.Start(ctx)
//	defer pool.Close(context.Background())
//	d, err := vm.New([]*vm.Pool{pool})
//	stages := transaction.New(d)
//
// What makes and destroys machines is a [Provider]: driver/vm/qemu,
// driver/vm/libvirt, driver/vm/ec2, or one of your own, which the suite in
// driver/vm/vmtest proves. In each machine runs the program examples/agent, or
// another one that serves the same calls (PROTOCOL 5). Another one can do less: a
// step cannot be stopped before its machine is destroyed, a command that holds a
// secret cannot be concealed, and after a restart of the delegate a step is followed
// only as far as that agent allows. A step that names outputs has them, and its
// output is not in the log; any other one has its log, and hands nothing on. Clones,
// plugins, readiness, ulimits and volumes of a single step are refused. The steps
// share the folder /tmp/dlite-workspace, which is where those without a working
// directory run.
//
// A machine's death is noticed within about 2 s and fails the steps on it. The
// delegate's own death is survived: the pool's state folder tells the next process
// which machines are warm, and which belong to what transaction.
//
// Start reading at pool.go and driver.go; machine.go has a machine's life.
package vm
