// Package docker runs steps in containers of a Docker engine, for package local (rule D3). Programs
// use only its [Config]:
//
//	d, err := local.New(local.Config{Docker: docker.Config{Host: "unix:///run/user/1000/docker.sock"}})
//
// The boundary between the packages is the type steps.Driver of an internal package. It has the state
// that host steps and container steps share. [New] takes it, so only package local can call New.
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
// for it ([Config], EngineWait).
//
// The engine limits how many networks exist at once: about thirty, unless its default-address-pools
// contain more.
//
// Start reading at runner.go.
package docker
