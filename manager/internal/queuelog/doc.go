// Package queuelog tells in the log of a stage's init why the stage waits for a
// delegate (SPEC Q5):
//
//	queued: place 3: 3 eligible delegates, all at capacity (6 slots)
//	queued for 10s: place 1: 3 eligible delegates, all at capacity (6 slots)
//	taken by delegate build-7 after 12s
//
// The manager calls Tell at each change, and goes on at once:
//
//	w := queuelog.New(queuelog.Config{})
//	defer w.Close()
//	w.Tell(account, stageID, logConfig, logKey, queuelog.State{
//		Status: queuelog.Queued, Place: 3, Reason: "3 eligible delegates, all at capacity (6 slots)", Since: submitted,
//	})
//
// A stage that is taken within a second has nothing to tell. No log service that
// is slow, away or refuses ever fails or delays a stage: lines are tried again,
// and given up in the end.
//
// # Two writers of one log
//
// The delegate writes to the same log later, and ends it. What becomes of it:
//
//   - Our lines are sent under a name of their own (logger.WriterHeader), so that
//     neither writer's lines are taken for repetitions of the other's. The first
//     one opens the stream.
//   - The delegate then opens a stream that is open, which changes nothing, and
//     its lines follow ours.
//   - A delegate of ours, as one of others, uploads what it has written itself and then closes
//     the stream: the archive would have its lines alone. So when the init has
//     ended, and a moment later, we close the stream as well, with snapshot: what
//     the stream holds becomes the archive, and replaces the upload. That also ends
//     the log of an init that has nothing to say, whose delegate never opens it.
//   - With skip_opening_stream in the init's log_config the delegate uploads
//     nothing and closes with snapshot itself. Then there is no moment in which the
//     archive lacks our lines. The price is that lines which did not get through
//     live are not in the archive either.
//
// With manager/logservice nothing else can happen, but when a delegate's upload
// comes after our close: it then counts, without our lines. Another log service
// may begin a stream anew when it is opened again: our lines are gone then from that
// moment on, and the delegate's are complete.
//
// A stage that returns to the queue goes on in the same log.
//
// With several managers one at a time tells of a stage: two would both say the
// same. A manager that goes on for another one, or after a restart, says once more where the
// stage stands if it still waits, and who takes it.
//
// Start reading at writer.go.
package queuelog
