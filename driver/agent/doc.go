// Package agent is the agent that runs next to the steps, and its client. An agent runs in a
// virtual machine, or in each container of a pod. It receives steps over HTTP (docs/protocol.md,
// section 5) and passes them to a [driver.Driver], usually driver/local.
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
// A [Client] runs steps at an agent, as the Execute method of a driver runs them locally:
//
//	c := agent.NewClient("https://10.0.0.7:9079", agent.Transport(tlsConfig))
//	if _, err := c.Setup(ctx, &agent.SetupRequest{ID: "stage-1"}); err != nil {
//		return err
//	}
//	res, err := c.Run(ctx, &agent.StartStepRequest{Step: step}, out)
//
// An agent serves one stage at a time, from its setup to its destroy. Agent and client implement
// the protocol and some extensions. The client also works with foreign agents, which implement the
// protocol only. The comments in api.go mark the extensions.
//
// A lost connection loses no step and no output. The agent starts a step once, even if the request
// comes several times. It answers polls after the step has ended. It keeps the output from the
// first byte until the stage is destroyed. The client repeats its calls until their context ends,
// and resumes the output at the byte where the connection was lost. [Client].Gone reports the
// death of the machine to the client. The agent writes output that does not fit into memory to
// an encrypted file without a name; the key is in memory only (rule S5).
//
// Start reading at agent.go for the agent, and at client.go for the client.
package agent
