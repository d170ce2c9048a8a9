package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/internal/token"
	"github.com/delegate-io/dlite/logger"
)

// outgoing returns the client of the requests that leave the delegate: to log services, to archives, and to the servers
// of programs and plugins. It has the certificates and the proxy of the manager's client.
func outgoing(c *client.HTTP) *http.Client { return &http.Client{Transport: c.Transport()} }

// logTokenTTL is how long a token of logToken is valid.
const logTokenTTL = time.Hour

// logToken returns a token of the delegate if a log service has the address of the manager. The token of a stage's log
// ends before the delegate gives the log up. No other server gets the delegate's token.
func (c *config) logToken(service string) string {
	at, err := url.Parse(service)
	manager, urlErr := url.Parse(c.URL)
	if err != nil || urlErr != nil || !c.managed() || at.Scheme != manager.Scheme || at.Host != manager.Host {
		return ""
	}
	if c.hasToken() {
		return c.Token
	}
	secret, err := token.ParseSecret(c.Token)
	if err != nil {
		return ""
	}
	issued, err := secret.Issue(c.AccountID, time.Now(), logTokenTTL)
	if err != nil {
		return ""
	}
	return issued
}

// openTaskLog returns the function that opens the logs of programs for single tasks.
func openTaskLog(logs *logger.Deliverer) func(context.Context, logger.StreamConfig) logger.TaskLog {
	return func(ctx context.Context, target logger.StreamConfig) logger.TaskLog {
		if target.URL == "" || target.Key == "" {
			return nil // the delegate's own log
		}
		return logs.Open(ctx, target)
	}
}

// openLogs opens the deliverer of the logs of steps and single tasks.
func openLogs(cfg config, hc *http.Client, log zerolog.Logger) (*logger.Deliverer, error) {
	logs, err := logger.OpenDeliverer(logger.DelivererConfig{
		Dir: filepath.Join(cfg.LedgerDir, "logs"), MaxBytes: cfg.StepLogs << 20, Token: cfg.logToken, HTTPClient: hc, Log: log,
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
