// Package agent is what runs next to the steps: in a virtual machine, or in each
// container of a pod. It takes steps over HTTP, as PROTOCOL 5 has it, and gives them
// to a [driver.Driver], which is driver/local as a rule.
//
//	d, err := local.New(local.Config{})
//	if err != nil {
//		return err
//	}
//	a := agent.New(d, agent.Config{})
//	defer a.Close(ctx)
//	tls, err := boot.TLS()
//	if err != nil {
//		return err
//	}
//	return agent.Server(a.Handler(), tls).ServeTLS(listener, "", "")
//
// An agent has one stage at a time, from its setup to its destroy. It serves the
// drivers of others by the protocol's words, and ours by those and a few more:
// see api.go for what is ours, and client.go for the client.
//
// A step goes on whoever looks: it is started once, however often that is asked
// for, polls are answered also after its end, and its output is kept from the first
// byte until the stage is destroyed. A client that was cut off asks again. What does
// not fit into memory goes to a file without a name, encrypted with a key that
// is nowhere else (SPEC S5).
//
// Start reading at agent.go.
package agent
