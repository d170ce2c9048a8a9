// Package clienttest is a manager for tests: it runs in memory behind a real
// HTTP server, speaks both delegate protocols (PROTOCOL 1 and 2), hands out the
// tasks that a test submits and keeps what comes back.
//
//	srv := clienttest.NewServer()
//	defer srv.Close()
//	// start what is to be tested with srv.URL, srv.Account and srv.Secret
//	hello := srv.Submit(&task.Task{Type: "hello", Data: json.RawMessage(`"world"`)})
//	resp, err := hello.Wait(ctx) // resp.Code, resp.Data
//
// Real requests travel, so what the client does about tokens, retries and
// broken connections is tested as well. To see that it does the right thing,
// make the network bad:
//
//	srv.Inject(clienttest.Fault{Call: clienttest.CallRespond, Kind: clienttest.LoseResponse, Times: 1})
//
// [Faults] injects the same in front of any other handler, such as a real
// manager. The package needs nothing of package testing and can be used outside
// of tests. Start reading at server.go; faults are in fault.go.
package clienttest
