// Package logger configures the log of a delegate, and sends the output of steps
// to a log service.
//
// The delegate logs with zerolog. New makes a logger from a Config. NewContext puts
// a logger with Labels into the context of a task, and FromContext returns it to a
// handler:
//
//	log, closer, err := logger.New(logger.Config{Level: "debug", Format: logger.Console})
//	if err != nil {
//		return err
//	}
//	defer closer.Close()
//	ctx = logger.NewContext(ctx, logger.Labels{Task: t.ID}.Apply(log))
//	logger.FromContext(ctx).Info().Msg("started")
//
// Slog returns a log/slog logger that writes to such a logger.
//
// The output of a step goes to a Stream. It splits the output into lines, sends
// them to a log service, and archives the whole log at the end (docs/protocol.md
// 4):
//
//	s := logger.OpenStream(ctx, logger.StreamConfig{URL: url, Token: token, Account: account, Key: key})
//	_, err = io.Copy(s, output)
//	err = s.Close(ctx) // a LossError if lines were lost
//
// The Mask of the Config masks secrets in the delegate's log. Text that is written
// to a Stream must be masked before, because a Stream may store it in a temporary
// file (rule S5).
//
// Config.Export sends the delegate's log to a collector, see package logger/otlp.
//
// Start reading at config.go for the log, and at stream.go for the output of steps.
package logger
