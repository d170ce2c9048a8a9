package transaction

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/envelope"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// defaultReservation is the duration of a reservation if the task has none.
const defaultReservation = 2 * time.Minute

// reserve reserves the resources of a stage's init, if the driver is a
// [driver.Reserver]; other drivers have nothing to reserve. It opens no
// transaction and takes no slot (rule Q1). The answer of a driver that fails has
// status FAILURE.
func (s *Stages) reserve(ctx context.Context, req *task.Request[envelope.Capacity]) (*envelope.CapacityResponse, error) {
	in := &req.Data.Reservation
	if in.ID == "" {
		return nil, task.BadRequest(errors.New("the reservation names no stage: id is needed"))
	}
	if err := s.checkReservable(in.ID); err != nil {
		return nil, err
	}
	r := &envelope.CapacityResponse{
		Status: stage.Success, InfraType: s.driver.Infra(), Reservation: &envelope.Reservation{StageID: in.ID},
		DelegateMeta: stage.DelegateMeta{ID: s.delegate, HostName: s.delegate},
	}
	reserver, ok := s.driver.(driver.Reserver)
	if _, begun := s.find([]string{in.ID}); begun || !ok {
		return r, nil
	}
	limit := task.Millis(in.Timeout).Duration()
	if limit <= 0 {
		limit = defaultReservation
	}
	data := stage.InitRequest{GroupID: in.ID, Network: stage.Network{}.InPool(in.PoolID)}
	env := s.environment(in.ID, &task.Request[stage.InitRequest]{Task: req.Task, Data: data})
	var got *driver.Reservation
	err := s.guard("reserve", func() (err error) {
		got, err = reserver.Reserve(ctx, &env, limit)
		return err
	})
	// An init or cleanup that came meanwhile did not find the reservation.
	late := s.checkReservable(in.ID)
	if _, begun := s.find([]string{in.ID}); begun || late != nil {
		s.releaseReservation(ctx, in.ID)
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

// checkReservable returns an error if an init with that id would be refused.
func (s *Stages) checkReservable(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.closed[id]; ok && s.open[id] == nil {
		return &task.Error{Status: 409, Err: fmt.Errorf("transaction %s has been cleaned up already", id)}
	}
	if s.shutdown {
		return task.Errorf(task.RetryOnOtherDelegate, "this delegate (%s) is shutting down", s.delegate)
	}
	return nil
}

// releaseReservation ends a reservation and logs a failure.
func (s *Stages) releaseReservation(ctx context.Context, id string) {
	if err := s.unreserve(ctx, id); err != nil {
		s.log.Warn().Err(err).Str("transaction", id).Msg("cannot release a reservation: it ends after its time")
	}
}

// unreserve ends reservations that no init has used.
func (s *Stages) unreserve(ctx context.Context, ids ...string) error {
	reserver, ok := s.driver.(driver.Reserver)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	var errs []error
	for _, id := range ids {
		errs = append(errs, s.guard("unreserve", func() error { return reserver.Unreserve(ctx, id) }))
	}
	return errors.Join(errs...)
}
