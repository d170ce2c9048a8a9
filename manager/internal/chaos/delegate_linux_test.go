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

// delegateOrders are what a process of delegates is told.
type delegateOrders struct {
	URL       string
	Effects   string // folder of what the steps do
	Records   string // folder of what the delegates note
	Delegates []delegateOrder
}

// delegateOrder is about one delegate.
type delegateOrder struct {
	Name      string
	Tags      []string
	MaxStages int
	// Trusting leaves it to the manager alone to bound the stages.
	Trusting bool
	// State is a folder for what the next process is to know: it is the same
	// delegate then. Otherwise each process is a new one.
	State string
}

// runDelegates runs delegates until it is told to end, and then drains them.
func runDelegates(o delegateOrders) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := zerolog.New(os.Stderr).With().Timestamp().Int("pid", os.Getpid()).Logger()
	g, ctx := errgroup.WithContext(ctx)
	for _, d := range o.Delegates {
		g.Go(func() error { return runDelegate(ctx, o, d, log.With().Str("delegate", d.Name).Logger()) })
	}
	return g.Wait()
}

// A delegate's records: one line for each thing that happened, which a kill cannot
// take back.
const (
	noteIs     = "is"     // and the id that the manager gave it
	noteBegin  = "begin"  // a stage, before its init is answered
	noteEnd    = "end"    // a stage, before its cleanup is answered
	noteClosed = "closed" // a stage that had not begun, likewise
	noteDone   = "drained"
)

// worker is a delegate whose stages do next to nothing.
type worker struct {
	delegateOrder
	effects string
	notes   *os.File
	slots   *capacity.Slots

	mu     sync.Mutex
	open   map[string]*capacity.Slot // stages, by group
	closed map[string]bool           // stages that have been cleaned up

	recalled []string // stages of an earlier process
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
	w.recall(file)
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
		"local_init": task.HandlerFunc(w.begin), "local_execute": task.HandlerFunc(w.step), "local_cleanup": task.HandlerFunc(w.finish),
	}, router.WithMiddleware(router.Recover(log))), options...)
	id, err := w.register(ctx, c, p)
	if err != nil {
		if ctx.Err() != nil {
			err = nil // it is told to end before it was there
		}
		return err
	}
	w.note(noteIs, id)
	err = p.Poll(ctx, 8, id, 100*time.Millisecond)
	w.note(noteDone, fmt.Sprint(len(w.open)))
	return err
}

// register tries until the managers take it.
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

// recall takes up the stages that an earlier process of the same delegate had
// begun and not ended.
func (w *worker) recall(file string) {
	f, err := os.Open(file)
	if err != nil {
		return // it is the first
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
		w.recalled = append(w.recalled, group)
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

// CleanUpUnclaimed drops the stages of an earlier process, which the manager has
// forgotten. It implements [poller.Stages].
func (w *worker) CleanUpUnclaimed(context.Context) {
	for _, group := range w.recalled {
		w.drop(group)
	}
}

// note writes a line into the delegate's records.
func (w *worker) note(what, about string) {
	if _, err := w.notes.WriteString(what + " " + about + "\n"); err != nil {
		panic(err)
	}
}

// payload is what the worker looks at of the three kinds.
type payload struct {
	ID    string `json:"id"`
	Group string `json:"group_id"`
}

type outcome struct {
	Status string `json:"command_execution_status"`
}

var succeeded = outcome{"SUCCESS"}

// begin is the init: from here on the stage has a slot.
func (w *worker) begin(ctx context.Context, r *task.Request[payload]) (outcome, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open[r.Data.Group] != nil { // of before the process was killed
		return succeeded, nil
	}
	if w.closed[r.Data.Group] { // SPEC T3: the cleanup may come before the init
		return outcome{}, errors.New("the stage has been cleaned up")
	}
	slot, ok := capacity.FromContext(ctx)
	if !ok || !slot.Keep() {
		return outcome{}, errors.New("the init came without a slot")
	}
	w.open[r.Data.Group] = slot
	w.note(noteBegin, r.Data.Group)
	return succeeded, nil
}

// step has its side effect, which must not happen twice, then works a moment.
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
		return succeeded, nil
	case <-ctx.Done():
		return outcome{}, ctx.Err()
	}
}

// effectName is the file of what a step does. The group has the attempt in it.
func effectName(group, step string) string { return group + "." + step }

// effect makes a file that is not there. When it is, it gets another line, unless
// it is what this delegate did before its process was killed: a delegate that goes
// on has to recognise that.
func (w *worker) effect(name, id string) error {
	path := filepath.Join(w.effects, name)
	tmp := filepath.Join(w.effects, "."+id+"."+fmt.Sprint(os.Getpid()))
	mine := w.Name + " " + id
	if err := os.WriteFile(tmp, fmt.Appendf(nil, "%s %d\n", mine, os.Getpid()), 0o600); err != nil {
		return err
	}
	err := os.Link(tmp, path) // the whole line at once, whoever is killed
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

// finish is the cleanup: the slot is free.
func (w *worker) finish(_ context.Context, r *task.Request[payload]) (outcome, error) {
	w.drop(r.Data.Group)
	return succeeded, nil
}

func (w *worker) drop(group string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed[group] = true
	slot := w.open[group]
	if slot == nil {
		w.note(noteClosed, group)
		return
	}
	w.note(noteEnd, group)
	delete(w.open, group)
	slot.Release()
}
