// Package logger sets up a delegate's own log and carries the output of steps
// to a log service.
//
// The delegate's log is zerolog's. New builds it from a Config, NewContext puts
// it, with Labels, into the context of a task, and FromContext takes it out in
// a handler:
//
//	log, closer, err := logger.New(logger.Config{Level: "debug", Format: logger.Console})
//	if err != nil {
//		return err
//	}
//	defer closer.Close()
//	ctx = logger.NewContext(ctx, logger.Labels{Task: t.ID}.Apply(log))
//	logger.FromContext(ctx).Info().Msg("started")
//
// The output of a step goes into a Stream, which cuts it into lines, sends them
// live to a log service and archives the whole at the end (PROTOCOL 4):
//
//	s := logger.OpenStream(ctx, logger.StreamConfig{URL: url, Token: token, Account: account, Key: key})
//	_, err = io.Copy(s, output)
//	lost := s.Close(ctx)
//
// Neither knows secrets. The delegate's log is masked by the Mask in its Config;
// what is written to a Stream must be masked already, because a Stream may keep
// it in a temporary file (SPEC S5).
//
// What the delegate logs can go to a collector as well: see Config.Export and package
// logger/otlp.
//
// Start reading at config.go for the one and stream.go for the other.
package logger
