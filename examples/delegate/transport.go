package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/logger"
)

// outgoing returns the client of the requests that leave the delegate: to log services, to archives, and to the servers
// of programs and plugins. It has the certificates and the proxy of the manager's client.
func outgoing(c *client.HTTP) *http.Client { return &http.Client{Transport: c.Transport()} }

// openLogs opens the deliverer of the logs of steps.
func openLogs(cfg config, hc *http.Client, log zerolog.Logger) (*logger.Deliverer, error) {
	logs, err := logger.OpenDeliverer(logger.DelivererConfig{
		Dir: filepath.Join(cfg.LedgerDir, "logs"), MaxBytes: cfg.StepLogs << 20, HTTPClient: hc, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("LEDGER_DIR: %w: %w", transaction.ErrLedger, err)
	}
	return logs, nil
}

// logsTimeout is how long the end of the delegate waits for logs. The next process delivers the rest.
const logsTimeout = 10 * time.Second

func closeLogs(ctx context.Context, logs *logger.Deliverer) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), logsTimeout)
	defer cancel()
	return logs.Close(ctx)
}
