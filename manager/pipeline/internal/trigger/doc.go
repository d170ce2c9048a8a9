// Package trigger reads the webhooks of Git providers: it verifies them, and turns their payloads into the values of
// the expressions trigger.* and codebase.*. It has no state and makes no calls.
//
//	ok := trigger.Verify(trigger.GitHub, secret, r.Header, body)
//	events, err := trigger.Read(trigger.GitHub, r.Header, payload)
//
// All values of an event are data from outside. Start reading at event.go.
package trigger
