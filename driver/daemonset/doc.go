// Package daemonset runs the daemon sets of a delegate: programs that a manager wants to run until further notice, with
// tasks that they get over HTTP (rule G2).
//
//	programs, err := cgi.New(cgi.Config{})
//	sets, err := daemonset.New(daemonset.Config{State: dir, Programs: programs.Command, Containers: localDriver})
//	routes := router.RouteMap(sets.Routes()).Merge(others)
//	err = poller.New(c, router.New(routes, ...), poller.WithDaemons(sets)).Run(ctx, 16)
//
// A daemon set is a process (executable_config or repository of its config, as for package cgi), a container (image), or a
// [Handler] inside the delegate. docs/daemons.md describes the config and the calls that a daemon answers. A Go program
// becomes a daemon with [Serve].
//
// The runner starts a daemon, checks its health, restarts it with growing pauses, and changes it when its config changes:
// it fetches a new program before it stops the old one, and hands changed settings to the running daemon. It asks the
// daemon for its tasks and corrects the difference, so a daemon that was restarted gets its tasks again.
//
// On Linux a process dies with the delegate. What else a killed delegate leaves, such as containers and processes that
// these had started, is removed by [Runner.Recover] of the next one.
//
// Start reading at runner.go.
package daemonset
