package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/peterbourgon/ff/v3/ffcli"

	"github.com/delegate-io/dlite/internal/process"
)

// Name is the name of the program: in plugin steps, and as the command of the delegate and the agent.
const Name = "storage"

// Builtins returns the program for the drivers of a process whose main has Command.
func Builtins() map[string][]string { return map[string][]string{Name: {Name}} }

// Command returns the command that does one step: restore, save or upload. Its settings are the
// variables of the step, with the prefix PLUGIN_.
func Command() *ffcli.Command {
	return &ffcli.Command{
		Name: Name, ShortUsage: Name + " restore|save|upload", ShortHelp: "do the work of a cache or upload step, with the settings in PLUGIN_ variables",
		Exec: func(ctx context.Context, args []string) error {
			// The environment has the credentials, and other steps of the stage may have the same user.
			if err := process.ProtectMemory(); err != nil {
				fmt.Println("Warning: other steps of the stage can read the credentials of the bucket:", err)
			}
			return run(ctx, args, os.Getenv, os.Stdout)
		},
	}
}

// run does one step and writes its log to out. A cache that cannot be restored or saved is a line of the
// log and no error, unless the step asks for it. Wrong settings and failed uploads are errors.
func run(ctx context.Context, args []string, env func(string) string, out io.Writer) error {
	s, err := readSettings(env)
	if err != nil {
		return err
	}
	b, err := openBucket(s)
	if err != nil {
		return err
	}
	places, err := findPlaces(s)
	if err != nil {
		return err
	}
	w := &work{settings: s, bucket: b, places: places, out: out}
	switch strings.Join(args, " ") {
	case "restore":
		err := w.restore(ctx)
		if e := writeHit(env("DRONE_OUTPUT"), w.hit); e != nil {
			w.printf("Warning: the output cacheHit: %v", e)
		}
		return w.tolerate("restored", err)
	case "save":
		return w.tolerate("saved", w.save(ctx))
	case "upload":
		return w.upload(ctx)
	}
	return fmt.Errorf("unknown work %q: use restore, save or upload", args)
}

// work is one step.
type work struct {
	*settings

	bucket *bucket
	places *places

	hit bool // restore found the cache

	mu  sync.Mutex
	out io.Writer // guarded by mu
}

// writeHit writes the output cacheHit of a restore to the file of the outputs.
func writeHit(file string, hit bool) error {
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600) //nolint:gosec // the driver names the file
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "cacheHit=%t\n", hit)
	return errors.Join(err, f.Close())
}

func (w *work) printf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = fmt.Fprintf(w.out, format+"\n", args...)
}

// tolerate reports the error of a cache in the log.
func (w *work) tolerate(done string, err error) error {
	var wrong *settingError
	if err == nil || w.mustFind || errors.As(err, &wrong) {
		return err
	}
	w.printf("The cache was not %s: %v", done, err)
	return nil
}
