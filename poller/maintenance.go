package poller

import "errors"

// SetMaintenance begins or ends the maintenance of the delegate. With a reason the delegate
// takes no new stages, and tells the manager so with a heartbeat at once: for the manager it
// drains. Open stages and standalone tasks continue. An empty reason ends the maintenance.
// SetMaintenance does not wait for the open stages. It may be called at any time, also before
// Poll, and its effect survives the end of Poll. [Health] and the log have the reason.
func (p *Poller) SetMaintenance(reason string) {
	p.mu.Lock()
	before, s := p.maintenance, p.session
	p.maintenance = reason
	p.mu.Unlock()
	if before == reason {
		return
	}
	if reason == "" {
		p.log.Info().Msg("the maintenance has ended: taking new stages")
	} else {
		p.log.Info().Str("reason", reason).Msg("in maintenance: taking no new stages")
	}
	if s != nil {
		wakeUp(s.beatNow)
		s.table.reconsider()
		if s.perpetuals != nil {
			s.perpetuals.reconsider()
		}
	}
}

// maintained returns the reason of the maintenance, or nil.
func (p *Poller) maintained() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.maintenance == "" {
		return nil
	}
	return errors.New(p.maintenance)
}

// takesNoStages reports whether the manager must send no new stages.
func (s *session) takesNoStages() bool { return s.isDraining() || s.maintained() != nil }
