package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/delegate-io/dlite/internal/token"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/logservice"
	"github.com/delegate-io/dlite/task/stage"
)

// demo is the account that is made when none is configured.
const demo = "demo"

// serve runs the manager and the log service on one address until ctx ends.
func serve(ctx context.Context, c *serverCommand, accounts map[string]string, out io.Writer) (err error) {
	log, closeLog, err := logger.New(logger.Config{Level: c.LogLevel, Format: logger.Console})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog.Close()) }()

	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return err
	}
	url := c.PublicURL
	if url == "" {
		url = scheme(c) + "://" + listener.Addr().String()
	}
	made := len(accounts) == 0
	if made {
		accounts = map[string]string{demo: random()}
	}
	logTokens := map[string]string{} // for the steps' writers
	for account := range accounts {
		logTokens[account] = random()
	}
	logs := logservice.New(logservice.Config{Authorize: authorize(accounts, logTokens), PublicURL: url})
	defer logs.Close()
	m, err := manager.New(manager.Config{
		Accounts: accounts, Logger: log,
		Logs: func(account string) *stage.LogConfig {
			return &stage.LogConfig{AccountID: account, URL: url, Token: logTokens[account]}
		},
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer func() { err = errors.Join(err, m.Close()) }()

	_, _ = fmt.Fprintf(out, "serving at %s\n", url) // nobody may be looking
	if made {
		if err := introduce(out, accounts, url); err != nil {
			return errors.Join(err, listener.Close())
		}
	}
	routes := chi.NewRouter()
	routes.Handle("/api/*", m)
	routes.Handle("/*", logs)
	return listen(ctx, c, listener, routes, m, logs)
}

// authorize lets the steps' writers at an account's logs, and whoever may call the
// manager's API.
func authorize(accounts, logTokens map[string]string) func(account, token string) bool {
	writer := logservice.Tokens(logTokens)
	return func(account, text string) bool {
		if writer(account, text) {
			return true
		}
		secret, err := token.ParseSecret(accounts[account])
		if err != nil {
			return false
		}
		claims, err := secret.Verify(text, time.Now())
		return err == nil && claims.Account == account
	}
}

// introduce prints what a delegate and a submitter need for the demo account.
func introduce(out io.Writer, accounts map[string]string, url string) error {
	t, err := issue(accounts, demo, 24*time.Hour)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, `
There is no account yet, so here is one that lasts as long as this program.
A delegate's config.env:

ACCOUNT_ID="%[1]s"
TOKEN="%[2]s"
URL="%[3]s"

A token for the API, and what to do with it:

API_TOKEN='%[4]s'
curl -H "Authorization: Bearer $API_TOKEN" '%[3]s/api/delegates?accountId=%[1]s'
curl -H "Authorization: Bearer $API_TOKEN" '%[3]s/api/stages?accountId=%[1]s' -d '{"id":"build-1","steps":[
  {"id":"compile","data":{"run":{"entrypoint":["sh","-ec"],"commands":["echo compiling; sleep 2; echo done"]}}},
  {"id":"test","data":{"run":{"entrypoint":["sh","-ec"],"commands":["echo testing"]}}}]}'
curl -H "Authorization: Bearer $API_TOKEN" '%[3]s/api/stages/build-1?accountId=%[1]s&wait=30'
curl -H "Authorization: Bearer $API_TOKEN" -X POST '%[3]s/api/stages/build-1/abort?accountId=%[1]s'
curl -H "X-Harness-Token: $API_TOKEN" '%[3]s/blob?accountID=%[1]s&key=build-1/compile'

`, demo, accounts[demo], url, t)
	return err
}

// listen serves until ctx ends, then lets calls finish that do not wait.
func listen(ctx context.Context, c *serverCommand, l net.Listener, h http.Handler, m *manager.Manager, logs *logservice.Server) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() {
		if c.TLSCert != "" {
			served <- srv.ServeTLS(l, c.TLSCert, c.TLSKey)
			return
		}
		served <- srv.Serve(l)
	}()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	err := m.Close() // long polls end
	logs.Close()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err = errors.Join(err, srv.Shutdown(closing))
	if served := <-served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

func scheme(c *serverCommand) string {
	if c.TLSCert != "" {
		return "https"
	}
	return "http"
}

// parseAccounts reads "id=secret,id=secret". Its errors show no secret.
func parseAccounts(text string) (map[string]string, error) {
	accounts := map[string]string{}
	for i, part := range strings.Split(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		id, secret, ok := strings.Cut(part, "=")
		if id = strings.TrimSpace(id); !ok || id == "" {
			return nil, fmt.Errorf(`ACCOUNTS: entry %d is not of the form id=secret`, i+1)
		}
		if _, err := token.ParseSecret(strings.TrimSpace(secret)); err != nil {
			return nil, fmt.Errorf("ACCOUNTS: the secret of %q: %w", id, err)
		}
		if _, dup := accounts[id]; dup {
			return nil, fmt.Errorf("ACCOUNTS: %q is there twice", id)
		}
		accounts[id] = strings.TrimSpace(secret)
	}
	return accounts, nil
}

// issue makes a token for an account.
func issue(accounts map[string]string, account string, ttl time.Duration) (string, error) {
	text, ok := accounts[account]
	if !ok {
		return "", fmt.Errorf("there is no account %q in ACCOUNTS", account)
	}
	secret, err := token.ParseSecret(text)
	if err != nil {
		return "", err
	}
	return secret.Issue(account, time.Now(), ttl)
}

// random is a secret in the form of an account's: 16 bytes in hexadecimal.
func random() string {
	b := make([]byte, 16)
	_, _ = io.ReadFull(rand.Reader, b) // never fails
	return hex.EncodeToString(b)
}
