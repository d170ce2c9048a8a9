// Package client is a delegate's connection to its manager: the [Client]
// interface and [HTTP], which speaks both delegate protocols (PROTOCOL 1 and 2).
//
//	c, err := client.New("https://manager.example", "account", secret)
//	d, err := c.Register(ctx, &client.Registration{DelegateName: "build-7"})
//	pending, err := c.Poll(ctx, d.ID, client.PollQuery{Wait: 20 * time.Second})
//
// Package poller turns that into a delegate. Whoever has another kind of
// manager implements Client and gives it to the poller.
//
// What the HTTP client does by itself (SPEC C2, C3, C5, C6): tokens are made,
// cached and renewed; what is worth retrying is retried with back-off; every
// attempt has a time-out; bodies are bounded; certificates are read again when
// their files change. Start reading at client.go, then http.go.
package client
