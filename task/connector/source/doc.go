// Package source polls Git repositories and image registries, as perpetual tasks (rule G1). The first poll of a source
// notes the commits, tags and digests that it has. Each later one makes an event of each new one:
//
//	sources := source.New(source.Config{Transport: client.Transport()})
//	defer sources.Close()
//	handlers := sources.Handlers() // by the type of the task
//
// One delegate polls thousands of sources. A poll of a Git server is one small request, which asks for the wanted refs
// only (version 2 of the protocol). A poll of a registry is conditional where the registry has ETags. Connections are
// shared, over SSH too.
//
// Start reading at source.go.
package source
