package store

import (
	"context"
	"time"
)

// InStreams is the owner of messages in the database that are in a stream.
const InStreams = "streams"

// Streams carries messages between processes. It is safe for concurrent use. Package streams has the one for Redis.
type Streams interface {
	// Send adds messages to the stream of a topic, except for those that are in it.
	Send(ctx context.Context, topic string, messages []Message) error
	// Receive returns messages of a topic that no other consumer has, or none after a second. Lost means that the
	// messages must be sent again.
	Receive(ctx context.Context, topic string, most int) (messages []Message, lost bool, err error)
	// Claim takes messages over from consumers that have not answered for a time.
	Claim(ctx context.Context, topic string, idle time.Duration, most int) ([]Message, error)
	// Keep extends the claims on messages.
	Keep(ctx context.Context, topic string, messages []Message) error
	// Done removes messages that are handled.
	Done(ctx context.Context, topic string, messages []Message) error
	// Clean removes consumers that have died.
	Clean(ctx context.Context, topic string) error
	// Ping reports whether the streams can be reached.
	Ping(ctx context.Context) error
	// Interrupt ends the calls of Receive. Close follows it.
	Interrupt() error
	Close() error
}
