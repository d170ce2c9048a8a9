// Package streams carries the messages of pipelines between processes, over Redis Streams with a consumer group:
//
//	cfg.Streams = streams.Redis(redis.Config{URL: "redis://localhost:6379/0"})
//
// Programs without Redis do not link its client.
//
// The database keeps each message until it is handled, so the streams may lose everything: a message that is not handled in
// time is sent again. A message is in its stream at most once, however often it is sent.
//
// Keys have the prefix as their hash tag, so that one node of a cluster has them:
//
//	{prefix}:TOPIC       stream: the messages; an entry is deleted when its message is handled
//	{prefix}:TOPIC:sent  hash: the entry of each message, by the message's id
package streams

import (
	"context"
	_ "embed" // the scripts
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
	"github.com/delegate-io/dlite/manager/redis"
)

const (
	// group is the consumer group of all services.
	group = "services"
	// block bounds the wait for messages.
	block = time.Second
	// forgotten is the time without a call after which a consumer without messages is removed.
	forgotten = time.Hour
)

var (
	//go:embed send.lua
	send string
	//go:embed done.lua
	done string
	//go:embed keep.lua
	keep string
	//go:embed clean.lua
	clean string

	sendScript  = goredis.NewScript(send)
	doneScript  = goredis.NewScript(done)
	keepScript  = goredis.NewScript(keep)
	cleanScript = goredis.NewScript(clean)
)

// Redis returns the value of pipeline.Config.Streams for a Redis.
func Redis(cfg redis.Config) func(ctx context.Context, consumer string) (store.Streams, error) {
	return func(ctx context.Context, consumer string) (store.Streams, error) { return open(ctx, cfg, consumer) }
}

// streams is a connection to Redis as one consumer. It is safe for concurrent use.
type streams struct {
	client   goredis.UniversalClient
	reader   goredis.UniversalClient // waits for messages; only its Close interrupts that
	prefix   string
	consumer string
}

// open connects to Redis. The name of a consumer is unique among all processes. open fails if Redis does not answer.
func open(ctx context.Context, cfg redis.Config, consumer string) (*streams, error) {
	s := &streams{prefix: "{" + cfg.Prefix + "}:", consumer: consumer}
	if cfg.Prefix == "" {
		s.prefix = "{dlite:pipelines}:"
	}
	var err error
	if s.client, err = cfg.NewClient(); err != nil {
		return nil, fmt.Errorf("the Redis of pipelines: %w", err)
	}
	if s.reader, err = cfg.NewClient(); err != nil {
		return nil, fmt.Errorf("the Redis of pipelines: %w", errors.Join(err, s.client.Close()))
	}
	if err := s.client.Ping(ctx).Err(); err != nil {
		return nil, fmt.Errorf("the Redis of pipelines: %w", errors.Join(err, s.Interrupt(), s.Close()))
	}
	return s, nil
}

// Interrupt ends the calls of Receive, which fail from then on.
func (s *streams) Interrupt() error { return s.reader.Close() }

// Close closes the connection, after Interrupt.
func (s *streams) Close() error { return s.client.Close() }

// Ping reports whether Redis answers.
func (s *streams) Ping(ctx context.Context) error { return s.client.Ping(ctx).Err() }

func (s *streams) stream(topic string) string { return s.prefix + topic }

func (s *streams) keys(topic string) []string {
	return []string{s.stream(topic), s.stream(topic) + ":sent"}
}

// Send adds messages to the stream of a topic, except for those that are in it.
func (s *streams) Send(ctx context.Context, topic string, messages []store.Message) error {
	args := make([]any, 0, 2*len(messages))
	for _, m := range messages {
		text, err := json.Marshal(m)
		if err != nil {
			return fmt.Errorf("encoding message %s: %w", m.Name, err)
		}
		args = append(args, m.ID, text)
	}
	if err := sendScript.Run(ctx, s.client, s.keys(topic), args...).Err(); err != nil {
		return fmt.Errorf("sending messages to Redis: %w", err)
	}
	return nil
}

