// Package client is a delegate's connection to its manager: the [Client]
// interface and its implementation [HTTP], which speaks both delegate protocols
// (docs/protocol.md 1 and 2).
//
//	c, err := client.New("https://manager.example", "account", secret)
//	d, err := c.Register(ctx, &client.Registration{DelegateName: "build-7"})
//	pending, err := c.Poll(ctx, d.ID, client.PollQuery{Wait: 20 * time.Second})
//
// Package poller makes a delegate of a Client. For another kind of manager,
// implement Client and pass it to the poller.
//
// HTTP makes, caches and renews tokens. It retries temporary failures with
// back-off, limits the time of every attempt and the size of bodies, and reads
// certificates again when their files change (rules C2, C3, C5, C6). Start
// reading at client.go, then http.go.
package client
