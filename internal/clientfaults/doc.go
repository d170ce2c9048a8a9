// Package clientfaults makes the network between a delegate and its manager
// fail: it drops requests and answers, delays them, and damages answers.
//
//	srv := clientfaults.NewServer(clienttest.Config{})
//	defer srv.Close()
//	srv.Inject(clientfaults.Fault{Call: "respond", Kind: clientfaults.DropResponse, Times: 1})
//
// [Server] is a [clienttest.Server] with faults in front of it. [Faults] goes in
// front of any other handler, such as a real manager. Start reading at fault.go.
package clientfaults
