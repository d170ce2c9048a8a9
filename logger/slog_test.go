package logger_test

import (
	"context"
	"os"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/logger"
)

func ExampleSlog() {
	log := logger.Slog(zerolog.New(os.Stdout))
	ctx := logger.NewContext(context.Background(), zerolog.New(os.Stdout))
	ctx = withLabels(ctx, logger.Labels{Task: "t1"})

	log.Info("ready")
	log.InfoContext(ctx, "cloned", "commits", 3)
	// Output:
	// {"level":"info","message":"ready"}
	// {"level":"info","task":"t1","commits":3,"message":"cloned"}
}

func ExampleLabels() {
	log := logger.Labels{Account: "acme", Stage: "build"}.Apply(zerolog.New(os.Stdout))
	log.Warn().Msg("no cache")
	// Output: {"level":"warn","account":"acme","stage":"build","message":"no cache"}
}
