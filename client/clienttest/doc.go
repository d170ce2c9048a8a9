// Package clienttest is a manager for tests. It runs in memory behind a real
// HTTP server, speaks both delegate protocols (docs/protocol.md 1 and 2), hands
// out the tasks that a test submits and records the answers.
//
//	srv := clienttest.NewServer()
//	defer srv.Close()
//	// Start the delegate with srv.URL, srv.Account and srv.Secret.
//	hello := srv.Submit(&task.Task{Type: "hello", Data: json.RawMessage(`"world"`)})
//	resp, err := hello.Wait(ctx) // resp.Code, resp.Data
//
// [Server.RunStage] runs a whole stage: its init, its steps and its cleanup.
//
// Requests travel over a real connection, so a test also covers the client's
// tokens, retries and time-outs. The middleware of [Config] can drop, delay or change
// requests, and [CallOf] tells a middleware which call a request is.
//
// The package does not import package testing, so programs can use it. Start
// reading at server.go.
package clienttest
