// Package logservice takes the logs of steps, shows them live and archives them:
// the server side of PROTOCOL 4.
//
//	signer := logservice.NewSigner(key)
//	logs, err := logservice.New(logservice.Config{Authorize: signer.Authorize, Dir: "/var/lib/dlite/logs"})
//	if err != nil {
//		return err
//	}
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
// Without a Dir everything is in memory, within the limits of the Config: it is
// gone when the process ends. With one, each stream is a file that lines are
// appended to, and survives the process, also when that is killed: readers and
// writers go on where they were. A stream that is complete is copied to the
// archive, a bucket of gocloud.dev/blob, and goes ten minutes later.
//
// Writers never wait for readers: a reader fetches what it wants when it can, and
// one that takes nothing for half a minute is dropped. Streams is the interface
// for other places for live streams; package redis has one, which any number of
// servers use together.
//
// Beyond PROTOCOL 4, for writers and readers that know of it:
//
//   - A PUT may carry the header logger.WriterHeader. Lines of a writer whose pos
//     is not above that of its last line are dropped: a request that is repeated
//     because its answer was lost does not repeat lines.
//   - A PUT may carry the header logger.ResumeHeader with the pos behind the last
//     line that was acknowledged. Where lines are missing, the answer is 409, and
//     its header says from which pos on they have to be sent again.
//   - GET /stream takes from=N, or the header Last-Event-ID, and begins at the
//     N-th line of the stream. Events carry the line's number as their id, which
//     is its pos where a stream has one writer.
//
// Start reading at server.go for the calls, store.go for what becomes of a log, and
// streams.go and journals.go for live streams.
package logservice
