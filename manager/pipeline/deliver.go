package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/delegate-io/dlite/manager/pipeline/internal/engine"
	"github.com/delegate-io/dlite/manager/pipeline/internal/steps"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// deliver applies events to their run and sends the commands that follow.
func (s *Service) deliver(ctx context.Context, messages []store.Message) error {
	err := s.change(ctx, runKey{messages[0].Account, messages[0].Run}, func(tx *store.Tx, live *liveRun) error {
		return apply(tx, live, messages)
	})
	if errors.Is(err, ErrNotFound) || errors.Is(err, errEnded) { // the run has expired or ended
		return s.store.Update(ctx, func(tx *store.Tx) error { return tx.Done(messages...) })
	}
	return err
}

// errEnded reports that a run has ended, so that events, which are not orders of people, change
// nothing.
var errEnded = errors.New("the run has ended")

// change applies events to a run that has not ended, in one transaction. It fails with
// [ErrNotFound] and errEnded.
func (s *Service) change(ctx context.Context, key runKey, fn func(*store.Tx, *liveRun) error) error {
	return s.edit(ctx, key, func(tx *store.Tx, run *store.Run) (*liveRun, error) {
		if !run.Ended.IsZero() {
			return nil, errEnded
		}
		return s.loadFor(tx, run, fn)
	})
}

// loadFor loads a locked run and calls fn with it.
func (s *Service) loadFor(tx *store.Tx, run *store.Run, fn func(*store.Tx, *liveRun) error) (*liveRun, error) {
	live, err := s.cache.load(tx, run)
	if err != nil {
		return nil, err
	}
	return live, fn(tx, live)
}

// edit changes a run in one transaction. Fn returns the state of the run for the cache, or nil.
// Edit fails with [ErrNotFound].
func (s *Service) edit(ctx context.Context, key runKey, fn func(*store.Tx, *store.Run) (*liveRun, error)) error {
	var before time.Time
	var run *store.Run
	var live *liveRun
	err := s.store.Update(ctx, func(tx *store.Tx) (err error) {
		run, err = tx.Lock(key.account, key.id)
		if errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("run %s: %w", key.id, ErrNotFound)
		}
		if err != nil {
			return err
		}
		before = run.Ended
		live, err = fn(tx, run)
		return err
	})
	if err != nil {
		return err
	}
	if live != nil && run.Ended.IsZero() {
		s.cache.keep(live)
	}
	s.announceChange(run)
	if before.IsZero() && !run.Ended.IsZero() {
		s.counts.end(key.account, run.Status)
		s.cfg.Logger.Info().Str("account", key.account).Str("run", key.id).Str("pipeline", run.Pipeline).Str("status", run.Status).
			Msg("run ended")
	}
	return nil
}

// apply applies the events of messages, and writes what changed.
func apply(tx *store.Tx, live *liveRun, messages []store.Message) error {
	turn := runTurn{live: live, changed: map[string]*engine.Node{}}
	for _, m := range messages {
		var e engine.Event
		if err := json.Unmarshal(m.Data, &e); err != nil {
			return broken("decoding an event: %w", err)
		}
		if err := turn.apply(e); err != nil {
			return err
		}
	}
	if err := turn.save(tx); err != nil {
		return err
	}
	return tx.Done(messages...)
}

// runTurn collects what events change in a run.
type runTurn struct {
	live     *liveRun
	changed  map[string]*engine.Node
	order    []string
	commands []engine.Command
}

func (t *runTurn) apply(e engine.Event) error {
	e.Time = time.Now().UTC()
	nodes, commands, err := t.live.machine.Apply(t.live.state, e)
	if err != nil {
		return broken("applying the event %s of %s: %w", e.Kind, e.Node, err)
	}
	for _, n := range nodes {
		if t.changed[n.Path] == nil {
			t.order = append(t.order, n.Path)
		}
		t.changed[n.Path] = n
	}
	t.commands = append(t.commands, commands...)
	return nil
}

// save writes the changed nodes and sends the commands.
func (t *runTurn) save(tx *store.Tx) error {
	if len(t.order) == 0 && len(t.commands) == 0 {
		return nil
	}
	nodes := make([]store.Node, 0, len(t.order))
	for _, path := range t.order {
		data, err := json.Marshal(t.changed[path])
		if err != nil {
			return fmt.Errorf("encoding node %s: %w", path, err)
		}
		nodes = append(nodes, store.Node{Path: path, Data: data})
		t.live.count(nodes[len(nodes)-1])
	}
	if err := t.live.summarise(); err != nil {
		return err
	}
	if err := tx.Save(t.live.run, nodes); err != nil {
		return err
	}
	if err := t.live.queueStatus(tx); err != nil {
		return err
	}
	return send(tx, t.live.run, t.commands)
}

