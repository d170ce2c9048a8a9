// Package queuelog writes the reason why a stage waits for a delegate to the log of the
// stage's init (rule Q5):
//
//	queued: place 3: 3 eligible delegates, all at capacity (6 slots)
//	queued for 10s: place 1: 3 eligible delegates, all at capacity (6 slots)
//	taken by delegate build-7 after 12s
//
// The manager calls Tell at each change. Tell does not wait:
//
//	w := queuelog.New(queuelog.Config{})
//	defer w.Close()
//	w.Tell(account, stageID, logConfig, logKey, queuelog.State{
//		Status: queuelog.Queued, Place: 3, Reason: "3 eligible delegates, all at capacity (6 slots)", Since: submitted,
//	})
//
// The writer writes nothing for a stage that a delegate takes within a second. A slow,
// unavailable or refusing log service never fails or delays a stage. The writer retries
// lines, and finally drops them.
//
// # Two writers of one log
//
// The delegate writes to the same log later, and closes it:
//
//   - The writer sends its lines under its own name (Dlite-Log-Writer). The log
//     service therefore never treats lines of one writer as repetitions of the other.
//     The first line opens the stream.
//   - The delegate then opens the open stream, which changes nothing. Its lines follow
//     the lines of this package.
//   - A delegate uploads only its own lines and then closes the stream, so the archive
//     would lack the other lines. A moment after the end of the init, the writer
//     therefore closes the stream as well, with snapshot: the content of the stream
//     replaces the upload. This also ends the log of an init without output, which the
//     delegate never opens.
//   - With skip_opening_stream in the log_config of the init, the delegate uploads
//     nothing and closes the stream with snapshot. The archive then never lacks the
//     lines of this package. In return, lines that did not arrive live are missing in
//     the archive too.
//
// With manager/logservice there is one exception: if the delegate uploads after the
// writer has closed the stream, the upload counts, without the lines of this package.
// Another log service may begin a new stream when the delegate opens it again. Then the
// earlier lines are lost, and the lines of the delegate are complete.
//
// A stage that returns to the queue continues in the same log.
//
// With several managers, only one may call Tell for a stage at a time, because two
// would write the same lines. A manager that replaces another one, or that has
// restarted, writes the state of a waiting stage again, and later the delegate that
// takes it.
//
// Start reading at writer.go.
package queuelog
