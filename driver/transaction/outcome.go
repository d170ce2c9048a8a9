package transaction

import (
	"cmp"
	"context"

	"github.com/delegate-io/dlite/internal/envelope"
	"github.com/delegate-io/dlite/internal/outcome"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// The handlers report the results of their tasks. The answer of a step that failed has the
// code OK, so this is the only way for logs and metrics to count the failure.

func (s *Stages) handleInit(ctx context.Context, req *task.Request[stage.InitRequest]) (*stage.InitResponse, error) {
	r, err := s.init(ctx, req)
	reportInit(ctx, req.Data.TransactionID(), r)
	return r, err
}

func (s *Stages) handleVMInit(ctx context.Context, req *task.Request[envelope.Init]) (*stage.InitResponse, error) {
	r, err := s.initWithServices(ctx, req)
	in := req.Data.Init()
	reportInit(ctx, in.TransactionID(), r)
	return r, err
}

func reportInit(ctx context.Context, id string, r *stage.InitResponse) {
	o := outcome.Outcome{Transaction: id, Stage: id}
	if r != nil {
		o.Status = string(r.Status)
	}
	outcome.Report(ctx, o)
}

func (s *Stages) handleExecute(ctx context.Context, req *task.Request[stage.ExecuteRequest]) (*stage.ExecuteResponse, error) {
	id := firstID(req.Data.TransactionIDs())
	o := outcome.Outcome{Transaction: id, Stage: cmp.Or(req.Data.StageRuntimeID, id), Step: req.Data.ID}
	r, err := s.execute(ctx, req)
	if r != nil {
		o.Status, o.ExitCode = string(r.Status), r.ExitCode
	}
	outcome.Report(ctx, o)
	return r, err
}

func (s *Stages) handleCleanup(ctx context.Context, req *task.Request[stage.CleanupRequest]) (*stage.CleanupResponse, error) {
	id := firstID(req.Data.TransactionIDs())
	o := outcome.Outcome{Transaction: id, Stage: id}
	r, err := s.cleanUp(ctx, req)
	if r != nil {
		o.Status = string(r.Status)
	}
	outcome.Report(ctx, o)
	return r, err
}

func firstID(ids []string) string {
	if len(ids) == 0 {
		return ""
	}
	return ids[0]
}
