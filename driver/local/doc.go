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
// for it. The volumes that a step's image declares get the container's name and go
// with it.
//
// The workspace is the default working directory of every step. Containers see
// it as [WorkspaceMount]; host steps have it at its real path, which
// DLITE_WORKSPACE holds in both worlds. A relative working_dir is below it, and
// so is one below [WorkspaceMount], in host steps too.
//
// A temporary volume is a folder that is bind mounted into containers, so that
// host steps and container steps see the same data; with medium "memory" it is
// in the memory folder, or on disk where the machine has none. The size limit of
// one in memory is enforced by a mount of its own, which takes Linux and root; any
// other size limit is not enforced, and the init's log says so. A host step has no mounts: it finds the host's path of each of
// its volumes in DLITE_VOLUME_<NAME> (upper case, "_" for what is no letter or
// digit), and a mount's path and read_only mean nothing to it.
//
// # Clones
//
// Init checks a repository out with the git of the delegate's PATH, and LFS
// objects with its git-lfs. Neither the machine's nor the user's configuration
// has a say, nor templates, hooks, credential helpers and .netrc: only the
// variables for proxies, certificates (SSL_CERT_FILE, GIT_SSL_CAINFO, ...), the
// ssh agent (SSH_AUTH_SOCK) and GIT_SSH_COMMAND reach git. ssh uses the keys and
// the known hosts of the delegate's user and asks nothing. The files belong to
// the delegate's user and have git's modes.
//
// Credentials, of the clone or in its URL, are for http and https, and for that
// scheme, host and port alone: a submodule or a redirect elsewhere gets none.
// They are in the environment of git's own processes, and neither on a command
// line nor on disk. A submodule may come by http, https, ssh and git, never from
// a path of this machine.
//
// What may be the network's fault is tried three times. A commit alone is asked
// for by its name, and found among all branches and tags where the server does
// not give it so. Tags follow a clone without depth.
//
// # Command lines
//
// Every process of a machine can read the command lines of the others. So the
// script of a step that holds a secret (driver.Step.Conceal) is handed over in the
// variable DLITE_SCRIPT, which the shell, or Python, forgets before it runs the script. A
// command that holds a secret and is not such a script is refused: secrets
// belong into variables.
//
// # Containers
//
// Until a container is removed, at the end of its step, the engine keeps its
// variables and its output, which it needs for Reattach, in files that only root can
// read. They are not masked there, so the output is never given to another kind of
// log that the engine may be set up for (SPEC S3); who must not have even that on
// the engine's disk gives the engine a data folder in memory.
//
// An image is pulled as the step's policy says: always for the tag latest,
// where an image that is here serves when the pull fails, and otherwise when it
// is missing. Credentials go to no registry but the one that they are for. An
// error that may go away (connection, time-out, 5xx) is tried again, four times
// in all; the output says so, and how far a long pull is.
//
// An engine that goes away, as for a restart, ends the steps that run with an
// error that says so; their containers are removed when it is back. What was to
// be made or removed meanwhile waits for it ([WithEngineWait]).
//
// How many transactions can have a network at once is the engine's to say: about
// thirty, unless its default-address-pools hold more.
//
// # What a step hands on
//
// Beside the files of PROTOCOL 5, the variables that output_vars and outputs
// name are read after the script when the step's argv is a shell (sh, bash,
// dash, ash, ksh, zsh) with -c. Any other program writes them to DRONE_OUTPUT
// under the same names. A script that sets an EXIT trap of its own and then
// calls exit hands on what it wrote to DRONE_OUTPUT alone.
//
// A line of an output file that is malformed is reported in the step's output,
// without its content, and does not fail the step. A file that is too large
// ([WithFileLimit]) or no regular file is not read: that is reported too, and fails
// the step, since who comes next would miss it. An output file for secrets that is in the workspace is
// removed when it has been read; until then it is on disk.
//
// # Test reports
//
// The paths of a step's JUnit reports are patterns as seen from its working
// directory, with "*", "?" and "[...]" within a name and "**" for any number of
// folders. Up to 1000 reports of up to 16 MiB each are read after the step, also
// when it has failed; links are not followed out of the workspace, and a report
// that is a link is not read. What cannot be read is among the summary's
// problems, and so is a pattern that nothing matches. Tests that failed do not
// fail the step: only its exit code does. The reports of a container whose
// working directory is outside of the workspace are not found.
//
// # Background steps
//
// A detached step with a readiness (ready) is answered when it can be used. It
// fails when it ends before that, or is not ready in time; it is stopped then. A
// step on the host that puts itself in the background and exits with 0 has not
// ended as long as anything of it is left.
//
// On Linux a port and a URL of a container are tried from here, at the
// container's address: its image needs no tools and no port is published, and a
// service that listens on its own loopback alone is not ready. With an engine
// elsewhere they are tried in the container, which takes a shell for a port, and
// curl or wget for a URL. A host step is tried at 127.0.0.1. A URL's certificate
// is not verified and no redirect is followed. A command runs where the step
// runs, with its environment, one at a time; its output is shown when it never
// succeeded.
//
// From then on the other steps of the transaction find it. Containers reach a
// container by its id, its name and its network_aliases, in lower case and with
// "-" for what a host's name cannot have; a step on the host by the same names
// and as host.docker.internal. Every step has the address that is right for it
// in DLITE_SERVICE_<NAME>_HOST, for each of these names (upper case, "_" for
// what is no letter or digit): 127.0.0.1 for host steps with each other. A
// service on the host that containers are to reach must listen on all addresses,
// or on the bridge's. Steps that run already when a service starts learn nothing
// of it.
//
// # Plugins
//
// A plugin's program is downloaded once and kept under its checksum
// ([WithPluginCache]). It is verified before it is decompressed or run. A
// download that fails for a reason that may pass is tried again, up to five
// times; it may have 512 MiB, and 1 GiB decompressed. It runs like any step of
// the host. Its settings become variables PLUGIN_<SETTING>, in upper case with
// "_" for "-" and ".", and go before the step's own.
//
// # How things end
//
// Whatever a step on the host started ends with it, a detached step excepted:
// when its first process is gone, the others have one second to finish their
// output and are then killed. [WithGrace] and [WithTermination] say how a step
// that is stopped is asked to end before it is killed. Cleanup asks everything that
// runs in the background at once, containers and processes alike.
//
// On Linux each step on the host has a control group in that of its transaction,
// made beside the delegate's own processes in version 2, or else in the freezer of
// version 1. The record of the transaction's group is on the disk from the init on,
// so that no step waits for the disk. Nothing that
// a step starts gets out of that by leaving its process group or session or by
// clearing its environment; only who may write to the control groups of the
// machine, as root may, can move out. In systemd a service needs Delegate=yes
// for it unless it runs as root. Where no control group may be made, as in most
// containers, the driver logs that once and finds the processes by their group
// and by a random variable (DLITE_PROCESS) in their environment: one that leaves
// the group and also clears its environment escapes. Cleanup looks for that
// variable everywhere. On macOS only the process group holds a step together. On
// Windows a job object does, from which nothing escapes but what the step starts
// in the microseconds before it is put there.
//
// Start reading at local.go.
package local
