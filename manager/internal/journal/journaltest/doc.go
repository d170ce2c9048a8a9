// Package journaltest tests implementations of [journal.Log]: what a journal
// relies on, and journals on it.
//
//	func TestLog(t *testing.T) {
//		journaltest.Run(t, func(t *testing.T) journaltest.Opener { ... })
//	}
//
// Start reading at run.go.
package journaltest
