package steps

import (
	"context"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/delegate-io/dlite/driver"
)

// WorkspaceMount is the path of the workspace inside containers.
const WorkspaceMount = "/workspace"

// Run is the execution of one step.
type Run struct {
	Driver *Driver
	Tx     *Transaction
	Env    *driver.Environment
	Step   *driver.Step
	Out    *Output
	Ledger driver.Ledger

	Volumes map[string]*Volume
	Files   *Files
}

// NewRun prepares the execution of a step. It fails if the init of env has not run on this driver.
func (d *Driver) NewRun(env *driver.Environment, step *driver.Step, out io.Writer, l driver.Ledger) (*Run, error) {
	tx, err := OpenTransaction(env)
	if err != nil {
		return nil, err
	}
	return &Run{Driver: d, Tx: tx, Env: env, Step: step, Out: &Output{w: out}, Ledger: l}, nil
}

func (r *Run) execute(ctx context.Context, b Backend) (res *driver.Result, err error) {
	if err = b.Check(&r.Step.Step); err != nil {
		return nil, err
	}
	if err = checkReady(&r.Step.Step); err != nil {
		return nil, err
	}
	if err = r.Driver.MakeVolumes(ctx, r.Tx, r.Step.ExtraVolumes, r.Ledger, r.Out); err != nil {
		return nil, err
	}
	if r.Volumes, err = FindVolumes(r.Tx, r.Env.Volumes, r.Step.ExtraVolumes); err != nil {
		return nil, err
	}
	if r.Files, err = r.newFiles(); err != nil {
		return nil, err
	}
	if res, err = b.Run(ctx, r); err != nil {
		r.Files.Remove()
		return nil, err
	}
	r.Finish(ctx, res)
	return res, nil
}

// Finish adds the outputs and the test summary of a step that has ended to res, and the removal of its
// files to Release. For a detached step, which continues to use them, it closes the files.
func (r *Run) Finish(ctx context.Context, res *driver.Result) {
	if res.Detached {
		r.Files.Close()
		return
	}
	r.Files.collect(res, r.Out)
	r.summarizeTests(ctx, res)
	next := res.Release
	res.Release = func() {
		r.Files.Remove()
		if next != nil {
			next()
		}
	}
}

// maskText replaces secrets in text. It must run before text is shortened: a mask does not recognize a
// part of a secret.
func (r *Run) maskText(text string) string {
	if r.Env.Mask == nil {
		return text
	}
	return r.Env.Mask(text)
}

// Fail adds the step's id to err. Call it once, in the method that the driver's caller called.
func (r *Run) Fail(err error) error { return fmt.Errorf("step %q: %w", r.Step.ID, err) }

// Grace returns the time between SIGTERM and SIGKILL for the step.
func (r *Run) Grace() time.Duration {
	if r.Step.SoftStop && r.Driver.Config.Grace == 0 {
		return 10 * time.Second
	}
	return r.Driver.Config.Grace
}

// Labels returns the labels of the step's resources. A step cannot override the labels that identify
// the transaction and the step.
func (r *Run) Labels() map[string]string {
	labels := maps.Clone(r.Step.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, r.Tx.Labels)
	labels[driver.LabelStep] = r.Step.ID
	return labels
}

// Output serializes the writes to a step's output. After an error or Close it discards all writes, so
// that a reader never delays a step.
type Output struct {
	mu  sync.Mutex
	w   io.Writer // nil discards; guarded by mu
	err error     // guarded by mu
	// lines counts the lines that Printf has written; guarded by mu.
	lines int
}

// NewOutput returns an output that writes to w.
func NewOutput(w io.Writer) *Output { return &Output{w: w} }

// Write never fails.
func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.w != nil {
		if _, err := o.w.Write(b); err != nil {
			o.w, o.err = nil, err
		}
	}
	return len(b), nil
}

// Printf writes a line of the driver.
func (o *Output) Printf(format string, args ...any) {
	text := fmt.Sprintf(format+"\n", args...)
	o.mu.Lock()
	o.lines += strings.Count(text, "\n")
	o.mu.Unlock()
	_, _ = io.WriteString(o, text)
}

// Lines returns how many lines Printf has written.
func (o *Output) Lines() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lines
}

// Close makes the output discard all further writes.
func (o *Output) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.w = nil
}