// facts is the state of a run beside its nodes, for lists.
type facts struct {
	Name   string            `json:"name,omitempty"`
	User   string            `json:"user,omitempty"`
	Reason string            `json:"reason,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// Stored and StoredVersion are the stored pipeline that the run was started with.
	Stored        string `json:"stored,omitempty"`
	StoredVersion int64  `json:"stored_version,omitempty"`
	// Commit is where the state of the run is reported, and Reported the last state that was queued for it.
	Commit   *commitTarget `json:"commit,omitempty"`
	Reported string        `json:"reported,omitempty"`
}

// summarise copies the status of the pipeline to the run.
func (l *liveRun) summarise() error {
	root := l.state.Root()
	l.run.Status = string(root.Status)
	l.run.Ended = time.Time{}
	if root.Status.Ended() {
		l.run.Ended = root.EndedAt
	}
	var f facts
	if len(l.run.State) > 0 {
		if err := json.Unmarshal(l.run.State, &f); err != nil {
			return fmt.Errorf("decoding the facts of run %s: %w", l.run.ID, err)
		}
	}
	f.Reason = root.Reason
	l.due = f.report(l.run)
	return l.setFacts(f)
}

func (l *liveRun) setFacts(f facts) (err error) {
	if l.run.State, err = json.Marshal(f); err != nil {
		return fmt.Errorf("encoding the facts of run %s: %w", l.run.ID, err)
	}
	return nil
}

// send turns commands into messages. A timer is an event that is due later. Steps are tracked before the manager has
// them, so that their events are recognised.
func send(tx *store.Tx, run *store.Run, commands []engine.Command) error {
	var messages []store.Message
	var tracked []store.Step
	for i := range commands {
		c := &commands[i]
		if c.Kind == engine.SetTimer {
			e := engine.Event{Kind: engine.TimerFired, Node: c.Node, Attempt: c.Attempt, Timer: c.Timer}
			m, err := eventMessage(run.Account, run.ID, string(c.Timer)+"/"+strconv.FormatInt(c.Due.UnixMilli(), 10), e)
			if err != nil {
				return err
			}
			m.Due = c.Due
			messages = append(messages, m)
			continue
		}
		data, err := json.Marshal(c)
		if err != nil {
			return fmt.Errorf("encoding the command %s of %s: %w", c.Kind, c.Node, err)
		}
		stage, attempt := c.Node, c.Attempt
		if c.Kind == engine.AbortStep {
			stage, attempt = c.Stage, c.StageAttempt
		}
		if c.Kind == engine.AppendSteps {
			id := stageID(run.ID, c.Node, c.Attempt)
			for _, step := range c.Steps {
				tracked = append(tracked, store.Step{Stage: id, ID: steps.ID(step), Node: step.Node, Attempt: max(step.Attempt, 1)})
			}
		}
		messages = append(messages, store.Message{
			Topic: topicCommands, Account: run.Account, Run: run.ID, Name: commandName(run.Account, run.ID, c), Data: data,
			Lane: strings.Join([]string{run.Account, run.ID, stage, strconv.Itoa(attempt)}, "/"),
		})
	}
	if err := tx.TrackSteps(run.Account, tracked); err != nil {
		return err
	}
	return tx.Send(messages...)
}

// commandName identifies a command among those that wait.
func commandName(account, run string, c *engine.Command) string {
	parts := []string{"command", account, run, string(c.Kind), c.Node, strconv.Itoa(c.Attempt)}
	for _, step := range c.Steps {
		parts = append(parts, step.Node, strconv.Itoa(step.Attempt))
	}
	return digest(parts)
}

// sendEvents sends events to a run.
func sendEvents(tx *store.Tx, account, run, detail string, events ...engine.Event) error {
	messages := make([]store.Message, 0, len(events))
	for _, e := range events {
		m, err := eventMessage(account, run, detail, e)
		if err != nil {
			return err
		}
		messages = append(messages, m)
	}
	return tx.Send(messages...)
}

// eventMessage returns the message of an event. Events with the same kind, node, attempt and detail are one
// while they wait.
func eventMessage(account, run, detail string, e engine.Event) (store.Message, error) {
	data, err := json.Marshal(e)
	if err != nil {
		return store.Message{}, fmt.Errorf("encoding the event %s of %s: %w", e.Kind, e.Node, err)
	}
	return store.Message{
		Topic: topicEvents, Account: account, Run: run, Data: data,
		Name: digest([]string{"event", account, run, string(e.Kind), e.Node, strconv.Itoa(e.Attempt), detail}),
	}, nil
}
