package service

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	// tick is how often a program reports to systemd while its state may change soon.
	tick = 100 * time.Millisecond
	// steadyTick is how often it reports after its start.
	steadyTick = time.Second
	// extension is how long systemd waits for the next message of a program that drains.
	extension = time.Minute
	// maxMessage limits the text that systemctl shows.
	maxMessage = 200
)

// notifier sends messages to systemd by the protocol of sd_notify. Without systemd it does nothing.
type notifier struct {
	socket   string
	watchdog time.Duration // 0 without a watchdog
}

// newNotifier reads the variables that systemd sets.
func newNotifier(env func(string) string) notifier {
	n := notifier{socket: env("NOTIFY_SOCKET")}
	if strings.HasPrefix(n.socket, "@") {
		n.socket = "\x00" + n.socket[1:] // in the abstract namespace
	}
	us, err := strconv.ParseInt(env("WATCHDOG_USEC"), 10, 64)
	if pid := env("WATCHDOG_PID"); err == nil && us > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		n.watchdog = time.Duration(us) * time.Microsecond
	}
	return n
}

func (n notifier) active() bool { return n.socket != "" }

// send sends one message with an assignment a line. systemd answers nothing, and a program cannot mend a failure.
func (n notifier) send(lines ...string) {
	if !n.active() {
		return
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return
	}
	defer c.Close() //nolint:errcheck // the message has been sent
	_ = c.SetWriteDeadline(time.Now().Add(readTimeout))
	_, _ = c.Write([]byte(strings.Join(lines, "\n")))
}

// report tells systemd the state of the program until ctx ends.
func (h *Host) report(ctx context.Context) {
	var last string
	ready, every := false, tick
	pings := newPings(h.notify.watchdog)
	var since time.Time // of the readiness; zero when the count of starts is gone
	worked := time.Now()
	for {
		s := h.status()
		var lines []string
		if text := describe(s); text != last {
			last = text
			lines = append(lines, "STATUS="+text)
		}
		switch {
		case s.State == Draining:
			// Each message gives the program more time, also beyond TimeoutStopSec of the unit.
			lines = append(lines, "STOPPING=1")
			if s.works() {
				worked = time.Now()
			}
			if time.Since(worked) <= h.cfg.Linger || s.works() {
				lines = append(lines, fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", extension.Microseconds()))
			}
			every = min(steadyTick, pings.every)
		case s.State == Running && !ready:
			ready, every, since = true, min(steadyTick, pings.every), time.Now()
			h.worked.Store(true)
			lines = append(lines, "READY=1")
		}
		if !since.IsZero() && time.Since(since) > settled {
			since = time.Time{}
			h.forgetStarts()
		}
		if pings.due(time.Now()) {
			if err := h.alive(ctx); err == nil {
				lines = append(lines, "WATCHDOG=1")
			} else {
				h.cfg.Log.Error().Err(err).Msg("the watchdog of systemd gets no message, and will restart the program")
			}
		}
		if len(lines) > 0 {
			h.notify.send(lines...)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
	}
}

// works reports whether a program that drains has work. A manager only ends its calls.
func (s Status) works() bool {
	if s.Delegate == nil {
		return false
	}
	for _, n := range s.Delegate.Tasks {
		if n > 0 {
			return true
		}
	}
	return s.Delegate.Stages > 0
}

func (h *Host) alive(ctx context.Context) error {
	if h.cfg.Alive == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return h.cfg.Alive(ctx)
}

// pings spaces the messages to the watchdog.
type pings struct {
	every time.Duration
	last  time.Time
	on    bool
}

// newPings sends three messages in each period of the watchdog.
func newPings(watchdog time.Duration) *pings {
	if watchdog <= 0 {
		return &pings{every: steadyTick}
	}
	return &pings{every: watchdog / 3, on: true}
}

func (p *pings) due(now time.Time) bool {
	if !p.on || now.Sub(p.last) < p.every {
		return false
	}
	p.last = now
	return true
}

// describe returns the line that systemctl status shows.
func describe(s Status) string {
	text := string(s.State)
	if d := s.Delegate; d != nil && s.State != Starting {
		text += fmt.Sprintf(": %d stages", d.Stages)
		if d.SlotsMax > 0 {
			text += fmt.Sprintf(", %d of %d slots used", d.SlotsUsed, d.SlotsMax)
		}
	}
	if s.Message != "" {
		text += ": " + s.Message
	}
	text = strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, text)
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + "..."
	}
	return text
}
