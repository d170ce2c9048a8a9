// Package logservice is the log service of docs/protocol.md, section 4. It accepts the
// logs of steps, shows them live and archives them.
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
// An account and a key identify a log. A log has a live stream and an archive. Any
// number of writers may append to the stream, and any number of readers may follow it.
// A writer uploads the archive, or the service copies the stream to it when the stream
// is closed.
//
// Without a Dir, the service stores everything in memory, within the limits of the
// Config. The logs are lost when the process ends. With a Dir, each stream is a file.
// It survives the end of the process, also by SIGKILL: readers and writers continue at
// the same line. The service copies a complete stream to the archive, a bucket of
// gocloud.dev/blob. It removes the stream ten minutes later.
//
// Writers never wait for readers: a reader fetches lines at its own speed. The service
// disconnects a reader that accepts no data for 30 seconds. With the Streams of package
// manager/redis, any number of servers share the streams.
//
// Extensions of docs/protocol.md, section 4:
//
//   - A PUT may have the header Dlite-Log-Writer. The service drops lines whose pos
//     is not above the pos of this writer's last line. A repeated request therefore
//     does not repeat lines.
//   - A PUT may have the header Dlite-Log-Next with the pos after the last
//     acknowledged line. If the service has lost lines, it answers 409, and its header
//     has the pos from which the writer must send again.
//   - A PUT with the last lines may have the header Dlite-Log-Complete: true. The service
//     completes the log and archives its stream. The same header in the answers to POST
//     and PUT of a stream reports whether the request has completed the log.
//   - GET /stream takes from=N or the header Last-Event-ID, and begins at the N-th line
//     of the stream. Events have the line's number as their id. It equals the pos if a
//     stream has one writer.
//   - GET /stream and GET /blob with format=text answer with the texts of the lines as
//     text/plain. Every line ends with a newline. A live log arrives line by line:
//     curl -N -H "X-Harness-Token: $TOKEN" "$URL/stream?accountID=demo&key=build-1/compile&format=text"
//   - GET /stream takes wait=N: it waits up to N seconds, at most 300, for a log that
//     does not exist. The default is 30 with format=text, and 0 otherwise.
//
// Start reading at server.go for the calls, store.go for the life of a log, and
// journals.go for live streams.
package logservice
