package manager

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/internal/queue"
)

// rollout is the update of the delegates of an account to a version (rule G4). The core's lock guards it. Its fields
// are saved.
type rollout struct {
	Order    api.Upgrade                    `json:"order"` // as it was set
	Away     map[string]api.UpgradeDelegate `json:"away,omitempty"`
	Failed   []api.UpgradeDelegate          `json:"failed,omitempty"`
	Returned int                            `json:"returned,omitempty"`
}

// States of an update.
const (
	upgradeRunning = "running"
	upgradePaused  = "paused"
	upgradeStopped = "stopped"
)

// Bounds and defaults of updates.
const (
	defaultShare   = "10%"
	defaultReturn  = 30 * time.Minute
	maxReturn      = 7 * 24 * time.Hour
	maxFailedAway  = 1_000
	maxUpgradeNote = 1_000 // of a reason, in bytes
	// maxAway bounds the delegates that are away. Each takes memory.
	maxAway = 10_000
)

// askCommand is the call of a delegate: it asks for an upgrade, and reports the outcome of the last one.
type askCommand struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Host    string `json:"host,omitempty"`
	Version string `json:"version"`
	Failed  string `json:"failed,omitempty"` // the version to which the upgrade failed
	Reason  string `json:"reason,omitempty"`
}

// permission is the answer to a delegate.
type permission struct {
	Version string `json:"version,omitempty"`
	Granted bool   `json:"granted,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// set changes the update. Failures are forgotten, and delegates that are away stay so.
func (r *rollout) set(u api.Upgrade, at time.Time) {
	u.UpdatedAt = at
	if r.Order.Version != u.Version {
		r.Returned = 0
	}
	r.Order, r.Failed = u, nil
}

func (r *rollout) state() string {
	switch {
	case len(r.Failed) >= r.Order.MaxFailures:
		return upgradeStopped
	case r.Order.Paused:
		return upgradePaused
	}
	return upgradeRunning
}

// share returns how many of the delegates may be away at once.
func (r *rollout) share(alive int) int {
	if percent, ok := strings.CutSuffix(r.Order.Share, "%"); ok {
		n, _ := strconv.Atoi(percent) // checked when it was set
		return min(max(1, alive*n/100), maxAway)
	}
	n, _ := strconv.Atoi(r.Order.Share)
	return min(n, maxAway)
}

// expire turns the delegates that have been away too long into failures. It reports whether there was one.
func (r *rollout) expire(at time.Time) bool {
	within := time.Duration(r.Order.ReturnMS) * time.Millisecond
	var late []api.UpgradeDelegate
	for _, d := range r.Away {
		if at.Sub(d.At) > within {
			late = append(late, d)
		}
	}
	slices.SortFunc(late, func(a, b api.UpgradeDelegate) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.ID, b.ID)) })
	for _, d := range late {
		r.fail(d, fmt.Sprintf("it has not returned within %s", within))
	}
	return len(late) > 0
}

func (r *rollout) fail(d api.UpgradeDelegate, reason string) {
	delete(r.Away, d.ID)
	d.Reason = reason
	if len(r.Failed) < maxFailedAway {
		r.Failed = append(r.Failed, d)
	}
}

// ask executes the call of a delegate: it takes the outcome of the last permission, and gives a new one if the share
// permits that. It also reports whether the call changes the rollout.
func (r *rollout) ask(a *askCommand, alive int, at time.Time) (permission, bool) {
	changed := r.expire(at)
	if d, ok := r.Away[a.ID]; ok {
		switch {
		case a.Failed == d.To:
			r.fail(d, a.Reason)
			changed = true
		case a.Version == d.To:
			delete(r.Away, a.ID)
			r.Returned++
			changed = true
		case d.To == r.Order.Version && r.state() == upgradeRunning:
			return permission{Version: d.To, Granted: true}, changed // it did not get the answer
		default:
			delete(r.Away, a.ID) // it is here, and has not begun
			changed = true
		}
	}
	p := permission{Version: r.Order.Version}
	switch state := r.state(); {
	case a.Version == r.Order.Version:
	case a.Failed == r.Order.Version:
		p.Reason = "the upgrade has just failed"
	case state == upgradeStopped:
		p.Reason = fmt.Sprintf("the update is stopped after %d failures", len(r.Failed))
	case state == upgradePaused:
		p.Reason = "the update is paused"
	case slices.ContainsFunc(r.Failed, func(d api.UpgradeDelegate) bool { return d.ID == a.ID }):
		p.Reason = "the upgrade of this delegate has failed"
	case len(r.Away) >= r.share(alive):
		p.Reason = fmt.Sprintf("%d delegates are away, and %s may be", len(r.Away), r.Order.Share)
	default:
		p.Granted = true
		r.Away[a.ID] = api.UpgradeDelegate{ID: a.ID, Name: a.Name, Host: a.Host, From: a.Version, To: r.Order.Version, At: at}
		changed = true
	}
	return p, changed
}

// clone returns an independent copy.
func (r *rollout) clone() *rollout {
	c := *r
	c.Away, c.Failed = maps.Clone(r.Away), slices.Clone(r.Failed)
	return &c
}

// view returns the public form at a time.
func (r *rollout) view(at time.Time) api.Upgrade {
	now := r.clone()
	now.expire(at)
	u := now.Order
	u.State, u.Failed, u.Returned = now.state(), now.Failed, now.Returned
	u.Away = slices.SortedFunc(maps.Values(now.Away), func(a, b api.UpgradeDelegate) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.ID, b.ID)) })
	return u
}

// setUpgrade executes the command of an operator. A nil order ends the update.
func (c *core) setUpgrade(account string, u *api.Upgrade) error {
	r := c.rollouts[account]
	if u.Version == "" {
		if r == nil {
			return fmt.Errorf("the update of the delegates: %w", ErrNotFound)
		}
		delete(c.rollouts, account)
		return nil
	}
	if r == nil {
		r = &rollout{}
		c.rollouts[account] = r
	}
	if r.Away == nil {
		r.Away = map[string]api.UpgradeDelegate{}
	}
	r.set(*u, c.at)
	return nil
}

// ask executes the call of a delegate.
func (c *core) ask(account string, a *askCommand) permission {
	r := c.rollouts[account]
	if r == nil {
		return permission{}
	}
	if r.Away == nil { // a saved one without any
		r.Away = map[string]api.UpgradeDelegate{}
	}
	p, _ := r.ask(a, c.alive(account), c.at)
	return p
}

// alive returns the number of delegates that count for the share.
func (c *core) alive(account string) (n int) {
	for _, d := range c.queue.Delegates(account) {
		if d.State != queue.Gone {
			n++
		}
	}
	return n
}
