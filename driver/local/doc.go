// Package local is the driver that runs steps on this machine (rules D2 to D4). It runs a step with an
// image in a Docker container, and any other step as a process of the host (package
// [github.com/delegate-io/dlite/driver/local/host]). A stage without container steps needs no Docker
// engine, and the driver does not contact one.
//
//	d, err := local.New(local.Config{Host: host.Config{Grace: 10 * time.Second}})
//	if err != nil {
//		return err
//	}
//	defer d.Close()
//	routes := transaction.New(d).Routes()
//
// A program that never runs containers uses package host alone and does not link the Docker client.
//
// # Directories of a transaction
//
// Init creates one directory, dlite-<hash of the id>-<random>, below the work directory. On Linux it
// creates a second one in memory. The first contains the workspace, the temporary volumes and the
// scratch directories. The second contains the values that steps hand on, including secrets, so that
// these are never on a disk.
//
// The workspace is the default working directory of every step, except of a background step that runs
// the program of its image: that one starts in the directory of the image. Containers see it as /workspace.
// Host steps see its real path. DLITE_WORKSPACE contains the path for both. A relative working_dir is
// below the workspace. So is a working_dir below /workspace, in host steps too.
//
// A temporary volume is a directory that is mounted into containers, so host steps and container steps
// see the same data. With medium "memory" it is in the memory directory, or on disk if the machine has
// none. On Linux, root can limit the size of a volume in memory: the volume is then a separate mount.
// No other size limit is enforced, and the log of the init says so. A host step has no mounts: the
// variable DLITE_VOLUME_<NAME> contains the path of a volume on the host (NAME in upper case, "_" for
// every other character). A mount's path and read_only have no effect on a host step.
//
// # Values that a step hands on
//
// Section 5 of docs/protocol.md describes the files. If the step's command line is a shell (sh, bash,
// dash, ash, ksh, zsh) with -c, the driver also reads the variables in output_vars and outputs after
// the script. Any other program writes them to DRONE_OUTPUT under the same names. If a script sets its
// own EXIT trap and then calls exit, only its values in DRONE_OUTPUT count.
//
// The driver reports a malformed line of an output file in the step's output, without the content of
// the line, and the step does not fail. It does not read a file that is too large ([host.Config],
// FileLimit) or not regular: it reports that, and the step fails, because later steps would miss the
// values. An output file for secrets in the workspace is on the disk until the step ends. The driver
// removes it then.
//
// # Test reports
//
// The paths of a step's JUnit reports are patterns relative to its working directory. "*", "?" and
// "[...]" match within a name, and "**" matches any number of directories. After the step, even after
// a failed step, the driver reads up to 1000 reports of up to 16 MiB each. It does not follow links
// out of the workspace, and does not read a report that is a link. The summary lists the reports that
// it cannot read and the patterns without a match. Failed tests do not fail the step: only its exit
// code does. The driver does not find the reports of a container whose working directory is outside
// the workspace.
//
// # Background steps
//
// Execute returns for a detached step with a readiness check (ready) when the step is ready. The step
// fails if it ends first or is not ready in time; then the driver stops it. A host step that puts
// itself in the background and exits with 0 runs as long as one of its processes does.
//
// On Linux, the driver checks a port or a URL of a container from the host, at the container's
// address. The image needs no tools and no published port. A service that listens only on its loopback
// interface is not ready. If the engine is elsewhere, the check runs in the container, which needs a
// shell for a port, and curl or wget for a URL. The driver checks a host step at 127.0.0.1. It does
// not verify the certificate of a URL and follows no redirect. A command runs where the step runs,
// with its environment, one at a time. The driver prints its output if it never succeeds.
//
// From then on, later steps of the transaction find the service. Containers reach a container by its
// id, its name and its network_aliases, in lower case and with "-" for characters that a host name
// cannot have. They reach a host step by the same names and as host.docker.internal. Every step has
// the right address in DLITE_SERVICE_<NAME>_HOST for each of these names (upper case, "_" for every
// other character). Between host steps it is 127.0.0.1. A host service for containers must listen on
// all addresses or on the address of the bridge. A step that already runs when a service starts does
// not get these variables.
//
// # Containers
//
// The first container step of a transaction creates a Docker network with the name of the
// transaction's directory. Volumes that an image declares get the name of the container and are
// removed with it.
//
// The container exists until the end of its step. Until then the engine keeps its variables and its
// output, which Reattach needs, in files that only root can read. The output in these files is not
// masked, so the driver uses no other log driver that the engine may be configured for (rule S3). To
// keep this data off the disk, give the engine a data directory in memory.
//
// # Images
//
// The step's policy decides when an image is pulled. The default for the tag latest is always; if that
// pull fails, an image on this machine serves. The default for other images is when the image is
// missing. Credentials go only to the registry that they are for. The driver repeats a pull after a
// temporary error (connection, time-out, 5xx), up to four attempts in all. The step's output reports
// the attempts, and the progress of a long pull.
//
// # Outages
//
// If the engine goes away, for example for a restart, the running steps end with an error that says
// so. Their containers are removed when the engine is back. Calls that create or remove something wait
// for it ([DockerConfig], EngineWait).
//
// The engine limits how many networks exist at once: about thirty, unless its default-address-pools
// contain more.
//
// Start reading at driver.go.
package local
