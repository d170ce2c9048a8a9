package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/delegate-io/dlite/manager"
)

// terminal prints progress. It is safe for concurrent use.
type terminal struct {
	mu sync.Mutex
	w  io.Writer
}

func newTerminal(w io.Writer) *terminal { return &terminal{w: w} }

func (t *terminal) printf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _ = fmt.Fprintf(t.w, format, args...) // a closed terminal must not stop the pipeline
}

func (t *terminal) note(format string, args ...any) { t.printf("! "+format+"\n", args...) }

func (t *terminal) stage(name string) { t.printf("== stage %s\n", name) }

func (t *terminal) line(step, text string) {
	t.printf("   %-20s | %s\n", step, strings.TrimRight(text, "\r\n"))
}

// summary prints the result of every stage and step.
func (t *terminal) summary(p pipeline, ended []manager.Stage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _ = fmt.Fprintln(t.w)
	tab := tabwriter.NewWriter(t.w, 0, 0, 2, ' ', 0)
	row := func(columns ...string) { _, _ = fmt.Fprintln(tab, strings.Join(columns, "\t")) }
	for _, st := range ended {
		row(st.Name, "", string(st.Status), took(st.SubmittedAt, st.EndedAt), st.Error)
		for _, step := range st.Steps {
			row("", step.Name, string(step.Status), took(step.StartedAt, step.EndedAt), details(step))
		}
	}
	for _, st := range p.Stages[len(ended):] {
		row(st.Name, "", "NOT RUN")
	}
	_ = tab.Flush()
}

func details(s manager.StepState) string {
	if s.Error != "" {
		return s.Error
	}
	var all []string
	for _, o := range s.Outputs {
		all = append(all, o.Key+"="+o.Value)
	}
	return strings.Join(all, " ")
}

func took(from, to time.Time) string {
	if from.IsZero() || to.IsZero() {
		return ""
	}
	return to.Sub(from).Round(time.Millisecond).String()
}
