// Package pipeline runs pipelines: it reads YAML, resolves variables and expressions, sends
// each stage and step to a manager, learns how it ended, and decides what comes next.
//
//	s, err := pipeline.New(ctx, pipeline.Config{Manager: m, Database: "/var/lib/dlite/pipelines.db"})
//	defer s.Close()
//	run, err := s.Start(ctx, "account", api.RunRequest{YAML: text})
//	run, err = s.Wait(ctx, "account", run.ID)
//
// # The data
//
// The state of runs is in one SQL database (Config.Database). Several services may share a
// PostgreSQL. No service owns a run: any of them may handle any message, and any of them may
// end at any instant.
//
//	          message              command              task
//	database ---------> service ------------> manager -------> delegate
//	    ^                  |                     |
//	    +------------------+<--------------------+
//	     state and messages        events
//
// A message is an event of a run: a step has ended, a timer is due, a person aborts the run. The
// service applies it to the state of the run, and writes the changed nodes and the commands
// that follow in one transaction. A second loop carries out the commands at the manager, and a
// third one turns the events of the manager into messages. Every part may repeat its work after a
// crash: messages, stages and steps have ids, and an event that has been applied has no
// further effect.
//
// The transaction that sends a message also claims it for its process, which has the run in
// memory. Other processes get the messages that a process has no room for, and those of a
// process that has died. With Config.Streams, messages travel on Redis Streams to any process
// of a consumer group instead, see carry.go.
//
// Start reading at service.go, then deliver.go, command.go and follow.go. The rules of runs are in
// internal/engine, the YAML in internal/definition, the expressions in internal/expression.
package pipeline
