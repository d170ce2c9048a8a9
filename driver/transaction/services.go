package transaction

import (
	"context"
	"errors"
	"sync"

	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// services are the background steps that come with an init in an envelope.
type services struct {
	once     sync.Once
	statuses []stage.ServiceStatus // by once
}

// initWithServices opens a transaction and starts its services (PROTOCOL 3). One
// that does not start is told of, and fails nothing: whether the stage can do
// without it is the manager's to say.
func (m *Stages) initWithServices(ctx context.Context, req *task.Request[stage.VMInit]) (*stage.InitResponse, error) {
	in := req.Data.Init()
	r, err := m.init(ctx, &task.Request[stage.InitRequest]{Task: req.Task, Data: in})
	if err != nil || r.Status != stage.Success || len(req.Data.Services) == 0 {
		return r, err
	}
	ids := []string{in.TransactionID()}
	t, ok := m.find(ids)
	if !ok {
		return nil, m.refusal(ids)
	}
	t.services.once.Do(func() { t.services.statuses = m.startServices(ctx, req) }) // a repeated init waits, and starts none
	if ctx.Err() != nil {
		err := errors.Join(context.Cause(ctx), t.close(ctx)) // an aborted init cleans itself up (SPEC T3)
		return m.initAnswer(t, err), nil
	}
	r.Services = t.services.statuses
	return r, nil
}

// startServices starts all at once and returns when each has begun, and can be used
// where it says how that shows.
func (m *Stages) startServices(ctx context.Context, req *task.Request[stage.VMInit]) []stage.ServiceStatus {
	all := make([]stage.ServiceStatus, len(req.Data.Services))
	var wg sync.WaitGroup
	for i := range all {
		step := req.Data.Service(i)
		all[i] = stage.ServiceStatus{ID: step.ID, Name: step.Name, Image: step.Image, LogKey: step.LogKey, Status: stage.Running}
		wg.Go(func() {
			// A later process tells steps by their tasks, so each has one of its own.
			own := *req.Task
			own.ID += "/" + step.ID
			var r *stage.ExecuteResponse
			err := m.guard("service", func() (err error) {
				r, err = m.execute(task.NewContext(ctx, &own), &task.Request[stage.ExecuteRequest]{Task: &own, Data: step})
				return err
			})
			switch {
			case err != nil:
				all[i].Status, all[i].ErrorMessage = stage.ServiceError, err.Error()
			case r.Status != stage.Success:
				all[i].Status, all[i].ErrorMessage = stage.ServiceError, r.ErrorMessage
			}
		})
	}
	wg.Wait()
	return all
}
