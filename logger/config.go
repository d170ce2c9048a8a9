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

// Format is the format of log events.
type Format string

const (
	// JSON writes a JSON object per line. It is the default.
	JSON Format = "json"
	// Console writes text for people.
	Console Format = "console"
)

// Mask masks secrets in a text, such as a *secrets.Set. It is called with whole log
// events, and must be safe for concurrent use.
type Mask interface {
	Mask(text string) string
}

// Config configures the log of a delegate (rule L1). The zero value logs JSON to
// standard error from level info on.
type Config struct {
	// Level is the lowest level that is logged: trace, debug, info, warn, error,
	// fatal, panic or disabled, in upper or lower case. Empty means info.
	Level string

	// Format is the format of Output. Empty means [JSON]. The file is always JSON.
	Format Format

	// Output receives the log. The logger serialises writes. Nil means os.Stderr.
	// Use io.Discard to log only to the file.
	Output io.Writer

	// NoColor disables the colours of [Console]. Without it, files and pipes get no
	// colours either.
	NoColor bool

	// EnableFileLogging also writes the log to File (LOG_ENABLE_FILE_LOGGING). Off by
	// default.
	EnableFileLogging bool

	// File is the path of the log file. It is required with EnableFileLogging. New
	// creates its directory, which also holds the rotated files.
	File string

	// MaxSizeMB is the size in MiB at which the file is rotated (LOG_MAX_SIZE_MB).
	// Zero means 100.
	MaxSizeMB int

	// MaxBackups is the number of rotated files to keep (LOG_MAX_BACKUPS). Zero means
	// 10. A negative number means no limit.
	MaxBackups int

	// MaxAgeDays is the number of days for which rotated files are kept
	// (LOG_MAX_AGE_DAYS). Zero means 30. A negative number means no limit.
	MaxAgeDays int

	// Compress compresses rotated files with gzip (LOG_COMPRESS). Off by default.
	Compress bool

	// Export receives every masked event as JSON, one per call, see package
	// logger/otlp. Its owner closes it. Nil exports nothing.
	Export io.Writer

	// Mask masks secrets in every event (rule S3). Nil masks nothing.
	Mask Mask
}

const (
	defaultMaxSizeMB  = 100
	defaultMaxBackups = 10
	defaultMaxAgeDays = 30
)

// New returns a logger that is safe for concurrent use. The Closer closes the file,
// if there is one, and not Output. The logger must not be used after that.
//
// New returns an error for an unknown level or format, for a negative size, and if
// the file cannot be opened.
//
// With a file, one goroutine of the rotation continues after Close. A test for
// leaked goroutines must ignore lumberjack's millRun.
func New(cfg Config) (zerolog.Logger, io.Closer, error) {
	level := zerolog.InfoLevel
	if cfg.Level != "" {
		var err error
		if level, err = zerolog.ParseLevel(strings.ToLower(cfg.Level)); err != nil {
			return zerolog.Nop(), nil, fmt.Errorf("the log level is %q: it must be trace, debug, info, warn, error, fatal, panic or disabled", cfg.Level)
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
		return nil, fmt.Errorf("the log format is %q: it must be %s or %s", cfg.Format, JSON, Console)
	}
}

// redirected reports whether out is a file or a pipe, and not a terminal.
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
		return nil, errors.New("file logging is enabled, but the path of the log file is empty")
	}
	if cfg.MaxSizeMB < 0 {
		return nil, fmt.Errorf("the size of the log file is %d MiB: it must be positive", cfg.MaxSizeMB)
	}
	l := &lumberjack.Logger{
		Filename:   cfg.File,
		MaxSize:    limit(cfg.MaxSizeMB, defaultMaxSizeMB),
		MaxBackups: limit(cfg.MaxBackups, defaultMaxBackups),
		MaxAge:     limit(cfg.MaxAgeDays, defaultMaxAgeDays),
		Compress:   cfg.Compress,
	}
	// Report an invalid path now and not at the first event.
	if _, err := l.Write(nil); err != nil {
		return nil, fmt.Errorf("opening the log file: %w", err)
	}
	return l, nil
}

// limit converts a setting, in which 0 means the default and a negative number no
// limit, into lumberjack's form, in which 0 means no limit.
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

// timestamp adds the time to every event. zerolog's own hook depends on a global
// variable, and has a resolution of one second.
type timestamp struct{}

func (timestamp) Run(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Str(zerolog.TimestampFieldName, time.Now().UTC().Format("2006-01-02T15:04:05.000Z07:00"))
}

// maskWriter masks secrets. zerolog writes every event with one call, so no write
// splits a secret.
type maskWriter struct {
	mask Mask
	w    io.Writer
}

func (m maskWriter) Write(p []byte) (int, error) {
	// Without the newline: masking must not join two events.
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

// consoleWriter prints an event for people. Masking may leave an event that is not
// valid JSON. It is then printed unchanged and not lost.
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
