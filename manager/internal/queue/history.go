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

// noting returns a function that notes how the delegate has changed since the call of noting.
func (d *delegate) noting(now instant) func() {
	isNew, lost, drains, version := d.Seen == 0, d.Lost, d.info.Draining || d.Drained, d.info.Version
	return func() {
		for _, c := range []struct {
			happened bool
			kind     string
		}{
			{isNew, changeRegistered},
			{!lost && d.Lost, changeLost},
			{lost && !d.Lost, changeReturned},
			{!isNew && version != d.info.Version, changeUpgraded},
			{!drains && (d.info.Draining || d.Drained), changeDrained},
			{drains && !d.info.Draining && !d.Drained, changeResumed},
		} {
			if c.happened {
				d.History = append(d.History[max(0, len(d.History)-maxHistory+1):], change{now, c.kind, d.info.Version})
			}
		}
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
