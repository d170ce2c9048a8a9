// Package journaltest is a conformance suite for implementations of [journal.Log]. It
// tests the methods of a log and journals on the log.
//
//	func TestLog(t *testing.T) {
//		journaltest.Run(t, func(t *testing.T) journaltest.Opener { ... })
//	}
//
// Start reading at run.go.
package journaltest
