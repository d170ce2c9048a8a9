// Package yaml reads Drone configuration files and compiles a pipeline into the payloads of
// our tasks (package stage). It supports pipelines of the types docker and exec. It does no
// I/O and knows nothing of the Drone server.
//
//	plan, err := yaml.Compile(config, "default", yaml.Input{Variables: variables, Secrets: secrets})
//
// # What is supported
//
// Compile reads the members that the docker and the exec runner of Drone read, and refuses others with
// their place in the file. The server decides on trigger, depends_on of a pipeline, node, concurrency
// and paths. The members ports, shell and resources.requests have no effect, as in Drone. A member
// that begins with "x-" or "." may hold anchors.
//
// Services and steps with detach are background steps without a readiness check. The workspace is at
// /drone/src, or where the pipeline wants it, and at /workspace. The steps of an exec pipeline share a
// home directory that is empty at first.
//
// # Differences to Drone
//
// The init makes the clone with the git of the delegate, so no image is needed, and it tries three
// times. As with Drone's clone, a push checks its branch out at the commit, a tag is checked out without
// a branch, and a pull request is merged into its target branch, also if the depth cuts the histories
// apart.
//
// No file holds the credentials of the repository. Plugins find them in DRONE_NETRC_MACHINE and so on.
// In other steps, git 2.31 or later asks a helper for them; other programs find no .netrc.
//
// The script of a step is an argument of the shell and not its standard input. A command cannot
// consume the following commands. A cycle, an unknown dependency, two steps with one name, and a pattern
// or a size that is not valid are errors.
//
// Start reading at config.go and plan.go.
package yaml
