package main

import (
	"context"
	"io"
	"net/http"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/logger"
)

// outgoing returns the client of the requests that leave the delegate: to log services, to archives, and to the servers
// of programs and plugins. It has the certificates and the proxy of the manager's client.
func outgoing(c *client.HTTP) *http.Client { return &http.Client{Transport: c.Transport()} }

// withLogs sends the logs of steps with a client.
func withLogs(hc *http.Client) transaction.Option {
	return transaction.WithLog(func(ctx context.Context, target logger.StreamConfig) logger.TaskLog {
		if target.URL == "" || target.Key == "" {
			return noLog{io.Discard}
		}
		target.HTTPClient = hc
		return logger.OpenStream(ctx, target)
	})
}

// noLog is the log of a step whose task names no log service.
type noLog struct{ io.Writer }

func (noLog) Close(context.Context) error { return nil }
