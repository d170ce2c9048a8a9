package chaos_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/internal/journal"
	"github.com/delegate-io/dlite/manager/redis"
	"github.com/delegate-io/dlite/manager/sqlite"
)

// The time-outs of the managers are short, so that many of them pass.
const (
	heartbeatTimeout = 3 * time.Second
	forgetLost       = 20 * time.Second
	taskTimeout      = 20 * time.Second
)

// managerOrders configures a manager process.
type managerOrders struct {
	Socket string // path of the socket that it serves
	Store  string // URL of a Redis or file of a database
	// Events is a file for the events of perpetual tasks, if it is set. Lease is the length
	// of their leases.
	Events string
	Lease  time.Duration
}

// runManager runs a manager like examples/manager, without its log service.
func runManager(o managerOrders) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := zerolog.New(os.Stderr).With().Timestamp().Int("pid", os.Getpid()).Logger()
	store, err := openStore(ctx, o.Store, log)
	if err != nil {
		return err
	}
	m, err := manager.New(manager.Config{
		Accounts: map[string]string{account: secret},
		Store:    store, StoreKeys: [][]byte{[]byte("visibly fake key of tests")},
		HeartbeatTimeout: heartbeatTimeout, ForgetLost: forgetLost,
		AcquireTimeout: 2 * time.Second, AbortGrace: 2 * time.Second, AnswerGrace: time.Second,
		CompactAfter: 2 << 20, // so that the state is saved several times
		TaskTimeout:  taskTimeout, CleanupTimeout: time.Minute, Gap: time.Second, MaxFinished: 1 << 20,
		Logger: log, PerpetualLease: o.Lease,
	})
	if err != nil {
		return err
	}
	consumed := make(chan error, 1)
	if o.Events == "" {
		consumed <- nil
	} else {
		go func() { consumed <- consumePerpetual(m, o.Events) }()
	}
	defer func() {
		if err := <-consumed; err != nil {
			log.Error().Err(err).Msg("the events of perpetual tasks cannot be written")
		}
	}()
	_ = os.Remove(o.Socket) // the socket of a killed process
	l, err := new(net.ListenConfig).Listen(ctx, "unix", o.Socket)
	if err != nil {
		return errors.Join(err, m.Close())
	}
	srv := &http.Server{Handler: m, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() {
		_ = m.Close()
		_ = srv.Close()
	})
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return m.Close()
}

// openStore opens a store. If Redis is down, it waits.
func openStore(ctx context.Context, store string, log zerolog.Logger) (journal.Log, error) {
	if !strings.HasPrefix(store, "redis:") {
		return sqlite.Open(ctx, store, sqlite.Config{Logger: log})
	}
	for {
		l, err := redis.OpenStore(ctx, redis.Config{URL: store, Logger: log})
		if err == nil || !errors.Is(err, journal.ErrRetry) {
			return l, err
		}
		log.Warn().Err(err).Msg("Redis does not answer")
		t := time.NewTimer(100 * time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}
