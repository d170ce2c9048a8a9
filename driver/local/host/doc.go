// Package host is the driver that runs steps as processes of this machine (rule D4). It refuses steps
// with an image and does not link the Docker client, so that the agent in a pod stays small. Package
// local adds containers.
//
//	d, err := host.New(host.Config{WorkDir: dir})
//	if err != nil {
//		return err
//	}
//	defer d.Close()
//	routes := transaction.New(d).Routes()
//
// The documentation of package local describes the directories, the outputs, the test reports and the
// background steps.
//
// # Clones
//
// Init checks a repository out with the git in the delegate's PATH, and LFS objects with its git-lfs.
// Git ignores the configuration of the machine and of the user, templates, hooks, credential helpers
// and .netrc. It gets only the variables for proxies, certificates (SSL_CERT_FILE, GIT_SSL_CAINFO,
// ...), the ssh agent (SSH_AUTH_SOCK) and GIT_SSH_COMMAND. ssh uses the keys and the known hosts of
// the delegate's user and never prompts. The files belong to the delegate's user and have git's modes.
//
// Credentials, of the clone or in its URL, work with http and https, and only for that scheme, host
// and port: a submodule or a redirect to another host gets none. Only the environment of git's own
// processes contains them; no command line and no file does. A submodule may use http, https, ssh and
// git, but no path of this machine.
//
// A command that may have failed because of the network runs up to three times. The driver fetches a
// commit without a branch by its hash. If the server refuses that, it searches all branches and tags.
// A clone without a depth includes the tags.
//
// # Command lines
//
// Every process of a machine can read the command lines of the others. If the script of a step holds a
// secret (driver.Step.SecretCommand), the driver passes the script in the variable DLITE_SCRIPT. The shell,
// or Python, unsets the variable before it runs the script. The driver refuses any other command that
// holds a secret: put secrets into variables.
//
// # Plugins
//
// The driver downloads the program of a plugin once and stores it under its checksum ([Config],
// PluginCache). It verifies the checksum before it unpacks or runs the program. It repeats a download
// that failed for a temporary reason up to four times. A download may have 512 MiB, and 1 GiB
// unpacked. The plugin runs like any host step. Its settings become variables PLUGIN_<SETTING> (upper
// case, "_" for "-" and "."), which override the step's own variables.
//
// A plugin may name a program that the delegate itself contains ([Config], Builtins). Nothing is downloaded.
//
// # Separation
//
// On Linux, in a program that calls [Supervise], the first host step of a transaction starts a supervisor process
// in its own PID, mount and IPC namespaces. The supervisor starts this step and the following ones. If the
// driver is root, the steps of each transaction run as a separate user, and the files of root in the
// workspace appear as files of this user. Otherwise the supervisor has its own user namespace. Steps see
// their own directories and no other ones of the driver, have their own /tmp, /var/tmp and /dev/shm, and
// see only processes of their transaction. docs/security.md has the details.
//
// The supervisor holds the output and the exit code of each step, so a step continues when the program
// is killed, and [Driver.Reattach] follows it. When the supervisor ends, the kernel kills all its steps.
// It ends by itself if the directory of its transaction in WorkDir, or a directory of [Config], Hidden, was
// removed and no driver was connected for 10 minutes: then no later process takes the transaction over.
// [Config], Trusted, and machines without these namespaces leave the steps beside the driver, as the
// following section describes.
//
// # Ends of processes
//
// All processes that a host step starts end with the step, unless the step is detached. After the end
// of the first process, the others have one second to finish their output. Then the driver kills them.
// Grace, TermAttempts and TermInterval of [Config] set the signals and times of a step that is stopped.
// Cleanup asks all background steps at the same time.
//
// With a supervisor, the end of a step kills its process group, the processes with its variable
// DLITE_PROCESS, and, if no other step runs, everything else in the namespace.
//
// On Linux without a supervisor each host step has a control group inside the control group of its
// transaction. The driver creates the latter beside the delegate's own processes in version 2, or else in the freezer of
// version 1. Its record is on the disk since the init, so no step waits for the disk. A process cannot
// leave a control group by leaving its process group or session, or by clearing its environment. Only
// a process that may write to the machine's control groups, such as a process of root, can move out. A
// systemd service needs Delegate=yes for control groups unless it runs as root.
//
// Where control groups are not available, as in most containers, the driver logs that once. It then
// finds processes by their process group and by a random variable (DLITE_PROCESS) in their
// environment. A process that leaves the group and also clears its environment escapes. Cleanup
// searches all processes for the variable. On macOS only the process group holds a step together. On
// Windows a job object does. It holds all processes, except those that the step starts in the
// microseconds before it is in the job.
//
// Start reading at driver.go.
package host