// Receive returns messages of a topic that no other consumer has, or none after a second. If Redis does not know the consumer
// group, it has lost the messages or is new: Receive creates the group and reports that the messages must be sent again.
func (s *streams) Receive(ctx context.Context, topic string, most int) (messages []store.Message, lost bool, err error) {
	read, err := s.reader.XReadGroup(ctx, &goredis.XReadGroupArgs{
		Group: group, Consumer: s.consumer, Streams: []string{s.stream(topic), ">"}, Count: int64(most), Block: block,
	}).Result()
	switch {
	case errors.Is(err, goredis.Nil):
		return nil, false, nil
	case goredis.HasErrorPrefix(err, "NOGROUP"):
		err := s.client.XGroupCreateMkStream(ctx, s.stream(topic), group, "0").Err()
		if goredis.HasErrorPrefix(err, "BUSYGROUP") { // another process was faster
			return nil, false, nil
		}
		return nil, err == nil, err
	case err != nil:
		return nil, false, fmt.Errorf("reading messages from Redis: %w", err)
	}
	for _, stream := range read {
		found, err := s.decode(ctx, topic, stream.Messages, 1)
		if err != nil {
			return nil, false, err
		}
		messages = append(messages, found...)
	}
	return messages, false, nil
}

// Claim returns messages that other consumers have had for a time without a sign of life.
func (s *streams) Claim(ctx context.Context, topic string, idle time.Duration, most int) ([]store.Message, error) {
	entries, _, err := s.client.XAutoClaim(ctx, &goredis.XAutoClaimArgs{
		Stream: s.stream(topic), Group: group, Consumer: s.consumer, MinIdle: idle, Start: "0", Count: int64(most),
	}).Result()
	if goredis.HasErrorPrefix(err, "NOGROUP") { // Receive creates it
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("claiming messages in Redis: %w", err)
	}
	return s.decode(ctx, topic, entries, 2)
}

// decode returns the messages of entries, which are tried for the given time. An entry that is no message was written by
// another program: it is deleted.
func (s *streams) decode(ctx context.Context, topic string, entries []goredis.XMessage, tries int) ([]store.Message, error) {
	var messages []store.Message
	for _, e := range entries {
		text, _ := e.Values["message"].(string)
		var m store.Message
		if err := json.Unmarshal([]byte(text), &m); err != nil || m.Topic != topic || m.ID == 0 {
			err := errors.Join(s.client.XAck(ctx, s.stream(topic), group, e.ID).Err(), s.client.XDel(ctx, s.stream(topic), e.ID).Err())
			if err != nil {
				return nil, fmt.Errorf("removing a foreign entry from Redis: %w", err)
			}
			continue
		}
		m.Tries = max(m.Tries, tries)
		messages = append(messages, m.By(store.InStreams))
	}
	return messages, nil
}

// Keep keeps messages of this consumer from being claimed by others.
func (s *streams) Keep(ctx context.Context, topic string, messages []store.Message) error {
	args := append([]any{group, s.consumer}, ids(messages)...)
	if err := keepScript.Run(ctx, s.client, s.keys(topic), args...).Err(); err != nil && !goredis.HasErrorPrefix(err, "NOGROUP") {
		return fmt.Errorf("keeping messages in Redis: %w", err)
	}
	return nil
}

// Done removes messages from the stream.
func (s *streams) Done(ctx context.Context, topic string, messages []store.Message) error {
	args := append([]any{group}, ids(messages)...)
	if err := doneScript.Run(ctx, s.client, s.keys(topic), args...).Err(); err != nil && !goredis.HasErrorPrefix(err, "NOGROUP") {
		return fmt.Errorf("removing messages from Redis: %w", err)
	}
	return nil
}

// Clean removes consumers of processes that are gone.
func (s *streams) Clean(ctx context.Context, topic string) error {
	err := cleanScript.Run(ctx, s.client, s.keys(topic), group, forgotten.Milliseconds()).Err()
	if err != nil && !goredis.HasErrorPrefix(err, "NOGROUP") && !goredis.HasErrorPrefix(err, "ERR no such key") {
		return fmt.Errorf("removing consumers from Redis: %w", err)
	}
	return nil
}

func ids(messages []store.Message) []any {
	all := make([]any, 0, len(messages))
	for _, m := range messages {
		all = append(all, strconv.FormatInt(m.ID, 10))
	}
	return all
}
