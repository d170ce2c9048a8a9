// Package logservice takes the logs of steps, shows them live and archives them:
// the server side of PROTOCOL 4.
//
//	logs := logservice.New(logservice.Config{
//		Authorize: logservice.Tokens(map[string]string{account: token}),
//	})
//	defer logs.Close()
//	go http.Serve(listener, logs)
//	for line := range logs.Tail(ctx, account, key) {
//		fmt.Print(line.Out)
//	}
//
// A log is known by its account and key. It has a live stream, which any number
// of writers append to and any number of readers follow, and an archive, which
// is uploaded or made of the stream's content when that is closed.
//
// Everything is in memory, within the limits of the Config: it is gone when the
// process ends.
//
// Beyond PROTOCOL 4, for writers and readers that know of it:
//
//   - A PUT may carry the header logger.WriterHeader. Lines of a writer whose pos
//     is not above that of its last line are dropped: a request that is repeated
//     because its answer was lost does not repeat lines.
//   - GET /stream takes from=N, or the header Last-Event-ID, and begins at the
//     N-th line of the stream. Events carry the line's number as their id, which
//     is its pos where a stream has one writer.
//
// Start reading at server.go.
package logservice
