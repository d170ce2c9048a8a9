package logger_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/slogtest"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/secrets"
)

const hidden = "quote\" tab\tline\nslash\\ ünï <&>"

// S3, L1: every place of an event where a handler may put a secret is masked; all
// that belongs to the original logger stays.
func TestMaskedEventsShowNoSecret(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	set := secrets.NewSet(secrets.Config{}, hidden, "hunter2-not-real", "1234567890123")
	hook := zerolog.HookFunc(func(e *zerolog.Event, _ zerolog.Level, msg string) { e.Str("hooked", msg) })
	log := logger.Masked(zerolog.New(&out).Level(zerolog.DebugLevel).Hook(hook).With().Str("task", "t1").Logger(), set)
	derived := log.With().Str("derived", hidden).Logger()
	derived.Warn().Str("text", "a "+hidden+" b").Err(errors.New("refused: "+hidden)).Bytes("bytes", []byte(hidden)).
		Strs("list", []string{"x", hidden}).Int64("number", 1234567890123).Int("small", 7).Bool("yes", true).
		Interface("nested", map[string]any{"a": []any{map[string]string{"hunter2-not-real": hidden}, nil, 1.5}}).
		Dict("dict", zerolog.Dict().Str("inner", hidden)).Str("hunter2-not-real", "key").
		RawJSON("json", []byte(`{"k":"quote\" tab\tline\nslash\\ \u00fcn\u00ef \u003c&>"}`)).
		Msg("message with " + hidden)
	text := out.String()
	assert.NotContains(t, text, "hunter2")
	assert.NotContains(t, text, "1234567890123")
	assert.NotContains(t, text, "slash")
	var got map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	const m = "******"
	assert.Equal(t, map[string]any{
		"level": "warn", "task": "t1", "hooked": "message with " + m, "message": "message with " + m, "derived": m,
		"text": "a " + m + " b", "error": "refused: " + m, "bytes": m, "list": []any{"x", m}, "number": m, "small": 7.0, "yes": true,
		"nested": map[string]any{"a": []any{map[string]any{m: m}, nil, 1.5}}, "dict": map[string]any{"inner": m}, m: "key",
		"json": map[string]any{"k": m},
	}, got)

	out.Reset()
	log.Trace().Msg("below the level")
	assert.Empty(t, out.String())
	log.Log().Msg("no level")
	assert.JSONEq(t, `{"task":"t1","hooked":"no level","message":"no level"}`, out.String())

	// A secret that is learned later is masked, too.
	out.Reset()
	set.Add("learned-later")
	log.Info().Msg("learned-later")
	assert.NotContains(t, out.String(), "learned")
	// Two masks on top of each other both apply.
	out.Reset()
	twice := logger.Masked(log, secrets.NewSet(secrets.Config{}, "second-secret"))
	twice.Info().Str("k", "second-secret hunter2-not-real").Msg("")
	assert.NotContains(t, out.String(), "secret")
	assert.NotContains(t, out.String(), "hunter2")
}

// A line that is not an event is masked as a whole and not lost.
func TestMaskedKeepsTextThatIsNoEvent(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := logger.Masked(zerolog.New(&out), secrets.NewSet(secrets.Config{}, "hunter2-not-real"))
	for _, text := range []string{"plain hunter2-not-real\n", `{"a":1} hunter2-not-real`, `{"a":`, "[1]"} {
		out.Reset()
		_, err := log.Write([]byte(text)) // as log.SetOutput of the standard library does
		require.NoError(t, err)
		assert.NotContains(t, out.String(), "hunter2")
		assert.True(t, json.Valid(out.Bytes()), out.String())
	}
}

// The adapter keeps the rules that the standard library has for handlers.
func TestSlogHandlerConforms(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	stamp := zerolog.HookFunc(func(e *zerolog.Event, _ zerolog.Level, _ string) { e.Str("time", "now") })
	newHandler := func(t *testing.T) slog.Handler {
		out.Reset()
		log := zerolog.New(&out)
		if !strings.Contains(t.Name(), "zero-time") {
			log = log.Hook(stamp)
		}
		return logger.Slog(log).Handler()
	}
	slogtest.Run(t, newHandler, func(t *testing.T) map[string]any {
		var m map[string]any
		require.NoError(t, json.Unmarshal(out.Bytes(), &m))
		if msg, ok := m["message"]; ok {
			m["msg"] = msg
		}
		return m
	})
}

// L1, S3: in a handler the adapter logs with the labels and the mask of the task.
func TestSlogUsesTheLoggerOfTheContext(t *testing.T) {
	t.Parallel()
	var program, request bytes.Buffer
	log := logger.Slog(zerolog.New(&program).Level(zerolog.WarnLevel)).With("part", "client")
	set := secrets.NewSet(secrets.Config{}, "hunter2-not-real")
	ctx := logger.NewContext(t.Context(), logger.Masked(logger.Labels{Task: "t1"}.Apply(zerolog.New(&request)), set))
	log.DebugContext(ctx, "token hunter2-not-real", "err", errors.New("bad hunter2-not-real"), slog.Group("g", "d", 1))
	assert.JSONEq(t, `{"level":"debug","task":"t1","part":"client","err":"bad ******","g":{"d":1},"message":"token ******"}`, request.String())
	log.Info("below the level")
	log.Error("outside of a task")
	assert.JSONEq(t, `{"level":"error","part":"client","message":"outside of a task"}`, program.String())
}

func TestLabelsOfAContextAreMerged(t *testing.T) {
	t.Parallel()
	ctx := logger.ContextWithLabels(t.Context(), logger.Labels{Delegate: "d", Task: "old"})
	ctx = logger.ContextWithLabels(ctx, logger.Labels{Task: "new", Step: "s"})
	assert.Equal(t, logger.Labels{Delegate: "d", Task: "new", Step: "s"}, logger.LabelsFromContext(ctx))
	assert.Zero(t, logger.LabelsFromContext(t.Context()))
}
