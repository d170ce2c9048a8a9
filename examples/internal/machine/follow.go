package machine

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/delegate-io/dlite/manager/api"
)

// Terminal prints the progress of runs. It is safe for concurrent use.
type Terminal struct {
	mu sync.Mutex
	w  io.Writer
}

// NewTerminal returns a terminal that writes to w.
func NewTerminal(w io.Writer) *Terminal { return &Terminal{w: w} }

func (t *Terminal) printf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _ = fmt.Fprintf(t.w, format, args...) // a closed terminal must not stop the pipeline
}

// Note prints a message of the program.
func (t *Terminal) Note(format string, args ...any) { t.printf("! "+format+"\n", args...) }

// Follow prints the progress of a run and the logs of its steps, until it has ended, and then its
// result.
func (t *Terminal) Follow(ctx context.Context, m *Machine, id string) (api.Run, error) {
	f := follower{machine: m, terminal: t, status: map[string]string{}}
	tailing, stop := context.WithCancel(ctx)
	defer f.tails.Wait()
	defer stop()
	for since := int64(0); ; {
		change, err := m.Pipelines.Changes(ctx, Account, id, since)
		if err != nil {
			return api.Run{}, err
		}
		since = change.Run.Version
		f.show(tailing, change)
		if !change.Run.EndedAt.IsZero() {
			break
		}
	}
	run, err := m.Pipelines.Run(ctx, Account, id)
	if err != nil {
		return run, err
	}
	if slices.ContainsFunc(run.Nodes, neverRan) {
		defer time.AfterFunc(lastLines, stop).Stop()
	}
	f.tails.Wait() // the log of a step that has run ends with it
	t.summary(run)
	return run, nil
}

// lastLines bounds the wait for logs that may have no end.
const lastLines = 2 * time.Second

// neverRan reports whether a step may have ended before it had a log, for example because a secret
// could not be resolved. The end of such a log does not come.
func neverRan(n api.Node) bool {
	return n.Kind == "step" && !n.StartedAt.IsZero() && n.ExitCode == nil
}

type follower struct {
	machine  *Machine
	terminal *Terminal
	tails    sync.WaitGroup
	status   map[string]string // last status and attempt of a node, by its path
	stages   map[string]string // id of a stage at the manager, by its path
}

// show prints the stages and steps that have started or ended.
func (f *follower) show(ctx context.Context, change api.RunChange) {
	if f.stages == nil {
		f.stages = map[string]string{}
	}
	for _, n := range change.Nodes {
		if n.Kind == "stage" {
			f.stages[n.Path] = n.StageID
		}
	}
	for _, n := range change.Nodes {
		now := fmt.Sprint(n.Status, n.Attempt)
		if f.status[n.Path] == now {
			continue
		}
		f.status[n.Path] = now
		switch {
		case n.Kind == "stage" && n.Status == "RUNNING":
			f.terminal.printf("== stage %s\n", title(n))
		case n.Kind == "step" && n.Status == "SKIPPED":
			f.terminal.printf("   %s skipped: %s\n", n.Identifier, n.Reason)
		case n.Kind == "step":
			f.tail(ctx, n)
		}
	}
}

// tail prints the log of an attempt of a step from its start.
func (f *follower) tail(ctx context.Context, n api.Node) {
	key := f.stageOf(n.Path) + "/" + n.StepID
	if f.status["log "+key] != "" || n.StartedAt.IsZero() {
		return
	}
	f.status["log "+key] = "followed"
	f.tails.Go(func() {
		name := label(n)
		for line := range f.machine.Logs.Tail(ctx, Account, key) {
			f.terminal.printf("   %-20s | %s\n", name, strings.TrimRight(line.Out, "\r\n"))
		}
	})
}

// stageOf returns the id of the stage of a step.
func (f *follower) stageOf(path string) string {
	stage, _, _ := strings.Cut(path, ".spec.execution.")
	return f.stages[stage]
}

func title(n api.Node) string {
	if n.Name == "" || n.Name == n.Identifier {
		return n.Identifier
	}
	return n.Identifier + " (" + n.Name + ")"
}

// label is the path of a step within its stage.
func label(n api.Node) string {
	_, path, _ := strings.Cut(n.Path, ".spec.execution.steps.")
	return strings.ReplaceAll(path, ".steps.", "/")
}

// summary prints the result of every stage and step.
func (t *Terminal) summary(run api.Run) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _ = fmt.Fprintln(t.w)
	tab := tabwriter.NewWriter(t.w, 0, 0, 2, ' ', 0)
	for _, n := range run.Nodes {
		var columns []string
		switch n.Kind {
		case "stage":
			columns = []string{n.Identifier, ""}
		case "step", "group":
			columns = []string{"", label(n)}
		default:
			continue
		}
		_, _ = fmt.Fprintln(tab, strings.Join(append(columns, n.Status, took(n.StartedAt, n.EndedAt), details(n)), "\t"))
	}
	_, _ = fmt.Fprintln(tab, strings.Join([]string{run.Pipeline, "", run.Status, took(run.CreatedAt, run.EndedAt), run.Reason}, "\t"))
	_ = tab.Flush()
}

func details(n api.Node) string {
	var all []string
	if n.Reason != "" {
		all = append(all, strings.ReplaceAll(n.Reason, "\n", " "))
	}
	for _, name := range slices.Sorted(maps.Keys(n.Outputs)) {
		all = append(all, name+"="+n.Outputs[name])
	}
	return strings.Join(all, " ")
}

func took(from, to time.Time) string {
	if from.IsZero() || to.IsZero() {
		return ""
	}
	return to.Sub(from).Round(time.Millisecond).String()
}
