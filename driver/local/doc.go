// Package local is the driver that runs steps on this machine: a step with an
// image in a Docker container, a step without one as a process of the host
// (SPEC D2-D4). A stage whose steps all run on the host needs no Docker engine
// and never contacts one.
//
//	d, err := local.New(local.WithGrace(10 * time.Second))
//	if err != nil {
//		return err
//	}
//	defer d.Close()
//	routes := transaction.New(d).Routes()
//
// # What a transaction gets
//
// Init makes one folder, dlite-<hash of the id>-<random>, below the work folder
// ([WithWorkDir]), and on Linux a second one in memory ([WithMemoryDir]). In the
// first are the workspace, the temporary volumes and the scratch folders; in the
// second what steps hand on, secrets among it, so that these never touch a disk.
// A Docker network of the same name is made when the first container step asks
// for it.
//
// The workspace is the default working directory of every step. Containers see
// it as [WorkspaceMount]; host steps have it at its real path, which
// DLITE_WORKSPACE holds in both worlds. A relative working_dir is below it, and
// so is one below [WorkspaceMount], in host steps too.
//
// A temporary volume is a folder that is bind mounted into containers, so that
// host steps and container steps see the same data; with medium "memory" it is
// in the memory folder, or on disk where the machine has none. Its size limit is
// not enforced. A host step has no mounts: it finds the host's path of each of
// its volumes in DLITE_VOLUME_<NAME> (upper case, "_" for what is no letter or
// digit), and a mount's path and read_only mean nothing to it.
//
// # What a step hands on
//
// Beside the files of PROTOCOL 5, the variables that output_vars and outputs
// name are read after the script when the step's argv is a shell (sh, bash,
// dash, ash, ksh, zsh) with -c. Any other program writes them to DRONE_OUTPUT
// under the same names. A script that sets an EXIT trap of its own and then
// calls exit hands on what it wrote to DRONE_OUTPUT alone.
//
// A line of an output file that is malformed, or a file that is too large
// ([WithFileLimit]), is reported in the step's output, without its content, and
// does not fail the step.
//
// # How things end
//
// Whatever a step started ends with it, a detached step excepted: when the
// first process of a host step is gone, the others have one second to finish
// their output and are then killed. They are found by their process group and,
// on Linux, by a random variable (DLITE_PROCESS) in their environment, so that a
// process which left the group is found too. A process that leaves the group and
// clears its environment is not. On Windows a job object holds them together.
//
// Start reading at local.go.
package local
