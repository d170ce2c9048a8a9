// Package agentclient runs steps at an agent (PROTOCOL 5), this project's or another
// one, as a driver's Execute would run them here.
//
//	c := agentclient.New("https://10.0.0.7:9079", agentclient.Transport(tlsConfig))
//	if _, err := c.Setup(ctx, &agent.SetupRequest{ID: "stage-1"}); err != nil {
//		return err
//	}
//	res, err := c.Run(ctx, &agent.StartStepRequest{Step: step}, out)
//
// A connection that is cut costs time and nothing else: calls are made again until
// their context ends, a step is started once, and its output goes on at the byte
// where it was cut off. Who knows that the machine is dead says so ([WithGone]).
//
// Start reading at client.go, and at run.go for steps.
package agentclient
