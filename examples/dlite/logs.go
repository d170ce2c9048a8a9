package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/delegate-io/dlite/manager/api"
)

type logsCommand struct {
	Ref        string        `arg:"" help:"Id of a run or a stage."`
	Step       string        `help:"Only this step: its id, or stage/step."`
	Follow     bool          `short:"f" help:"Follow until the run or stage ends."`
	Since      time.Duration `help:"Only lines of the last time, such as 10m."`
	Timestamps bool          `short:"t" help:"The time before each line."`
}

// Help is the text below the flags.
func (*logsCommand) Help() string {
	return `The lines of one step are as the step wrote them. With several, each has the name of its step.

Examples:
  $ dlite logs hello
  $ dlite logs hello --step greet
  $ dlite logs hello -f --since 1h`
}

// Run prints logs.
func (c *logsCommand) Run(p *program) error {
	client, o, err := p.find(c.Ref)
	if err != nil {
		return err
	}
	w := &logWriter{c: c, p: p, colour: p.colours()}
	if c.Since > 0 {
		w.from = time.Now().Add(-c.Since)
	}
	_, _, code := o.result()
	if c.Follow && code < 0 {
		return c.follow(p, client, o, w)
	}
	parts := c.selected(o.parts())
	if len(parts) == 0 {
		return c.noSuch(o)
	}
	w.nameSteps(len(parts))
	for _, part := range parts {
		if part.Started.IsZero() {
			continue
		}
		if err := c.archived(p, client, part, w); err != nil {
			return err
		}
	}
	return nil
}

// archived prints a log that is complete. For the log of a running step it prints a note.
func (c *logsCommand) archived(p *program, client *api.Client, part part, w *logWriter) error {
	for line, err := range client.Log(p.ctx, part.Key) {
		switch {
		case api.IsStatus(err, http.StatusNotFound): // the step has no log, or its log is not complete
			if part.Ended.IsZero() {
				p.note("%s still runs: \"dlite logs %s -f\" follows it.", clean(part.Label), c.Ref)
			}
			return nil
		case err != nil:
			return err
		}
		if w.line(part.Label, line); w.err != nil {
			return w.err
		}
	}
	return nil
}

func (c *logsCommand) follow(p *program, client *api.Client, o object, w *logWriter) error {
	lost := func(err error) { p.note("! %v: connecting again", err) }
	t := newTails(p.ctx, client, w.line, func(text string) { p.note("%s", clean(text)) })
	see := func(now object) {
		parts := c.selected(now.parts())
		w.nameSteps(len(parts))
		t.see(parts)
	}
	see(o)
	ended, err := follow(p.ctx, client, o, lost, see)
	if err == nil {
		see(ended)
	}
	t.wait()
	if w.err != nil {
		return w.err
	}
	if err == nil && len(c.selected(ended.parts())) == 0 {
		return c.noSuch(ended)
	}
	return err
}

func (c *logsCommand) noSuch(o object) error {
	var labels []string
	for _, p := range o.parts() {
		if p.step {
			labels = append(labels, p.Label)
		}
	}
	return &codeError{fmt.Sprintf("there is no step %q: there are %s", c.Step, orNone(labels, "\"dlite show "+o.name()+"\" says why no step has started")), exitNotFound}
}

// selected returns the steps that the user wants and that have a log.
func (c *logsCommand) selected(all []part) []part {
	var out []part
	for _, p := range all {
		if p.step && p.Key != "" && (c.Step == "" || p.Label == c.Step || strings.HasSuffix(p.Label, "/"+c.Step)) {
			out = append(out, p)
		}
	}
	return out
}

// logWriter prints lines of logs.
type logWriter struct {
	c      *logsCommand
	p      *program
	colour bool
	from   time.Time

	mu    sync.Mutex
	named bool  // each line begins with the name of its step
	err   error // of the output; further lines are dropped
}

// nameSteps lets each line begin with the name of its step, if lines of several steps are wanted: of all, or of the
// cells of a matrix.
func (w *logWriter) nameSteps(selected int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.named = w.named || w.c.Step == "" || selected > 1
}

func (w *logWriter) line(label string, l api.LogLine) {
	if l.Time.Before(w.from) {
		return
	}
	text := cleanLine(l.Text, w.colour)
	if w.c.Timestamps {
		text = l.Time.Format("2006-01-02T15:04:05.000Z07:00") + " " + text
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.named {
		text = clean(label) + " | " + text
	}
	if w.err == nil {
		w.err = w.p.write(text + "\n")
	}
}
