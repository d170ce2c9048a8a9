package transaction

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// defaultReservation is how long something stays reserved where the task does not
// say.
const defaultReservation = 2 * time.Minute

// reserve sets apart what a stage's init will need, where the driver is a
// [driver.Reserver]; any other one has nothing that could run out. It opens no
// transaction and takes no slot (SPEC Q1). A driver that fails is an answer with
// status FAILURE.
func (m *Stages) reserve(ctx context.Context, req *task.Request[stage.VMCapacity]) (*stage.CapacityResponse, error) {
	in := &req.Data.Reservation
	if in.ID == "" {
		return nil, task.BadRequest(errors.New("the reservation names no stage: id is needed"))
	}
	if err := m.reservable(in.ID); err != nil {
		return nil, err
	}
	r := &stage.CapacityResponse{
		Status: stage.Success, InfraType: m.driver.Infra(), Reservation: &stage.CapacityReservation{StageID: in.ID},
		DelegateMeta: stage.DelegateMeta{ID: m.delegate, HostName: m.delegate},
	}
	reserver, ok := m.driver.(driver.Reserver)
	if _, begun := m.find([]string{in.ID}); begun || !ok {
		return r, nil
	}
	limit := task.Millis(in.Timeout).Duration()
	if limit <= 0 {
		limit = defaultReservation
	}
	data := stage.InitRequest{GroupID: in.ID, Network: stage.Network{}.InPool(in.PoolID)}
	env := m.environment(in.ID, &task.Request[stage.InitRequest]{Task: req.Task, Data: data})
	var got *driver.Reservation
	err := m.guard("reserve", func() (err error) {
		got, err = reserver.Reserve(ctx, &env, limit)
		return err
	})
	// An init or a cleanup that has come meanwhile did not find it.
	late := m.reservable(in.ID)
	if _, begun := m.find([]string{in.ID}); begun || late != nil {
		m.giveBack(ctx, in.ID)
		return r, late
	}
	if err != nil {
		r.Status, r.ErrorMessage, r.Reservation = status(err), err.Error(), nil
		return r, nil
	}
	r.Reservation.PoolName, r.Reservation.InstanceID, r.Reservation.Place = got.Pool, got.Machine, got.Place
	r.Reservation.ExpiresAt = got.Until.UnixMilli()
	return r, nil
}

// reservable is an error when no init of that id would be taken.
func (m *Stages) reservable(id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.closed[id]; ok && m.open[id] == nil {
		return &task.Error{Status: 409, Err: fmt.Errorf("transaction %s has been cleaned up already", id)}
	}
	if m.shutdown {
		return task.Errorf(task.RetryOnOtherDelegate, "this delegate (%s) is shutting down", m.delegate)
	}
	return nil
}

// giveBack ends a reservation where nobody waits to be told that it cannot.
func (m *Stages) giveBack(ctx context.Context, id string) {
	if err := m.unreserve(ctx, id); err != nil {
		m.log.Warn().Err(err).Str(logger.FieldTransaction, id).Msg("could not give back a reservation; it ends with its time")
	}
}

// unreserve gives back what no init has used.
func (m *Stages) unreserve(ctx context.Context, ids ...string) error {
	reserver, ok := m.driver.(driver.Reserver)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.cleanup)
	defer cancel()
	var errs []error
	for _, id := range ids {
		errs = append(errs, m.guard("unreserve", func() error { return reserver.Unreserve(ctx, id) }))
	}
	return errors.Join(errs...)
}
