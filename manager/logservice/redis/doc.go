// Package redis keeps the live streams of logs in Redis 7, so that any number of
// managers behind a plain load balancer serve the same logs: each request of a
// writer and each reader may be with another one.
//
//	streams, err := redis.Open(ctx, redis.Config{URL: "redis://127.0.0.1:6379"})
//	if err != nil {
//		return err
//	}
//	logs, err := logservice.New(logservice.Config{
//		Streams: streams, // closed by logs.Close
//		Archive: "s3://logs?region=eu-west-1",
//		Key:     key, // the same for all managers
//	})
//
// Every operation is one script, and so atomic, idempotent when its answer was
// lost, and right away the same for all managers. A process has one connection for what its
// readers wait for, with a cluster one for each shard: all changes go through a
// short stream of news, and a reader then fetches the lines that it wants.
//
// The names of streams are spread over 16 shards, each with a hash tag of its own,
// so that a script's keys are on one node of a cluster. In each are, behind the
// prefix:
//
//	{7}:s:ID  hash: state of a stream, and the pos that each writer's next line has
//	{7}:l:ID  stream: its lines, up to 64 KiB or one line in an entry whose id is
//	          the number of the first one, from 1
//	{7}:t     hash: how many streams there are and what they take
//	{7}:i     set: the streams' ids
//	{7}:c     stream: news, about the last 4,096
//	{7}:x:ID  string with a time-out: who archives a log
//	{7}:u:ID  string with a time-out: an upload link that was used
//
// # What is kept
//
// What was acknowledged is kept as Redis keeps it: with appendfsync everysec, the
// default of its append-only file, the last second may be lost with the
// machine, and with a failover what the replica had not got. A writer that still runs sends
// again what is missing then. Without persistence a restart of Redis loses what
// is live; the archive is not in Redis.
//
// Redis must not evict keys: its maxmemory-policy is to be noeviction. When it is
// full, or a stream or all of them are over the limits of [Config], writers are
// told so and keep their lines for later.
//
// While Redis is away every call fails with logservice.ErrUnavailable, which is an
// answer 503 with Retry-After: writers keep what they have, and readers come back.
//
// The client prints on standard error that it cannot connect; goredis.SetLogger
// changes that for the program.
//
// Lines are in Redis as the writers sent them. Delegates mask secrets before
// that (SPEC S3); whoever may read Redis may read the logs, so have it ask for a
// password and use TLS (rediss://) where others are on the network.
//
// Start reading at streams.go for the operations, with the scripts in *.lua, and
// at watch.go for the news.
package redis
