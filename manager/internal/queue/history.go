package queue

import "time"

// Change is a change of a delegate. Version is its version after the change.
type Change struct {
	At      time.Time
	Kind    string
	Version string
}

// The kinds of changes. Upgraded means that the delegate reports another version than before.
const (
	changeRegistered = "registered"
	changeLost       = "lost"
	changeReturned   = "returned"
	changeDrained    = "drained"
	changeResumed    = "resumed"
	changeUpgraded   = "upgraded"
)

// Refusal is a load that made a delegate refuse a stage, in percent.
type Refusal struct {
	Resource string `json:"resource"`
	Load     int    `json:"load"`
	Limit    int    `json:"limit"`
}

// maxHistory is the number of newest changes of a delegate that are kept.
const maxHistory = 20

// change is a Change in the saved state.
type change struct {
	At      instant `json:"at"`
	Kind    string  `json:"kind"`
	Version string  `json:"version,omitempty"`
}

// refusal is a Refusal with the time of the report.
type refusal struct {
	Refusal

	At instant `json:"at"`
}

// note adds a change to the history.
func (d *delegate) note(now instant, kind string) {
	d.History = append(d.History[max(0, len(d.History)-maxHistory+1):], change{now, kind, d.info.Version})
}

func (d *delegate) draining() bool { return d.info.Draining || d.Drained }

// noteDrain notes the begin or the end of a drain since before.
func (d *delegate) noteDrain(now instant, before bool) {
	switch {
	case !before && d.draining():
		d.note(now, changeDrained)
	case before && !d.draining():
		d.note(now, changeResumed)
	}
}

// history returns the newest changes, the oldest in front.
func (d *delegate) history() []Change {
	out := make([]Change, 0, len(d.History))
	for _, c := range d.History {
		out = append(out, Change{At: c.At.time(), Kind: c.Kind, Version: c.Version})
	}
	return out
}
