package logger

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"gopkg.in/natefinch/lumberjack.v2"
)

// Format is how a log line looks.
type Format string

const (
	// JSON is one JSON object a line; the default.
	JSON Format = "json"
	// Console is for people.
	Console Format = "console"
)

// Mask hides secrets in a text. It is called with whole log events, from any
// goroutine. A *secrets.Set is one.
type Mask interface {
	Mask(text string) string
}

// Config says how the delegate logs (SPEC L1). The zero value logs JSON to
// standard error from level info on.
type Config struct {
	// Level is the lowest level that is logged: trace, debug, info, warn, error,
	// fatal, panic or disabled, in any case. Empty means info.
	Level string

	// Format is that of Output. Empty means [JSON]. The file is always JSON.
	Format Format

	// Output receives the log. Writes to it are serialised. Nil means
	// os.Stderr; io.Discard leaves only the file.
	Output io.Writer

	// NoColor turns the colours of [Console] off. They are off anyway where
	// Output is a file or a pipe.
	NoColor bool

	// EnableFileLogging writes the log to File as well
	// (LOG_ENABLE_FILE_LOGGING). Off by default.
	EnableFileLogging bool

	// File is the path of the log file, required with EnableFileLogging. Its
	// folder is created. Rotated files are next to it, with the time in their
	// names.
	File string

	// MaxSizeMB is the size in MiB at which the file is rotated
	// (LOG_MAX_SIZE_MB). 0 means 100.
	MaxSizeMB int

	// MaxBackups is how many rotated files are kept (LOG_MAX_BACKUPS). 0 means
	// 10; a negative number keeps all that MaxAgeDays allows.
	MaxBackups int

	// MaxAgeDays is how many days a rotated file is kept (LOG_MAX_AGE_DAYS). 0
	// means 30; a negative number keeps files of any age that MaxBackups allows.
	MaxAgeDays int

	// Compress has rotated files compressed with gzip (LOG_COMPRESS). Off by
	// default.
	Compress bool

	// Export receives every event as JSON, masked, one a call; see package
	// logger/otlp. Its errors and its end are its owner's. Nil exports nothing.
	Export io.Writer

	// Mask hides secrets in everything that is logged (SPEC S3). Nil masks
	// nothing.
	Mask Mask
}

const (
	defaultMaxSizeMB  = 100
	defaultMaxBackups = 10
	defaultMaxAgeDays = 30
)

// New builds a logger. It is safe for concurrent use, and so are the loggers
// that are derived from it. The Closer closes the file, if there is one, and
// never Output; nothing may be logged afterwards.
//
// It fails on an unknown level or format, on a negative size, and when the file
// cannot be opened.
//
// With a file, the rotation's one goroutine stays parked after Close; a test
// that looks for leaked goroutines has to ignore lumberjack's millRun.
func New(cfg Config) (zerolog.Logger, io.Closer, error) {
	level := zerolog.InfoLevel
	if cfg.Level != "" {
		var err error
		if level, err = zerolog.ParseLevel(strings.ToLower(cfg.Level)); err != nil {
			return zerolog.Nop(), nil, fmt.Errorf("log level %q: want trace, debug, info, warn, error, fatal, panic or disabled", cfg.Level)
		}
	}
	out, err := cfg.output()
	if err != nil {
		return zerolog.Nop(), nil, err
	}
	var closer io.Closer = nopCloser{}
	if cfg.EnableFileLogging {
		file, err := cfg.file()
		if err != nil {
			return zerolog.Nop(), nil, err
		}
		out, closer = zerolog.MultiLevelWriter(out, file), file
	}
	if cfg.Export != nil {
		out = zerolog.MultiLevelWriter(out, cfg.Export)
	}
	if cfg.Mask != nil {
		out = maskWriter{mask: cfg.Mask, w: out}
	}
	log := zerolog.New(zerolog.SyncWriter(out)).Level(level).Hook(timestamp{})
	return log, closer, nil
}

func (cfg *Config) output() (io.Writer, error) {
	out := cfg.Output
	if out == nil {
		out = os.Stderr
	}
	switch cfg.Format {
	case "", JSON:
		return out, nil
	case Console:
		return consoleWriter{out: out, console: zerolog.ConsoleWriter{
			Out: out, NoColor: cfg.NoColor || redirected(out), TimeFormat: "15:04:05.000", TimeLocation: time.Local,
		}}, nil
	default:
		return nil, fmt.Errorf("log format %q: want %s or %s", cfg.Format, JSON, Console)
	}
}

// redirected tells whether out is a file that is no terminal.
func redirected(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice == 0
}

func (cfg *Config) file() (*lumberjack.Logger, error) {
	if cfg.File == "" {
		return nil, errors.New("file logging is enabled without a file")
	}
	if cfg.MaxSizeMB < 0 {
		return nil, fmt.Errorf("log file size %d MiB: want a positive number", cfg.MaxSizeMB)
	}
	l := &lumberjack.Logger{
		Filename:   cfg.File,
		MaxSize:    limit(cfg.MaxSizeMB, defaultMaxSizeMB),
		MaxBackups: limit(cfg.MaxBackups, defaultMaxBackups),
		MaxAge:     limit(cfg.MaxAgeDays, defaultMaxAgeDays),
		Compress:   cfg.Compress,
	}
	// A path that cannot be written is found now, not at the first event.
	if _, err := l.Write(nil); err != nil {
		return nil, fmt.Errorf("opening the log file: %w", err)
	}
	return l, nil
}

// limit turns our convention, 0 for a default and negative for none, into
// lumberjack's, 0 for none.
func limit(n, def int) int {
	switch {
	case n == 0:
		return def
	case n < 0:
		return 0
	default:
		return n
	}
}

// timestamp gives every event its time. zerolog's own goes by a global variable
// and counts whole seconds.
type timestamp struct{}

func (timestamp) Run(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Str(zerolog.TimestampFieldName, time.Now().UTC().Format("2006-01-02T15:04:05.000Z07:00"))
}

// maskWriter hides secrets. zerolog hands every event over in one write, so
// that no secret is cut in two.
type maskWriter struct {
	mask Mask
	w    io.Writer
}

func (m maskWriter) Write(p []byte) (int, error) {
	// The newline stays out of it: a needle must not join two events.
	text, nl := strings.CutSuffix(string(p), "\n")
	text = m.mask.Mask(text)
	if nl {
		text += "\n"
	}
	if _, err := io.WriteString(m.w, text); err != nil {
		return 0, err
	}
	return len(p), nil
}

// consoleWriter prints an event for people. Masking can leave an event that is
// no JSON any more; it is printed as it is then, rather than lost.
type consoleWriter struct {
	out     io.Writer
	console zerolog.ConsoleWriter
}

func (c consoleWriter) Write(p []byte) (int, error) {
	if !json.Valid(p) {
		return c.out.Write(p)
	}
	return c.console.Write(p)
}

type nopCloser struct{}

func (nopCloser) Close() error { return nil }
