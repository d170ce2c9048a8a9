// Package redis keeps a journal's log in Redis 7, for any number of managers.
//
//	log, err := redis.Open(ctx, redis.Config{URL: "redis://localhost:6379"})
//	j, err := journal.Open(ctx, journal.Config[Command]{Log: log, New: newMachine, Keys: keys}, newMachine())
//
// All keys have one hash tag, so that they are on one node of a cluster:
//
//	{prefix}:head         hash: the header, and the log's end
//	{prefix}:log          stream: the entries, with the IDs 1-0, 2-0 and so on
//	{prefix}:origins      hash: the last entry of each journal that writes
//	{prefix}:state        hash: what the saved state is
//	{prefix}:chunks:ID    hash: the parts of a saved state
//	{prefix}:lead         string: who saves the state at this time
//	{prefix}:wake         stream: ends the waiting of a manager that is closed
//
// What Redis has acknowledged is as durable as its settings make it: with
// appendonly yes and appendfsync always nothing is lost with its process or its
// machine, with appendfsync everysec up to a second. A failover to a replica may
// lose what the replica did not get. Whatever is lost, all managers notice within
// about a second and go on from what Redis has.
//
// Start reading at redis.go.
package redis
