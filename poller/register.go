package poller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/delegate-io/dlite/client"
)

// registration describes the delegate under its id, or "" before it has one.
func (p *Poller) registration(id string, draining bool) *client.Registration {
	return &client.Registration{
		DelegateID: id, DelegateName: p.name, DelegateType: p.self.DelegateType, Version: p.self.Version,
		HostName: p.self.HostName, IP: p.self.IP, Connected: true, LastHeartbeat: time.Now().UnixMilli(),
		SupportedTaskTypes: p.router.Types(), Tags: slices.Clone(p.tags), Draining: draining,
	}
}

func (p *Poller) register(ctx context.Context, id string, draining bool) (*client.Delegate, error) {
	d, err := p.client.Register(ctx, p.registration(id, draining))
	if err != nil {
		return nil, fmt.Errorf("registering the delegate %q: %w", p.name, err)
	}
	d.Host, d.IP = p.self.HostName, p.self.IP
	p.turns.contact.now()
	p.log.Info().Str("delegate_id", d.ID).Str("name", p.name).Strs("tags", p.tags).
		Strs("task_types", p.router.Types()).Int("max_stages", p.slots.Max()).Msg("registered")
	if p.slots.Max() > 0 {
		if err := p.client.ReportCapacity(ctx, d.ID, p.slots.Max()); err != nil {
			p.log.Warn().Err(err).Msg("the manager rejected the capacity report and may send more stages than fit")
		}
	}
	return d, nil
}

// registerAgain registers with a manager that does not know the delegate any more.
// It retries with back-off until polling ends (rule C4). If losses follow each
// other quickly the back-off continues: a manager may accept the registration and
// still refuse the delegate.
func (s *session) registerAgain(why error) {
	s.log.Warn().Err(why).Msg("the manager does not know this delegate: registering again")
	s.counters.registrations.Add(1)
	if s.reregister == (backOff{}) || time.Since(s.registeredAt) > 2*longestPause {
		s.reregister = newBackOff(shortestPause, longestPause)
	}
	for s.reregister.pause(s.polling) {
		s.turns.poll.now()
		d, err := s.register(s.polling, s.delegateID(), s.takesNoStages())
		if err == nil {
			s.registeredAt = time.Now()
			s.id.Store(&d.ID)
			s.lost.clear()
			if s.state != nil {
				if err := s.state.setID(d.ID); err != nil {
					s.log.Warn().Err(err).Msg("a restarted delegate will get a new id: this one cannot be stored")
				}
			}
			return
		}
		if s.polling.Err() == nil {
			s.log.Warn().Err(err).Msg("cannot register again")
		}
	}
}

// isLost reports whether the error of a call means that the manager does not know
// the delegate.
func isLost(err error) bool {
	return errors.Is(err, client.ErrUnauthorized) || errors.Is(err, client.ErrGone)
}

// lostSignal signals that the manager does not know the delegate any more. The poll
// loop then registers again.
type lostSignal struct {
	mu     sync.Mutex
	err    error
	cancel context.CancelFunc // of the poll under way
}

func (l *lostSignal) report(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
	if l.cancel != nil {
		l.cancel()
	}
}

// interrupt makes a report cancel the poll that begins now. An earlier report
// cancels it at once.
func (l *lostSignal) interrupt(cancel context.CancelFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel = cancel
	if l.err != nil {
		cancel()
	}
}

func (l *lostSignal) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = nil
}

// reason returns why the delegate is lost, nil if it is not.
func (l *lostSignal) reason() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}
