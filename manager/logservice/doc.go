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
// Extensions of docs/protocol.md, section 4:
//
//   - A PUT may have the header logger.WriterHeader. The service drops lines whose
//     pos is not above the pos of this writer's last line. A repeated request
//     therefore does not repeat lines.
//   - A PUT may have the header logger.ResumeHeader with the pos after the last
//     acknowledged line. If the service has lost lines, it answers 409, and its
//     header has the pos from which the writer must send again.
//   - GET /stream takes from=N or the header Last-Event-ID, and begins at the N-th
//     line of the stream. Events have the line's number as their id. It equals the
//     pos if a stream has one writer.
//   - GET /stream and GET /blob with format=text answer with the texts of the lines
//     as text/plain. A live log arrives line by line:
//     curl -N -H "X-Harness-Token: $TOKEN" "$URL/stream?accountID=demo&key=build-1/compile&format=text"
//   - GET /stream takes wait=N: it waits up to N seconds, at most 300, for a log that
//     does not exist. The default is 30 with format=text, and 0 otherwise.
//
// Start reading at server.go for the calls, store.go for the life of a log, and
// streams.go and journals.go for live streams.
package logservice
