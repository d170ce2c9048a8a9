// Package kubernetes is the driver that runs each transaction in one pod (rule D7).
//
//	d, err := kubernetes.New(kubernetes.Config{Namespace: "ci", AgentImage: "registry.example.com/dlite/agent:1"})
//	if err != nil {
//		return err
//	}
//	defer d.Close()
//	routes := transaction.New(d).Routes()
//
// # Pods and containers
//
// Init creates one pod, dlite-<hash of the id>-<random>, and waits until it runs. An init
// container copies the agent, a static program, into a volume that all containers mount.
// The main container is the hub (package podagent). The driver holds one connection to
// it, by an exec, and talks to the agents of all steps over that connection, by HTTP/2.
// Each step has a container with its unmodified image. The first process of the container
// is the agent: it runs the step's command, stores its output, carries files in and
// results out, and ends with it.
//
// A step that the init announces (driver.Environment, Steps) has a container that waits:
// the cluster pulls its image meanwhile, and a start costs a few requests on the
// connection. For any other step the driver adds an ephemeral container to the running
// pod, which takes the node about a second, and the time of a pull if the node does not
// have the image. Several steps may run at once. Background steps run until Cleanup.
//
// If the connection is cut, for example by a restart of the API server, the driver
// connects again. The steps continue, and their output continues at the byte where it was
// cut. After a restart of the delegate, Reattach follows a step in the same way.
//
// # Volumes and network
//
// The workspace is an emptyDir at /workspace in all containers, and the default working
// directory. Temporary volumes are emptyDirs, those with medium "memory" in memory. The
// cluster enforces a size limit: it evicts a pod that exceeds one on disk. A host volume
// is a directory of the node that runs the pod; the driver refuses to remove one, because
// no container could. Claims must exist in the namespace. The volumes of a pod cannot
// change, so a temporary volume that a step brings gets one of the pod's spare volumes
// (Config, SpareVolumes), without its size limit. The init must name all other volumes.
//
// All containers of a pod share one network. A background step is at 127.0.0.1 under its
// id, its name and its network_aliases, in lower case and with "-" for characters that a
// host name cannot have; a name with underscores works as it is, too.
// DLITE_SERVICE_<NAME>_HOST has the address. Two steps cannot
// listen on one port. Other pods can reach the steps unless a policy of the cluster
// prevents it; with Config.Services also by the name of a Service.
//
// # Steps
//
// A step sees the variables of its image, of the transaction and its own. Variables,
// commands, files and results travel over the connection alone: no object of the cluster,
// no argument and no log of a container has them. Credentials of registries are in a
// Secret that the pod owns, so that the cluster removes it with the pod.
//
// A numeric user is the container's user. The agent runs as root to look up a user by
// name in the image, and takes the home directory from there. Without a user the step
// runs as the image says. Files may be anywhere in the step's container. A step that may
// not write to its home directory gets another one.
//
// mem_limit, cpu_quota and cpu_shares are the container's resources, and shm_size is a
// volume in memory, for announced steps alone: an ephemeral container can have none. A
// limit of memory counts 32 MiB more, for the agent. A pod does not support devices,
// cpu_set, memswap_limit, ulimits, labels, dns, networks, and ports published under other
// numbers. The output of a step names each setting that the pod does not support.
//
// The agent is the container's command. For a step without an entrypoint, such as a
// plugin or a service, the driver asks the image's registry for the command, with the
// step's credentials or those of the pod's imagePullSecrets. If it cannot, the step must
// name an entrypoint.
//
// # Without root
//
// With Config.Restricted the pods meet the Pod Security level "restricted": no container
// runs as root or has a capability. Steps without a user run as Config.RunAs. The driver
// refuses a step that needs root, a user by name, privileges, the Docker socket or a host
// volume, before it creates anything. Only root may write the hosts file, so the init
// must announce the names of background steps and extra hosts. For other names the step's
// output says that they do not resolve; DLITE_SERVICE_<NAME>_HOST has the address.
//
// # Clones
//
// The agent checks a repository out with the git of Config.GitImage, in a container for
// that purpose, as package local describes. The files belong to the user of steps without
// a user. Git refuses a workspace of another user; a step that is not root gets the
// exception in GIT_CONFIG_COUNT, unless that variable is set.
//
// # Ends
//
// All processes of a step end with its container. Cleanup deletes the pod and waits until
// the cluster has removed it. It needs the pod's name alone, which is on record before
// the pod exists. If no delegate remains to clean up, the cluster removes the pods with
// their owner (Config, Owner). If a pod is lost, by an eviction, a deletion or the end of
// its node, its steps fail at once; so they do for images, volumes, quotas and policies:
// see [Error].
//
// The result of a step that runs out of memory says so, also if the cluster kills the
// whole container.
//
// # Permissions
//
// [Role] has the permissions that the driver needs, all in one namespace. The driver
// watches its pods for everything that happens to them.
//
// Start reading at kubernetes.go; init.go and execute.go follow a transaction and a step.
package kubernetes
