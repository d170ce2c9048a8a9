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
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// deliver applies events to their run and sends the commands that follow.
func (s *Service) deliver(ctx context.Context, messages []store.Message) error {
	key := runKey{messages[0].Account, messages[0].Run}
	var ended *store.Run
	err := s.store.Update(ctx, func(tx *store.Tx) error {
		ended = nil
		run, err := tx.Lock(key.account, key.id)
		if errors.Is(err, store.ErrNotFound) { // the run has expired
			return done(tx, messages)
		}
		if err != nil {
			return err
		}
		live, err := s.cache.load(tx, run)
		if err != nil {
			return err
		}
		if err := apply(tx, live, messages); err != nil {
			s.cache.drop(key) // its state has changed, and the database has not
			return err
		}
		if !run.Ended.IsZero() {
			ended = run
		}
		return nil
	})
	if err != nil {
		s.cache.drop(key)
		return err
	}
	s.announceChange(key)
	if ended != nil {
		s.cache.drop(key)
		s.cfg.Logger.Info().Str("account", key.account).Str("run", key.id).Str("pipeline", ended.Pipeline).Str("status", ended.Status).
			Msg("run ended")
	}
	return nil
}

func done(tx *store.Tx, messages []store.Message) error {
	for _, m := range messages {
		if err := tx.Done(m); err != nil {
			return err
		}
	}
	return nil
}

// apply applies the events of messages, and writes what changed.
func apply(tx *store.Tx, live *liveRun, messages []store.Message) error {
	changed := map[string]*engine.Node{}
	var order []string
	var commands []engine.Command
	for _, m := range messages {
		var e engine.Event
		if err := json.Unmarshal(m.Data, &e); err != nil {
			return fmt.Errorf("decoding an event: %w", err)
		}
		e.Time = time.Now().UTC()
		nodes, next, err := live.machine.Apply(live.state, e)
		var refused *engine.RefusedError
		if err != nil && !errors.As(err, &refused) { // an order may have become void on its way
			return fmt.Errorf("applying the event %s of %s: %w", e.Kind, e.Node, err)
		}
		for _, n := range nodes {
			if changed[n.Path] == nil {
				order = append(order, n.Path)
			}
			changed[n.Path] = n
		}
		commands = append(commands, next...)
	}
	if len(order) > 0 {
		nodes := make([]store.Node, 0, len(order))
		for _, path := range order {
			data, err := json.Marshal(changed[path])
			if err != nil {
				return fmt.Errorf("encoding node %s: %w", path, err)
			}
			nodes = append(nodes, store.Node{Path: path, Data: data})
		}
		live.summarise()
		if err := tx.Save(live.run, nodes); err != nil {
			return err
		}
	}
	if err := send(tx, live.run, commands); err != nil {
		return err
	}
	return done(tx, messages)
}

// summarise copies the status of the pipeline to the run.
func (l *liveRun) summarise() {
	root := l.state.Root()
	l.run.Status = string(root.Status)
	l.run.Ended = time.Time{}
	if root.Status.Ended() {
		l.run.Ended = root.EndedAt
	}
}

// send turns commands into messages. A timer is an event that is due later.
func send(tx *store.Tx, run *store.Run, commands []engine.Command) error {
	for i := range commands {
		c := &commands[i]
		if c.Kind == engine.SetTimer {
			e := engine.Event{Kind: engine.TimerFired, Node: c.Node, Attempt: c.Attempt, Timer: c.Timer}
			if err := sendEvent(tx, run.Account, run.ID, string(c.Timer)+"/"+strconv.FormatInt(c.Due.UnixMilli(), 10), e, c.Due); err != nil {
				return err
			}
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
		err = tx.Send(store.Message{
			Topic: topicCommands, Account: run.Account, Run: run.ID, Name: commandName(run, c), Data: data,
			Lane: strings.Join([]string{run.Account, run.ID, stage, strconv.Itoa(attempt)}, "/"),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// commandName identifies a command among those that wait.
func commandName(run *store.Run, c *engine.Command) string {
	parts := []string{"command", run.Account, run.ID, string(c.Kind), c.Node, strconv.Itoa(c.Attempt)}
	for _, step := range c.Steps {
		parts = append(parts, step.Node, strconv.Itoa(step.Attempt))
	}
	return digest(parts)
}

// sendEvent sends an event to a run. Events with the same kind, node, attempt and detail are one
// while they wait.
func sendEvent(tx *store.Tx, account, run, detail string, e engine.Event, due time.Time) error {
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encoding the event %s of %s: %w", e.Kind, e.Node, err)
	}
	return tx.Send(store.Message{
		Topic: topicEvents, Account: account, Run: run, Due: due, Data: data,
		Name: digest([]string{"event", account, run, string(e.Kind), e.Node, strconv.Itoa(e.Attempt), detail}),
	})
}
