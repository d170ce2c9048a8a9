// Package dronetest is a Drone server for the tests of runners: the calls of the runner
// protocol with their versions, conflicts, held calls and gaps (docs/protocol.md 6), and faults.
//
//	server := dronetest.New("a-secret")
//	defer server.Close()
//	id := server.Add(dronetest.Build{Config: "kind: pipeline\n..."})
//	// run a client of server.URL
//	stages, err := server.Wait(ctx, id)
//
// It has no webhooks, no users and no pages, and keeps its builds in memory.
//
// Start reading at server.go.
package dronetest
