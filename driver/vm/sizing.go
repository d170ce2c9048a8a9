package vm

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Window raises the minimum of a pool at certain times of the week.
type Window struct {
	// Days are the days on which the window begins: names of three letters separated by commas, and ranges, such as
	// "mon-fri" or "sat,sun". Empty means every day.
	Days string
	// From and To are times of the day, such as "07:30". To may be "24:00". If it is not after From, the window ends on
	// the next day. They are times of the clock in Zone: when the clock changes, the window follows it.
	From, To string
	// Zone is the name of a time zone, such as "Europe/Berlin". Empty means UTC. The program needs the database of time
	// zones, of the system or of the package time/tzdata.
	Zone string
	// Min is the minimum during the window. Of several windows, and of the pool's own minimum, the largest counts.
	Min int
}

// window is a checked Window.
type window struct {
	days     [7]bool
	from, to int // minutes of the day
	zone     *time.Location
	min      int
}

var weekdays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

func (w *Window) parse() (out window, err error) {
	out.min = w.Min
	if out.from, err = minuteOfDay(w.From); err != nil {
		return out, fmt.Errorf("from: %w", err)
	}
	if out.to, err = minuteOfDay(w.To); err != nil {
		return out, fmt.Errorf("to: %w", err)
	}
	if out.from == 24*60 {
		return out, errors.New("from: 24:00 is the end of a day: use 00:00")
	}
	if out.zone, err = time.LoadLocation(w.Zone); err != nil {
		return out, fmt.Errorf("zone: %w: it must be a name such as Europe/Berlin", err)
	}
	if strings.TrimSpace(w.Days) == "" {
		out.days = [7]bool{true, true, true, true, true, true, true}
		return out, nil
	}
	for part := range strings.SplitSeq(w.Days, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, ok := weekday(first)
		to, ok2 := from, ok
		if isRange {
			to, ok2 = weekday(last)
		}
		if !ok || !ok2 {
			return out, fmt.Errorf("days: %q is neither a day nor a range of days: use sun, mon, tue, wed, thu, fri and sat", strings.TrimSpace(part))
		}
		for d := from; ; d = (d + 1) % 7 {
			out.days[d] = true
			if d == to {
				break
			}
		}
	}
	return out, nil
}

func weekday(name string) (int, bool) {
	for i, known := range weekdays {
		if strings.EqualFold(strings.TrimSpace(name), known) {
			return i, true
		}
	}
	return 0, false
}

func minuteOfDay(text string) (int, error) {
	if text == "24:00" {
		return 24 * 60, nil
	}
	t, err := time.Parse("15:04", text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a time of the day such as 07:30", text)
	}
	return t.Hour()*60 + t.Minute(), nil
}

// contains reports whether a moment is in the window.
func (w *window) contains(at time.Time) bool {
	at = at.In(w.zone)
	minute, today := at.Hour()*60+at.Minute(), int(at.Weekday())
	if w.from < w.to {
		return w.days[today] && minute >= w.from && minute < w.to
	}
	return w.days[today] && minute >= w.from || w.days[(today+6)%7] && minute < w.to
}

// parseWindows checks the windows of a pool.
func (c *PoolConfig) parseWindows() ([]window, error) {
	var all []window
	for i := range c.Schedule {
		w, err := c.Schedule[i].parse()
		if err != nil {
			return nil, fmt.Errorf("schedule %d: %w", i+1, err)
		}
		if w.min < 0 || w.min > c.Max {
			return nil, fmt.Errorf("schedule %d: the minimum is %d: it must be from 0 to the maximum, %d", i+1, w.min, c.Max)
		}
		all = append(all, w)
	}
	return all, nil
}

const (
	// demandLife is how long a report of waiting stages counts. The next one should come before.
	demandLife = 2 * time.Minute
	// shrinkAfter is the default of PoolConfig.ShrinkAfter for pools whose size changes.
	shrinkAfter = 10 * time.Minute
)

// SetWaiting reports how many stages wait for a machine of the pool elsewhere, such as in the queue of a manager. The pool
// creates machines for them in advance, as far as its maximum permits. A report counts for two minutes.
func (p *Pool) SetWaiting(stages int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.demand, p.demandUntil = min(max(stages, 0), p.cfg.Max), time.Now().Add(demandLife)
	p.signal()
}

// minimum returns how many warm machines the settings and the waiting stages ask for. The caller holds mu.
func (p *Pool) minimum(s *schedule) int {
	n := p.cfg.Min
	for i := range p.windows {
		if p.windows[i].contains(s.now) {
			n = max(n, p.windows[i].min)
		}
	}
	if len(p.windows) > 0 {
		s.due(s.now.Truncate(time.Minute).Add(time.Minute)) // all zones change at full minutes
	}
	if p.demand > 0 && !s.due(p.demandUntil) {
		n = max(n, p.demand)
	}
	return min(n, p.cfg.Max)
}

// neededNow returns the minimum for the metrics.
func (p *Pool) neededNow() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.minimum(&schedule{now: time.Now(), next: time.Hour})
}

// shrink destroys warm machines that were not needed for ShrinkAfter, the oldest ones first. The caller holds mu.
func (p *Pool) shrink(s *schedule, needed int) {
	spare := 0
	for _, m := range p.machines {
		if m.phase == warm {
			spare++
		}
	}
	if p.cfg.ShrinkAfter <= 0 || spare <= needed {
		p.spareSince = time.Time{}
		return
	}
	if p.spareSince.IsZero() {
		p.spareSince, p.neededSince = s.now, needed
	}
	p.neededSince = max(p.neededSince, needed)
	if !s.due(p.spareSince.Add(p.cfg.ShrinkAfter)) {
		return
	}
	for ; spare > p.neededSince; spare-- {
		var oldest *machine
		for _, m := range p.machines {
			if m.phase == warm && (oldest == nil || m.rec.Born.Before(oldest.rec.Born)) {
				oldest = m
			}
		}
		p.cfg.Log.Debug().Str("pool", p.cfg.Name).Str("machine", oldest.id).Msg("a warm machine is not needed: destroying it")
		p.end(oldest, errors.New("it is not needed"))
	}
	p.spareSince = time.Time{}
	p.signal()
}
