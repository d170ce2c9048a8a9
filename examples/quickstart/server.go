package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/internal/httpserver"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/logservice"
	"github.com/delegate-io/dlite/task/stage"
)

// account is the only account.
const account = "quickstart"

// server is the manager's side: the manager and the log service on one address.
type server struct {
	manager *manager.Manager
	logs    *logservice.Server
	http    *http.Server
	served  chan error
	url     string
	secret  string
	log     zerolog.Logger
}

func startServer(ctx context.Context, verbose bool) (*server, error) {
	s := &server{secret: random(), served: make(chan error, 1), log: zerolog.Nop()}
	if verbose {
		var err error
		if s.log, _, err = logger.New(logger.Config{Level: "debug", Format: logger.Console}); err != nil {
			return nil, err
		}
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.url = "http://" + listener.Addr().String()
	logToken := random()
	s.logs, err = logservice.New(logservice.Config{Authorize: logservice.Tokens(map[string]string{account: logToken})})
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	s.manager, err = manager.New(manager.Config{
		Accounts: map[string]string{account: s.secret}, Logger: s.log,
		Logs: func(account, _, _ string) *stage.LogConfig {
			return &stage.LogConfig{AccountID: account, URL: s.url, Token: logToken}
		},
	})
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	routes := chi.NewRouter()
	routes.Handle("/api/*", s.manager)
	routes.Handle("/*", s.logs)
	s.http = httpserver.New(routes)
	go func() { s.served <- s.http.Serve(listener) }()
	return s, nil
}

func (s *server) close() error {
	err := errors.Join(s.manager.Close(), s.logs.Close())
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err = errors.Join(err, s.http.Shutdown(ctx))
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// random returns a secret in the form of an account's secret: 16 bytes in hexadecimal.
func random() string {
	b := make([]byte, 16)
	_, _ = io.ReadFull(rand.Reader, b) // never fails
	return hex.EncodeToString(b)
}
