// Package logheader names the headers of a request to a log service (docs/protocol.md,
// section 4), for the writers of logs and for the service.
package logheader

const (
	// Token has the token of the log service.
	Token = "X-Harness-Token"
	// Writer has the id of the writer of a live stream, a random text. It is an
	// extension: the service ignores lines that the same writer has sent before, so
	// that a retried request does not repeat lines.
	Writer = "Dlite-Log-Writer"
	// Resume has a position. In a PUT it is the position after the last acknowledged
	// line. A service that has lost lines of the writer answers 409, with the position
	// of the first missing line in the same header. It is an extension.
	Resume = "Dlite-Log-Next"
	// Complete is "true" in a PUT with the last lines of a log that only this writer writes.
	// The service then completes the log and archives the content of its stream. If it has
	// no stream and Resume is 0, it opens one. A service that can do this answers every POST
	// and PUT of a stream with this header: "true" if the request has completed the log,
	// otherwise "false". It is an extension.
	Complete = "Dlite-Log-Complete"
)
