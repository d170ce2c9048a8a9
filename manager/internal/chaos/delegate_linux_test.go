package chaos_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
)

// delegateOrders configures a process with delegates.
type delegateOrders struct {
	URL       string
	Effects   string // directory for the side effects of steps
	Records   string // directory for the delegates' records
	Delegates []delegateOrder
	// Perpetual makes the delegates run perpetual tasks, and no stages.
	Perpetual bool
}

// delegateOrder configures one delegate.
type delegateOrder struct {
	Name      string
	Tags      []string
	MaxStages int
	// Trusting disables the delegate's own limit, so that only the manager bounds
	// its stages.
	Trusting bool
	// State is the directory for the delegate's id and stages, so that the next
	// process continues as the same delegate. If it is empty, each process is a new
	// delegate.
	State string
}

// runDelegates runs delegates until a signal ends it, and then drains them.
func runDelegates(o delegateOrders) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := zerolog.New(os.Stderr).With().Timestamp().Int("pid", os.Getpid()).Logger()
	g, ctx := errgroup.WithContext(ctx)
	for _, d := range o.Delegates {
		run := runDelegate
		if o.Perpetual {
			run = runPerpetualDelegate
		}
		g.Go(func() error { return run(ctx, o, d, log.With().Str("delegate", d.Name).Logger()) })
	}
	return g.Wait()
}

// The kinds of a delegate's records. A record is one line. It survives a kill.
const (
	noteIs     = "is"     // with the id that the manager assigned
	noteBegin  = "begin"  // a stage, before its init is answered
	noteEnd    = "end"    // a stage, before its cleanup is answered
	noteClosed = "closed" // as noteEnd, for a stage that had not begun
	noteDone   = "drained"
)

// worker is a delegate whose stages do almost nothing.
type worker struct {
	delegateOrder
	effects string
	notes   *os.File
	slots   *capacity.Slots

	mu     sync.Mutex
	open   map[string]*capacity.Slot // slots of running stages, by group
	closed map[string]bool           // stages that were cleaned up

	restored []string // stages of an earlier process
}

func runDelegate(ctx context.Context, o delegateOrders, order delegateOrder, log zerolog.Logger) error {
	w := &worker{delegateOrder: order, effects: o.Effects, open: map[string]*capacity.Slot{}, closed: map[string]bool{}, slots: capacity.NewSlots(0)}
	if !w.Trusting {
		w.slots = capacity.NewSlots(w.MaxStages)
	}
	name := fmt.Sprintf("%s.%d", w.Name, os.Getpid())
	if w.State != "" {
		name = w.Name
	}
	file := filepath.Join(o.Records, name)
	w.restoreStages(file)
	var err error
	if w.notes, err = os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	c, err := client.New(o.URL, account, secret, client.WithTimeout(1500*time.Millisecond), client.WithRetries(client.Retries{
		Attempts: 100, MinWait: 20 * time.Millisecond, MaxWait: 300 * time.Millisecond, MaxRetryAfter: 300 * time.Millisecond,
	}))
	if err != nil {
		return err
	}
	defer c.CloseIdleConnections()
	options := []poller.Option{
		poller.WithName(w.Name), poller.WithTags(w.Tags...), poller.WithStages(w), poller.WithLogger(log),
		poller.WithHeartbeat(500 * time.Millisecond), poller.WithWait(2 * time.Second), poller.WithGrace(poller.Unbounded),
	}
	if w.State != "" {
		options = append(options, poller.WithState(w.State))
	}
	p := poller.New(c, router.New(router.RouteMap{
		"local_init": task.HandlerFunc(w.initStage), "local_execute": task.HandlerFunc(w.step), "local_cleanup": task.HandlerFunc(w.cleanUpStage),
	}, router.WithMiddleware(router.Recover(log))), options...)
	id, err := w.register(ctx, c, p)
	if err != nil {
		if ctx.Err() != nil {
			err = nil // a signal ended it before it had started
		}
		return err
	}
	w.writeRecord(noteIs, id)
	err = p.Poll(ctx, 8, id, 100*time.Millisecond)
	w.writeRecord(noteDone, fmt.Sprint(len(w.open)))
	return err
}

// register repeats the registration until a manager accepts it.
func (w *worker) register(ctx context.Context, c client.Client, p *poller.Poller) (string, error) {
	for {
		d, err := p.Register(ctx)
		if err == nil && w.Trusting {
			err = c.ReportCapacity(ctx, d.ID, w.MaxStages)
		}
		if err == nil {
			return d.ID, nil
		}
		if ctx.Err() != nil || !errors.Is(err, client.ErrRetryable) {
			return "", err
		}
	}
}

// restoreStages restores the running stages of an earlier process of the same
// delegate.
func (w *worker) restoreStages(file string) {
	f, err := os.Open(file)
	if err != nil {
		return // this process is the first
	}
	defer func() { _ = f.Close() }()
	open := map[string]bool{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		what, group, _ := strings.Cut(lines.Text(), " ")
		switch what {
		case noteBegin:
			open[group] = true
		case noteEnd:
			delete(open, group)
			w.closed[group] = true
		case noteClosed:
			w.closed[group] = true
		}
	}
	for group := range open {
		w.open[group] = w.slots.Force()
		w.restored = append(w.restored, group)
	}
}

