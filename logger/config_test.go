package logger_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/logger"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// The rotation's goroutine has no end; Close parks it. See New.
		goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"),
	)
}

type mask struct{ old, repl string }

func (m mask) Mask(text string) string { return strings.ReplaceAll(text, m.old, m.repl) }

func event(t *testing.T, line []byte) map[string]any {
	t.Helper()
	var e map[string]any
	require.NoError(t, json.Unmarshal(line, &e), "%q", line)
	return e
}

// Rule L1.
func TestNewLogsJSONFromInfoOn(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, closer, err := logger.New(logger.Config{Output: &out})
	require.NoError(t, err)
	log.Debug().Msg("not this")
	log.Info().Str("k", "v").Msg("this")
	require.NoError(t, closer.Close())

	e := event(t, out.Bytes())
	assert.Equal(t, "this", e["message"])
	assert.Equal(t, "info", e["level"])
	assert.Equal(t, "v", e["k"])
	at, err := time.Parse(time.RFC3339Nano, e["time"].(string))
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now(), at, time.Minute)
}

func TestNewLogsForPeople(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, _, err := logger.New(logger.Config{Output: &out, Format: logger.Console, NoColor: true, Level: "DEBUG"})
	require.NoError(t, err)
	log.Debug().Str("k", "v").Msg("hello")
	assert.Regexp(t, `^\d\d:\d\d:\d\d\.\d{3} DBG hello k=v\n$`, out.String())
}

func TestNewRefusesUnknownSettings(t *testing.T) {
	t.Parallel()
	notADir := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(notADir, nil, 0o600))
	for _, tt := range []struct {
		cfg  logger.Config
		want string
	}{
		{logger.Config{Level: "loud"}, `the log level is "loud"`},
		{logger.Config{Format: "xml"}, `the log format is "xml"`},
		{logger.Config{EnableFileLogging: true}, "the path of the log file is empty"},
		{logger.Config{EnableFileLogging: true, File: "x", MaxSizeMB: -1}, "is -1 MiB"},
		{logger.Config{EnableFileLogging: true, File: filepath.Join(notADir, "log")}, "opening the log file"},
	} {
		_, _, err := logger.New(tt.cfg)
		assert.ErrorContains(t, err, tt.want)
	}
}

// Rule S3: secrets are masked in the file and on the console.
func TestNewMasksEverything(t *testing.T) {
	t.Parallel()
	for _, format := range []logger.Format{logger.JSON, logger.Console} {
		var out bytes.Buffer
		file := filepath.Join(t.TempDir(), "sub", "delegate.log")
		log, closer, err := logger.New(logger.Config{
			Output: &out, Format: format, EnableFileLogging: true, File: file, Mask: mask{"fake-secret", "******"},
		})
		require.NoError(t, err)
		log.Info().Str("field", "a fake-secret").Err(fmt.Errorf("with fake-secret")).Msg("fake-secret")
		require.NoError(t, closer.Close())
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, got := range []string{out.String(), string(text)} {
			assert.NotContains(t, got, "fake-secret")
			assert.Equal(t, 3, strings.Count(got, "******"), got)
			assert.Equal(t, 1, strings.Count(got, "\n"))
		}
		event(t, text)
	}
}

func TestNewKeepsEventsApartWhateverIsMasked(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, _, err := logger.New(logger.Config{Output: &out, Mask: mask{"}\n", "******"}})
	require.NoError(t, err)
	log.Info().Msg("one")
	log.Info().Msg("two")
	assert.Equal(t, 2, strings.Count(out.String(), "\n"))
}

func TestNewKeepsAnEventThatMaskingBroke(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, _, err := logger.New(logger.Config{Output: &out, Format: logger.Console, Mask: mask{`"k":"v"`, "******"}})
	require.NoError(t, err)
	log.Info().Str("k", "v").Msg("still here")
	assert.Contains(t, out.String(), "still here")
}

// LOG_MAX_SIZE_MB, LOG_MAX_BACKUPS.
func TestNewRotatesTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log, closer, err := logger.New(logger.Config{
		Output: io.Discard, EnableFileLogging: true, File: filepath.Join(dir, "d.log"), MaxSizeMB: 1,
	})
	require.NoError(t, err)
	text := strings.Repeat("x", 1000)
	for range 1500 {
		log.Info().Msg(text)
	}
	require.NoError(t, closer.Close())
	files, err := filepath.Glob(filepath.Join(dir, "d*.log"))
	require.NoError(t, err)
	require.Len(t, files, 2)
	lines := 0
	for _, f := range files {
		content, err := os.ReadFile(f)
		require.NoError(t, err)
		assert.LessOrEqual(t, len(content), 1<<20)
		lines += bytes.Count(content, []byte("\n"))
	}
	assert.Equal(t, 1500, lines)
}

// Rule L1: the context of a request carries its logger.
func TestContextCarriesTheLogger(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	ctx := logger.NewContext(context.Background(), zerolog.New(&out))
	ctx = withLabels(ctx, logger.Labels{Account: "a", Delegate: "d", Task: "t", TaskType: "tt"})
	ctx = withLabels(ctx, logger.Labels{Transaction: "x", Stage: "s", Step: "p"})
	logger.FromContext(ctx).Info().Msg("m")
	zerolog.Ctx(ctx).Info().Msg("m")
	first, second, _ := strings.Cut(out.String(), "\n")
	assert.JSONEq(t, first, second)
	assert.JSONEq(t, `{"level":"info","account":"a","delegate":"d","task":"t","task_type":"tt",
		"transaction":"x","stage":"s","step":"p","message":"m"}`, first)
}

func TestContextWithoutALoggerIsSilent(t *testing.T) {
	t.Parallel()
	log := logger.FromContext(context.Background())
	require.NotNil(t, log)
	log.Error().Msg("nothing happens")
	assert.Equal(t, zerolog.Disabled, log.GetLevel())
	logger.FromContext(withLabels(context.Background(), logger.Labels{Task: "t"})).Info().Msg("nor here")
}

func ExampleNew() {
	log, closer, err := logger.New(logger.Config{Output: os.Stdout, Format: logger.Console, NoColor: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = closer.Close() }()
	ctx := logger.NewContext(context.Background(), logger.Labels{Task: "t1"}.Apply(log))
	logger.FromContext(ctx).Debug().Msg("below the level")
	// Output:
}

// Rule L1: files and pipes get no colours, also without NoColor.
func TestColoursAreForTerminals(t *testing.T) {
	t.Parallel()
	out, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer func() { _ = out.Close() }()
	log, _, err := logger.New(logger.Config{Output: out, Format: logger.Console})
	require.NoError(t, err)
	log.Info().Str("k", "v").Msg("plain")
	b, err := os.ReadFile(out.Name())
	require.NoError(t, err)
	assert.Contains(t, string(b), "plain k=v")
	assert.NotContains(t, string(b), "\x1b")
}

// withLabels adds labels to the logger of a context.
func withLabels(ctx context.Context, l logger.Labels) context.Context {
	return logger.NewContext(ctx, l.Apply(*logger.FromContext(ctx)))
}
