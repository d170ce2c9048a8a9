// Package kubernetes is the driver that runs the steps of a transaction in a pod of
// its own (rule D7).
//
//	d, err := kubernetes.New(kubernetes.Config{Namespace: "ci", AgentImage: "registry.example.com/dlite/agent:1"})
//	if err != nil {
//		return err
//	}
//	defer d.Close()
//	routes := transaction.New(d).Routes()
//
// # What a transaction gets
//
// Init makes one pod, dlite-<hash of the id>-<random>, and waits until it runs. An
// init container puts the agent, a static program, into a volume that all containers
// mount. The main container is the hub (package podagent): the driver holds one
// connection to it, by an exec, and talks to the agents of all steps there, by
// HTTP/2. Each step has a container of its own, with its unmodified image, whose
// first process is that agent; it runs the step's command, keeps its output, carries
// files in and results out, and ends with it.
//
// A step that was announced to the init (driver.Environment, Steps) has a container
// that waits: its image is pulled meanwhile, and starting it costs a few requests on
// that one connection. Any other step gets a container that is added to the running
// pod (an ephemeral one), which takes the node about a second, and a pull where the
// image is not there. Several steps run at once, background steps go on until
// Cleanup.
//
// A connection that is cut, by an API server that restarts for example, is made
// again, and nothing is lost by that: the steps go on, and their output continues at
// the byte where it was cut off. After a restart of the delegate Reattach goes on
// with a step in the same way.
//
// # What is shared
//
// The workspace is an emptyDir at /workspace in all containers, and the default
// working directory. Temporary volumes are emptyDirs, those with medium "memory" in
// memory; a size limit is the cluster's to enforce, which evicts the pod that passes
// one on disk. Host volumes are folders of whatever node the pod gets; to remove one
// is refused, as nobody could. Claims must exist in the namespace. As the volumes of a
// pod cannot be changed, a temporary volume that a step brings along gets one of the
// pod's spare ones (Config, SpareVolumes), without its size limit; other kinds have to
// be named in the init.
//
// All containers of a pod have one network: a background step is at 127.0.0.1, under
// its id, its name and its network_aliases in lower case with "-" for what a host's
// name cannot have, and in DLITE_SERVICE_<NAME>_HOST. Two steps cannot listen on one
// port. Other pods can reach the steps, unless the cluster has a policy against it.
//
// # What a step gets
//
// The variables of its image, the transaction's and its own. Variables, commands,
// files and results go over the connection alone: none of it is in an object of the
// cluster, an argument or a log of a container. Credentials of registries are in a
// Secret which the pod owns, so that the cluster removes it with the pod.
//
// A numeric user is the container's; one by name is looked up in the image by the
// agent, which runs as root then, and has its home from there. Without a user the step
// runs as the image says. Files may be anywhere in the step's container. A step that may
// not write to its home gets one of its own.
//
// mem_limit, cpu_quota and cpu_shares are the container's resources, and shm_size a
// volume in memory, for announced steps alone: other containers of a running pod can
// have none. A limit of memory counts 32 MiB more, which are the agent's. Devices,
// cpu_set, memswap_limit, ulimits, labels, dns, networks and the publishing of ports
// under other numbers are not to be had in a pod. Where a step wants what it cannot
// have, its output says so.
//
// The agent is the container's command, so that a step without an entrypoint, a plugin
// or a service for example, runs what its image's registry says that the image runs by
// itself. The driver asks it, with the step's credentials or those of
// the pod's imagePullSecrets; where it cannot, the step has to name an entrypoint.
//
// # Without root
//
// With Config.Restricted the pods meet the Pod Security level "restricted": no container
// is root's or has a capability. Steps that name no user are those of Config.RunAs. A
// step that wants root, a user by name, privileges, the Docker socket or a host volume is
// refused with the reason, before anything is made. The file of hosts is root's, so that
// names of background steps and extra hosts have to be announced: of others the step's
// output says that nobody finds them, and DLITE_SERVICE_<NAME>_HOST has the address.
//
// # Clones
//
// A repository is checked out by the agent with the git of Config.GitImage, in a
// container of its own, as described in package local. It belongs to whom the steps without
// a user are. For git the workspace itself is everybody's to work in, which it would not be
// for another user than its owner: a step that is not root finds that in GIT_CONFIG_COUNT,
// unless that is set.
//
// # How things end
//
// What a step has started ends with it, whatever it is: its container ends. Cleanup
// deletes the pod and waits until the cluster does not know it any more; it needs the
// pod's name alone, which is on record before there is a pod. Where nobody is left who
// may clean up, the cluster removes the pods with what they belong to (Config, Owner).
// A pod that is lost, by an eviction, by somebody's hand, with its node, fails its
// steps at once, and so do images, volumes, quotas and policies: see [Error] and
// [Reason].
//
// A step that runs out of memory is told as such, also where the cluster kills all of
// its container for it.
//
// # What it may do
//
// [Role] has the permissions that the driver needs, all in one namespace. Everything
// that happens to a pod comes by a watch.
//
// Start reading at kubernetes.go; init.go and execute.go have the ways of a
// transaction and a step.
package kubernetes
