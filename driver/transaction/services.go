package transaction

import (
	"context"
	"errors"
	"sync"

	"github.com/delegate-io/dlite/internal/envelope"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// services are the background steps that come with an init in an envelope.
type services struct {
	once     sync.Once
	statuses []stage.ServiceStatus // set by once
}

// initWithServices opens a transaction and starts its services (docs/protocol.md,
// section 3). A service that does not start is reported in the answer and fails
// nothing: the manager decides whether the stage needs it.
func (s *Stages) initWithServices(ctx context.Context, req *task.Request[envelope.Init]) (*stage.InitResponse, error) {
	in := req.Data.Init()
	r, err := s.init(ctx, &task.Request[stage.InitRequest]{Task: req.Task, Data: in})
	if err != nil || r.Status != stage.Success || len(req.Data.Services) == 0 {
		return r, err
	}
	ids := []string{in.TransactionID()}
	t, ok := s.find(ids)
	if !ok {
		return nil, s.refusal(ids)
	}
	t.services.once.Do(func() { t.services.statuses = s.startServices(ctx, req) }) // a repeated init waits and starts no service
	if ctx.Err() != nil {
		err := errors.Join(context.Cause(ctx), t.close(ctx)) // an aborted init is cleaned up (rule T3)
		return s.initAnswer(t, err), nil
	}
	r.Services = t.services.statuses
	return r, nil
}

// serviceError is the status of a service that failed to start.
const serviceError stage.Status = "ERROR"

// startServices starts all services at the same time. It returns when each has started and, if
// the service has a readiness check, is ready.
func (s *Stages) startServices(ctx context.Context, req *task.Request[envelope.Init]) []stage.ServiceStatus {
	all := make([]stage.ServiceStatus, len(req.Data.Services))
	var wg sync.WaitGroup
	for i := range all {
		step := req.Data.Service(i)
		all[i] = stage.ServiceStatus{ID: step.ID, Name: step.Name, Image: step.Image, LogKey: step.LogKey, Status: stage.Running}
		wg.Go(func() {
			// A later process identifies steps by their tasks, so each service has its own.
			own := *req.Task
			own.ID += "/" + step.ID
			var r *stage.ExecuteResponse
			err := s.guard("service", func() (err error) {
				r, err = s.execute(task.NewContext(ctx, &own), &task.Request[stage.ExecuteRequest]{Task: &own, Data: step})
				return err
			})
			switch {
			case err != nil:
				all[i].Status, all[i].ErrorMessage = serviceError, err.Error()
			case r.Status != stage.Success:
				all[i].Status, all[i].ErrorMessage = serviceError, r.ErrorMessage
			}
		})
	}
	wg.Wait()
	return all
}