// Slots implements [poller.Stages].
func (w *worker) Slots() *capacity.Slots { return w.slots }

// Recover implements [poller.Stages].
func (w *worker) Recover(context.Context) error { return nil }

// Maintain implements [poller.Stages].
func (w *worker) Maintain(ctx context.Context, _ time.Duration) { <-ctx.Done() }

// CleanUpForgotten implements [poller.Stages].
func (w *worker) CleanUpForgotten(context.Context, *task.Task) {}

// Close implements [poller.Stages].
func (w *worker) Close(context.Context) error { return nil }

// CleanUpUnclaimed drops the stages of an earlier process that the manager has
// forgotten.
func (w *worker) CleanUpUnclaimed(context.Context) {
	for _, group := range w.restored {
		w.drop(group)
	}
}

// writeRecord appends a line to the delegate's records.
func (w *worker) writeRecord(what, about string) {
	if _, err := w.notes.WriteString(what + " " + about + "\n"); err != nil {
		panic(err)
	}
}

// payload has the members of the three kinds of payload that the worker uses.
type payload struct {
	ID    string            `json:"id"`
	Group string            `json:"group_id"`
	Env   map[string]string `json:"environment"`
}

type outcome struct {
	Status     string            `json:"command_execution_status"`
	ExitCode   int               `json:"exit_code,omitempty"`
	Error      string            `json:"error_message,omitempty"`
	OutputVars map[string]string `json:"output_vars,omitempty"`
}

var succeeded = outcome{Status: "SUCCESS"}

// result returns the answer to a step, by its id: see the pipeline in runs_linux_test.go.
func (p *payload) result() outcome {
	switch name, attempt, _ := strings.Cut(p.ID, "-"); {
	case name == "first":
		return outcome{Status: "SUCCESS", OutputVars: map[string]string{"WORD": "seen"}}
	case name == "flaky" && attempt == "":
		return outcome{Status: "FAILURE", ExitCode: 1, Error: "exit status 1"}
	case name == "left":
		if p.Env["WORD"] != "seen" {
			return outcome{Status: "FAILURE", ExitCode: 7, Error: "exit status 7"}
		}
	}
	return succeeded
}

// initStage handles the init. From here on the stage uses a slot.
func (w *worker) initStage(ctx context.Context, r *task.Request[payload]) (outcome, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open[r.Data.Group] != nil { // the init ran before the process was killed
		return succeeded, nil
	}
	if w.closed[r.Data.Group] { // rule T3: the cleanup may come before the init
		return outcome{}, errors.New("the stage has been cleaned up")
	}
	slot, ok := capacity.FromContext(ctx)
	if !ok || !slot.Keep() {
		return outcome{}, errors.New("the init came without a slot")
	}
	w.open[r.Data.Group] = slot
	w.writeRecord(noteBegin, r.Data.Group)
	return succeeded, nil
}

// step makes its side effect, which must not happen twice, and then waits a moment.
func (w *worker) step(ctx context.Context, r *task.Request[payload]) (outcome, error) {
	w.mu.Lock()
	open := w.open[r.Data.Group] != nil
	w.mu.Unlock()
	if !open {
		return outcome{}, errors.New("the stage is not open here")
	}
	if ctx.Err() != nil {
		return outcome{}, ctx.Err()
	}
	if err := w.effect(effectName(r.Data.Group, r.Data.ID), r.Task.ID); err != nil {
		return outcome{}, err
	}
	t := time.NewTimer(rand.N(5 * time.Millisecond))
	defer t.Stop()
	select {
	case <-t.C:
		return r.Data.result(), nil
	case <-ctx.Done():
		return outcome{}, ctx.Err()
	}
}

// effectName returns the name of the file for a step's side effect. The group
// contains the attempt.
func effectName(group, step string) string { return group + "." + step }

// effect creates a new file. If the file exists, effect adds a line to it, unless
// this delegate created the file before its process was killed. A delegate that
// continues must recognize that.
func (w *worker) effect(name, id string) error {
	path := filepath.Join(w.effects, name)
	tmp := filepath.Join(w.effects, "."+id+"."+fmt.Sprint(os.Getpid()))
	mine := w.Name + " " + id
	if err := os.WriteFile(tmp, fmt.Appendf(nil, "%s %d\n", mine, os.Getpid()), 0o600); err != nil {
		return err
	}
	err := os.Link(tmp, path) // writes the whole line at once, also if the process is killed
	if err := os.Remove(tmp); err != nil {
		return err
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if w.State != "" && strings.HasPrefix(string(b), mine+" ") && !strings.Contains(string(b), fmt.Sprintf("%s %d\n", mine, os.Getpid())) {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s %d\n", mine, os.Getpid())
	return errors.Join(err, f.Close())
}

// cleanUpStage handles the cleanup and frees the slot.
func (w *worker) cleanUpStage(_ context.Context, r *task.Request[payload]) (outcome, error) {
	w.drop(r.Data.Group)
	return succeeded, nil
}

func (w *worker) drop(group string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed[group] = true
	slot := w.open[group]
	if slot == nil {
		w.writeRecord(noteClosed, group)
		return
	}
	w.writeRecord(noteEnd, group)
	delete(w.open, group)
	slot.Release()
}
