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

// registration describes the delegate, under an id that it has already or "".
func (p *Poller) registration(id string, draining bool) *client.Registration {
	return &client.Registration{
		DelegateID: id, DelegateName: p.name, DelegateType: p.kind, Version: p.version,
		HostName: p.host, IP: p.ip, Connected: true, LastHeartbeat: time.Now().UnixMilli(),
		SupportedTaskTypes: p.router.Types(), Tags: slices.Clone(p.tags), Draining: draining,
	}
}

func (p *Poller) register(ctx context.Context, id string, draining bool) (*client.Delegate, error) {
	d, err := p.client.Register(ctx, p.registration(id, draining))
	if err != nil {
		return nil, fmt.Errorf("registering the delegate %q: %w", p.name, err)
	}
	p.pulse.contact.now()
	p.log.Info().Str("delegate_id", d.ID).Str("name", p.name).Strs("tags", p.tags).
		Strs("task_types", p.router.Types()).Int("max_stages", p.slots.Max()).Msg("registered")
	if p.slots.Max() > 0 {
		if err := p.client.ReportCapacity(ctx, d.ID, p.slots.Max()); err != nil {
			p.log.Warn().Err(err).Msg("the manager does not know our capacity and may send more stages than fit")
		}
	}
	return d, nil
}

// registerAgain makes the delegate known to a manager that does not know it any
// more, with back-off, for as long as polling goes on (SPEC C4). The back-off
// goes on from one loss to the next when they come quickly: a manager may take
// the registration and refuse the delegate all the same.
func (s *session) registerAgain(why error) {
	s.log.Warn().Err(why).Msg("the manager does not know this delegate: registering again")
	s.counters.registrations.Add(1)
	if s.reregister == (backOff{}) || time.Since(s.registeredAt) > 2*longestPause {
		s.reregister = newBackOff(shortestPause, longestPause)
	}
	for s.reregister.pause(s.polling) {
		s.pulse.poll.now()
		d, err := s.register(s.polling, s.delegateID(), s.isDraining())
		if err == nil {
			s.registeredAt = time.Now()
			s.id.Store(&d.ID)
			s.lost.clear()
			if s.state != nil {
				if err := s.state.setID(d.ID); err != nil {
					s.log.Warn().Err(err).Msg("a restarted delegate will be a new one")
				}
			}
			return
		}
		if s.polling.Err() == nil {
			s.log.Warn().Err(err).Msg("could not register again")
		}
	}
}

// isLost says whether an error of a delegate's call means that the manager does
// not know the delegate.
func isLost(err error) bool {
	return errors.Is(err, client.ErrUnauthorized) || errors.Is(err, client.ErrGone)
}

// lostSignal carries the news that the manager does not know the delegate any
// more, from whoever hears it to the poll loop, which registers again.
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

// interrupt makes a report cancel the poll that begins now, or has to.
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

// reason is why the delegate is lost, nil while it is not.
func (l *lostSignal) reason() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}
