package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/engine"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// giveUp makes a message a dead letter, and ends its run as ERRORED: without the message, the run
// would wait for ever.
func (s *Service) giveUp(ctx context.Context, m store.Message, problem error) error {
	err := s.edit(ctx, runKey{m.Account, m.Run}, func(tx *store.Tx, run *store.Run) (*liveRun, error) {
		if err := tx.Bury(m, problem); err != nil {
			return nil, err
		}
		if !run.Ended.IsZero() {
			return nil, nil
		}
		return nil, endBroken(tx, run, problem.Error())
	})
	if errors.Is(err, ErrNotFound) { // the run has expired
		return s.store.Update(ctx, func(tx *store.Tx) error { return tx.Done(m) })
	}
	return err
}

// endBroken ends a run without the engine, which may not be able to read it. The stages that
// are open are aborted.
func endBroken(tx *store.Tx, run *store.Run, reason string) error {
	rows, err := tx.Nodes(run, 0)
	if err != nil {
		return err
	}
	now := time.Now().UTC()
	var changed []store.Node
	var aborts []engine.Command
	for _, row := range rows {
		var n engine.Node
		if json.Unmarshal(row.Data, &n) != nil || n.Status.Ended() || n.Status == engine.NotStarted {
			continue
		}
		if n.Kind == engine.StageNode && n.Open {
			aborts = append(aborts, engine.Command{Kind: engine.AbortStage, Node: n.Path, Attempt: n.Attempt, Reason: reason})
		}
		n.Status, n.Reason, n.EndedAt, n.Open = engine.Errored, reason, now, false
		data, err := json.Marshal(&n)
		if err != nil {
			return fmt.Errorf("encoding node %s: %w", n.Path, err)
		}
		changed = append(changed, store.Node{Path: n.Path, Data: data})
	}
	var f facts
	_ = json.Unmarshal(run.State, &f) // a list then shows the reason only
	f.Reason = reason
	live := liveRun{run: run}
	run.Status, run.Ended = string(engine.Errored), now
	live.due = f.report(run)
	if err := live.setFacts(f); err != nil {
		return err
	}
	if err := tx.Save(run, changed); err != nil {
		return err
	}
	if err := live.queueStatus(tx); err != nil {
		return err
	}
	return send(tx, run, aborts)
}

// undecoded returns the API's form of a run whose definition this version cannot read: its nodes
// in the order of their paths.
func undecoded(row *store.Run, nodes []store.Node) api.Run {
	run := summary(row)
	for _, data := range nodes {
		n := &engine.Node{}
		if json.Unmarshal(data.Data, n) != nil {
			n = &engine.Node{Path: data.Path, Status: engine.Errored, Reason: "the node cannot be read by this version of the service"}
		}
		run.Nodes = append(run.Nodes, nodeOf(run.ID, n))
	}
	return run
}
