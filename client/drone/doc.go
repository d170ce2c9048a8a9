// Package drone connects a delegate to a Drone server (docs/protocol.md 6). A [Client] is a
// [client.Client], so that package poller serves a Drone server as it serves a manager:
//
//	slots := capacity.NewSlots(4)
//	c, err := drone.New(drone.Config{Endpoint: "https://drone.example", Secret: secret, Name: "build-7", Slots: slots})
//	stages := transaction.New(driver, transaction.WithSlots(slots), transaction.WithLog(c.Log(nil)))
//	p := poller.New(c, router.New(stages.Routes()), poller.WithStages(stages))
//	err = p.Run(ctx, 16)
//
// The client turns a stage of the server into tasks: an init, an execute for each step when
// its dependencies have ended, and a cleanup. The answers to the tasks drive the next ones, and
// the client reports them to the server as the status of the stage and its steps.
//
// Package yaml reads the pipelines. Package dronetest is a server for tests.
//
// Start reading at client.go, then stage.go.
package drone
