package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/delegate-io/dlite/manager/api"
)

type watchCommand struct {
	Ref  string `arg:"" help:"Id of a run or a stage."`
	Logs bool   `default:"true" negatable:"" help:"Show the logs too."`
}

// Help is the text below the flags.
func (*watchCommand) Help() string {
	return `The exit code is the result: 0 success, 1 failed, 7 aborted. On a terminal the steps stay in view; elsewhere each change is a line.

Examples:
  $ dlite watch hello`
}

// Run follows an object until it ends.
func (c *watchCommand) Run(p *program) error {
	client, o, err := p.find(c.Ref)
	if err != nil {
		return err
	}
	return p.watch(client, o, c.Logs)
}

// watch follows an object until it ends, and returns its result as an error.
func (p *program) watch(client *api.Client, o object, logs bool) error {
	if p.cli.Output != "table" { // programs get the end only
		ended, err := follow(p.ctx, client, o, func(error) {}, func(object) {})
		if err != nil {
			return err
		}
		if err := p.print(ended.value(), table{names: []string{ended.name()}, rows: [][]string{{ended.name()}}}); err != nil {
			return err
		}
		return ended.outcome(false)
	}
	v := newView(p)
	v.show(o)
	lost := func(err error) { v.note("! " + err.Error() + ": connecting again") }
	t := newTails(p.ctx, client, v.log, v.note)
	if logs {
		t.see(o.parts())
	}
	ended, err := follow(p.ctx, client, o, lost, func(now object) {
		v.show(now)
		if logs {
			t.see(now.parts())
		}
	})
	if err == nil && logs {
		t.see(ended.parts())
	}
	t.wait()
	v.end(ended, err == nil)
	if err != nil {
		return err
	}
	return ended.outcome(!p.here)
}

// outcome returns an error for a result that is not a success.
func (o object) outcome(hint bool) error {
	status, _, code := o.result()
	if code == exitOK {
		return nil
	}
	text := ""
	if hint {
		text = fmt.Sprintf("%s ended as %s: \"dlite show %s\" explains it, \"dlite logs %s\" has its output", o.name(), status, o.name(), o.name())
	}
	return &codeError{text, code}
}

// view shows the progress of an object: on a terminal a block that is painted again, elsewhere lines.
type view struct {
	p      *program
	live   bool
	colour bool

	mu      sync.Mutex
	current object
	known   map[string]string // the status of each part that was printed
	painted int               // lines of the block
	ticks   int
	stop    chan struct{}
	stopped chan struct{}
}

func newView(p *program) *view {
	v := &view{p: p, live: p.isTerminal(), colour: p.colours(), known: map[string]string{}, stop: make(chan struct{}), stopped: make(chan struct{})}
	go v.animate()
	return v
}

// animate paints the block again for the spinner and the times.
func (v *view) animate() {
	defer close(v.stopped)
	if !v.live {
		return
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			v.mu.Lock()
			v.ticks++
			v.paint(false)
			v.mu.Unlock()
		case <-v.stop:
			return
		}
	}
}

func (v *view) show(o object) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.current = o
	if v.live {
		v.paint(false)
		return
	}
	if status, reason, code := o.result(); code < 0 && v.known[""] != status+reason {
		v.known[""] = status + reason
		v.print(strings.TrimRight(o.name()+": "+status+": "+clean(reason), ": "))
	}
	for _, p := range o.parts() {
		if v.known[p.Label] == p.Status || p.Status == "NOT_STARTED" || p.Status == "QUEUED" && p.Started.IsZero() {
			continue
		}
		v.known[p.Label] = p.Status
		v.print(strings.TrimRight(fmt.Sprintf("%s: %s %s %s", clean(p.Label), p.Status, tookOf(p), clean(p.Reason)), " "))
	}
}

func tookOf(p part) string {
	if p.Ended.IsZero() {
		return ""
	}
	return took(p.Started, p.Ended)
}

func (v *view) print(line string) { _, _ = fmt.Fprintln(v.p.out, line) }

func (v *view) note(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.addLine(clean(text))
}

func (v *view) log(label string, line api.LogLine) {
	text := cleanLine(line.Text, v.colour)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.addLine(clean(label) + " | " + text)
}

// addLine prints a line. On a terminal it stands above the block.
func (v *view) addLine(text string) {
	if !v.live {
		v.print(text)
		return
	}
	v.clear(v.p.out)
	v.print(text + v.reset())
	v.paint(true)
}

func (v *view) reset() string {
	if v.colour {
		return "\x1b[0m"
	}
	return ""
}

// clear removes the block.
func (v *view) clear(w io.Writer) {
	if v.painted > 0 {
		_, _ = fmt.Fprintf(w, "\x1b[%dA\x1b[J", v.painted)
		v.painted = 0
	}
}

var spinner = []string{"|", "/", "-", "\\"}

// paint writes the block: a line for each part, and one for the whole.
func (v *view) paint(cleared bool) {
	if v.current == (object{}) {
		return
	}
	width, height := v.p.size()
	var lines []string
	for _, p := range v.current.parts() {
		mark := marks[p.Status]
		if mark == "" {
			mark = spinner[v.ticks%len(spinner)]
		}
		line := fmt.Sprintf("%s%s %-*s %-9s %s", strings.Repeat("  ", p.depth), mark, max(1, 32-2*p.depth), clean(p.name()), p.Status, took(p.Started, p.Ended))
		lines = append(lines, strings.TrimRight(line+" "+clean(p.Reason), " "))
	}
	if most := max(height-3, 1); len(lines) > most {
		hidden := len(lines) - most
		lines = append([]string{fmt.Sprintf("... %d more: dlite show %s", hidden, v.current.name())}, lines[hidden:]...)
	}
	status, reason, _ := v.current.result()
	lines = append(lines, strings.TrimRight(fmt.Sprintf("%s %s %s", v.current.name(), status, clean(reason)), " "))
	var out strings.Builder
	if !cleared {
		v.clear(&out)
	}
	for _, line := range lines {
		if r := []rune(line); len(r) >= width {
			line = string(r[:width-1])
		}
		if v.colour {
			line = colourStatus(line)
		}
		out.WriteString(line + "\n")
	}
	v.painted = len(lines)
	_, _ = io.WriteString(v.p.out, out.String())
}

var marks = map[string]string{
	"SUCCESS": "✓", "SUCCEEDED": "✓", "FAILURE": "✗", "FAILED": "✗", "TIMEOUT": "✗", "EXPIRED": "✗", "ABORTED": "■", "SKIPPED": "-", "QUEUED": ".",
	"NOT_STARTED": ".", "IGNORE_FAILED": "!",
}

// end paints the last state.
func (v *view) end(o object, complete bool) {
	close(v.stop)
	<-v.stopped
	v.mu.Lock()
	defer v.mu.Unlock()
	if !complete {
		return
	}
	v.current = o
	if v.live {
		v.paint(false)
		return
	}
	status, reason, _ := o.result()
	v.print(strings.TrimRight(o.name()+": "+status+" "+clean(reason), " "))
}
