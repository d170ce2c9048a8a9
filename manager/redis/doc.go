// Package redis keeps the state of managers and the live streams of logs in Redis 7.
// Any number of managers may share both.
//
//	store, err := redis.OpenStore(ctx, redis.Config{URL: "redis://localhost:6379"})
//	if err != nil {
//		return err
//	}
//	streams, err := redis.OpenStreams(ctx, redis.Config{URL: "redis://localhost:6379"})
//	if err != nil {
//		return err
//	}
//	logs, err := logservice.New(logservice.Config{
//		Streams: streams, // closed by logs.Close
//		Archive: "s3://logs?region=eu-west-1",
//		Key:     key, // the same for all managers
//	})
//	m, err := manager.New(manager.Config{Store: store, ...})
//
// Store and Streams are independent: a program may use one of them.
//
// # Durability
//
// Acknowledged writes are as durable as the settings of Redis make them. With
// appendonly yes and appendfsync always, a crash of Redis or of its machine loses
// nothing. With appendfsync everysec, it may lose the last second. A failover loses
// writes that the replica did not receive. After a loss, all managers notice it
// within about a second and continue with the state in Redis; a running log writer
// sends the lost lines again. Without persistence, a restart of Redis loses
// everything except the archives of logs, which are not in Redis.
//
// Redis must not evict keys: set maxmemory-policy to noeviction. If Redis is full, or
// if streams exceed the limits of [Config], writers get an error and send
// their lines later.
//
// While Redis is away, every call of Streams fails.
// The log service then answers 503 with Retry-After, and writers and readers retry.
//
// The Redis client prints connection errors on standard error. goredis.SetLogger
// changes this for the whole program.
//
// Redis holds log lines as the writers sent them. Delegates mask secrets before that
// (rule S3). Every client of this Redis can read the logs: set a password, and use
// TLS (rediss://) on a shared network.
//
// # Keys of a Store
//
// All keys of a store have one hash tag, so that one node of a cluster has them:
//
//	{prefix}:head         hash: the header, and the end of the journal
//	{prefix}:log          stream: the entries, with the ids 1-0, 2-0 and so on
//	{prefix}:origins      hash: the last entry of each process that writes
//	{prefix}:state        hash: describes the saved state
//	{prefix}:chunks:ID    hash: the parts of a saved state
//	{prefix}:lead         string: the process that saves the state now
//	{prefix}:wake         stream: ends the reads of a manager that closes
//
// # Keys of Streams
//
// Streams are spread over 16 shards. Each shard has its own hash tag, so that all
// keys of a script are on one node of a cluster. A shard has these keys, after the
// prefix:
//
//	{7}:s:ID  hash: the state of a stream, and the next pos of each writer
//	{7}:l:ID  stream: the lines; an entry has up to 64 KiB or one line, and its id is
//	          the number of its first line, from 1
//	{7}:t     hash: the number of streams and their size
//	{7}:i     set: the ids of the streams
//	{7}:c     stream: news of changes, about the last 4,096
//	{7}:x:ID  string with a time-out: the process that archives a log
//	{7}:u:ID  string with a time-out: a used upload link
//
// Every operation on a stream is one script. It is therefore atomic, idempotent if
// its answer is lost, and visible to all managers at once. Each process has one
// connection for the news of each cluster node. A reader that hears of a change
// then fetches the lines that it needs.
//
// Start reading at store.go and streams.go.
package redis
