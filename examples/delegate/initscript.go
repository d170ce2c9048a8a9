package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/internal/atomicfile"
	"github.com/delegate-io/dlite/internal/process"
)

// InitConfig configures the script that prepares the machine (rule X2). It is exported so that the config can embed it.
type InitConfig struct {
	InitScript  string `env:"INIT_SCRIPT" help:"shell script (PowerShell on Windows) that runs before the delegate registers, once after each start of the machine or container; if it fails, the delegate ends with the exit code 75"`
	InitTimeout int    `env:"INIT_SCRIPT_TIMEOUT_SECS" envDefault:"600" help:"how long INIT_SCRIPT may take"`
	InitAlways  bool   `env:"INIT_SCRIPT_EVERY_START" envDefault:"false" help:"run INIT_SCRIPT at every start of the delegate"`
}

const (
	maxInitScript  = 1 << 20 // bytes
	maxInitTimeout = 86400   // seconds
	// maxInitLine is the length at which a line of the output is cut.
	maxInitLine = 8 << 10
	// initGrace is the time between SIGTERM and SIGKILL.
	initGrace = 10 * time.Second
)

func (c *InitConfig) checkInit(wrong func(setting string, bad bool, must string)) {
	wrong("INIT_SCRIPT", len(c.InitScript) > maxInitScript, fmt.Sprintf("at most %d bytes", maxInitScript))
	wrong("INIT_SCRIPT_TIMEOUT_SECS", c.InitTimeout < 1 || c.InitTimeout > maxInitTimeout, fmt.Sprintf("from 1 to %d", maxInitTimeout))
}

// initError is the failure of the init script.
type initError string

func (e initError) Error() string { return "INIT_SCRIPT: " + string(e) }

// ExitCode returns EX_TEMPFAIL of sysexits.h: a service manager starts the delegate again.
func (initError) ExitCode() int { return 75 }

// errInterrupted means that a signal came before the delegate had registered.
var errInterrupted = errors.New("interrupted before the registration")

// runInitScript runs the script of the settings, if it has not succeeded since the start of the machine. The script
// inherits the variables that a step inherits, and no settings.
func runInitScript(ctx context.Context, cfg config, log zerolog.Logger) error {
	if strings.TrimSpace(cfg.InitScript) == "" {
		return nil
	}
	done := filepath.Join(cfg.LedgerDir, "init-script")
	mark := initMark(cfg.InitScript, bootID())
	if old, err := os.ReadFile(done); err == nil && string(old) == mark && !cfg.InitAlways {
		log.Info().Msg("the init script is not run again: it has succeeded since the start of this machine; INIT_SCRIPT_EVERY_START=true runs it at each start")
		return nil
	}
	limit := seconds(cfg.InitTimeout)
	running, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	log.Info().Stringer("timeout", limit).Msg("running the init script")
	begin := time.Now()
	out := &lineLog{log: log.With().Str("source", "init script").Logger()}
	state, err := runScript(running, cfg.InitScript, out)
	out.flush()
	switch {
	case err != nil:
		return initError(err.Error())
	case ctx.Err() != nil:
		return errInterrupted
	case running.Err() != nil:
		return initError(fmt.Sprintf("it took longer than %s and was stopped%s: raise INIT_SCRIPT_TIMEOUT_SECS, or mend the script", limit, out.last()))
	case !state.Success():
		return initError(fmt.Sprintf("%s%s: the log has its output", state, out.last()))
	}
	log.Info().Stringer("duration", time.Since(begin).Round(time.Millisecond)).Msg("the init script has succeeded")
	if mark == "" {
		return nil
	}
	if err := os.MkdirAll(cfg.LedgerDir, 0o700); err != nil {
		return fmt.Errorf("LEDGER_DIR: %w", err)
	}
	if err := atomicfile.WriteFile(done, []byte(mark)); err != nil {
		return fmt.Errorf("LEDGER_DIR: %w", err)
	}
	return nil
}

// initMark identifies a script and a start of the machine. It is empty if the start is unknown.
func initMark(script, boot string) string {
	if boot == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(script))
	return hex.EncodeToString(sum[:]) + " " + boot + "\n"
}

// bootID identifies the start of this machine. A container starts when its first process does. It is empty if the
// system does not tell.
func bootID() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	first, err := os.ReadFile("/proc/1/stat")
	if err != nil {
		return ""
	}
	// The name of the process, in parentheses, may contain spaces. The time of the start is the field 22.
	fields := strings.Fields(string(first[bytes.LastIndexByte(first, ')')+1:]))
	if len(fields) < 20 {
		return ""
	}
	return strings.TrimSpace(string(boot)) + " " + fields[19]
}

// runScript runs a script until it ends or ctx does. No other process can read the script, which may contain secrets:
// it is neither in a file nor on a command line.
func runScript(ctx context.Context, script string, out io.Writer) (*os.ProcessState, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = io.WriteString(w, script+"\n") // a script that ends early closes its end
		_ = w.Close()
	}()
	defer func() { _ = r.Close(); <-written }()

	// The shell reads the script from the descriptor 3, so that its commands have an empty input.
	argv := []string{"/bin/sh", "-e", "/dev/fd/3"}
	cmd := &exec.Cmd{Args: argv, ExtraFiles: []*os.File{r}, Env: process.List(process.Environment())}
	if runtime.GOOS == "windows" {
		cmd = &exec.Cmd{Args: []string{"powershell", "-NoProfile", "-NonInteractive", "-Command", "-"}, Stdin: r, Env: cmd.Env}
	}
	if cmd.Path, err = process.LookPath(cmd.Args[0], "", cmd.Env); err != nil {
		return nil, err
	}
	p, err := process.StartPiped(cmd, out, func() (*process.Group, error) { return process.Start(ctx, cmd, process.Options{}) })
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", cmd.Path, err)
	}
	if p.Await(ctx.Done()) {
		return p.Finish(), nil
	}
	return p.Stop(process.Patience{Grace: initGrace}), nil
}

// lineLog writes output to a log, one event for each line.
type lineLog struct {
	log     zerolog.Logger
	partial []byte
	text    string // the last line that is not empty
}

func (l *lineLog) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		l.partial = append(l.partial, line[:min(len(line), maxInitLine)]...)
		if rest = after; ended || len(l.partial) >= maxInitLine {
			l.flush()
		}
	}
	return len(p), nil
}

// flush logs a line.
func (l *lineLog) flush() {
	if len(l.partial) == 0 {
		return
	}
	text := strings.ToValidUTF8(strings.TrimRight(string(l.partial), "\r"), "\uFFFD")
	if l.partial = l.partial[:0]; strings.TrimSpace(text) != "" {
		l.text = text
		l.log.Info().Msg(text)
	}
}

// last returns the last line for an error. The error is not masked, so it only tells that there is one.
func (l *lineLog) last() string {
	if l.text == "" {
		return " without output"
	}
	return ""
}
