package manager

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delegate-io/dlite/manager/internal/queue"
	"github.com/delegate-io/dlite/task"
)

// Retry says when a stage that has ended badly is run again, as a whole: in its old
// place in the queue, and on another delegate if there is one. A single task is
// submitted again.
type Retry struct {
	// MaxAttempts counts the first one too, at most 100. 0 and 1 are no retry.
	MaxAttempts int `json:"max_attempts"`
	// On are the ends after which it is run again: "lost", its delegate was;
	// "timeout"; "failure", which is every other end that is no success and no abort.
	// Empty is lost alone.
	On []string `json:"on,omitempty"`
	// Backoff is the time before the second attempt; it doubles for each one that
	// follows, up to MaxBackoff. 0 are 1 second and 5 minutes.
	Backoff    task.Millis `json:"backoff_ms,omitempty"`
	MaxBackoff task.Millis `json:"max_backoff_ms,omitempty"`
}

// The values of [Retry.On].
const (
	OnLost    = "lost"
	OnTimeout = "timeout"
	OnFailure = "failure"
)

const maxAttempts = 100

// complete checks a policy and sets what it leaves out.
func (r *Retry) complete() error {
	if r.MaxAttempts < 0 || r.MaxAttempts > maxAttempts {
		return fmt.Errorf("%w: retry.max_attempts is %d; it may be 1 to %d", ErrInvalid, r.MaxAttempts, maxAttempts)
	}
	if r.Backoff < 0 || r.MaxBackoff < 0 {
		return fmt.Errorf("%w: a back-off of retry is negative", ErrInvalid)
	}
	if len(r.On) == 0 {
		r.On = []string{OnLost}
	}
	for _, on := range r.On {
		if !slices.Contains([]string{OnLost, OnTimeout, OnFailure}, on) {
			return fmt.Errorf("%w: retry.on has %q; it may have lost, timeout and failure", ErrInvalid, on)
		}
	}
	r.Backoff, r.MaxBackoff = cmp.Or(r.Backoff, 1000), cmp.Or(r.MaxBackoff, 5*60*1000)
	return nil
}

// wait is the time before an attempt, the second is 2.
func (r *Retry) wait(attempt int) time.Duration {
	d := r.Backoff.Duration()
	for range attempt - 2 {
		if d *= 2; d >= r.MaxBackoff.Duration() {
			break
		}
	}
	return min(d, r.MaxBackoff.Duration())
}

// Attempt is a run of a stage that was followed by another one.
type Attempt struct {
	Status     Status    `json:"status"`
	Error      string    `json:"error_msg,omitempty"`
	DelegateID string    `json:"delegate_id,omitempty"`
	StartedAt  time.Time `json:"started_at,omitzero"`
	EndedAt    time.Time `json:"ended_at,omitzero"`
}

// again runs a stage once more, if its policy says so and it has not been told to
// stop.
func (c *core) again(n *run) bool {
	why := OnFailure
	switch {
	case n.retry == nil || n.stopping != "" || n.failed == "" || n.StartedAt.IsZero(),
		len(n.Attempts)+1 >= n.retry.MaxAttempts:
		return false
	case n.lost:
		why = OnLost
	case n.failed == Timeout:
		why = OnTimeout
	}
	if !slices.Contains(n.retry.On, why) {
		return false
	}
	next := n.renewed(len(n.Attempts) + 2)
	if next == nil {
		return false
	}
	next.Attempts = append(slices.Clone(n.Attempts), Attempt{
		Status: n.failed, Error: n.Error, DelegateID: n.DelegateID, StartedAt: n.StartedAt, EndedAt: c.at,
	})
	w := next.work()
	if c.queue.Retry(n.account, n.ID, w.Variants, c.at.Add(n.retry.wait(len(next.Attempts)+1))) != nil {
		return false // it is forgotten
	}
	next.trace.Since = c.at
	*n = *next
	n.current = &n.init
	c.count(n.account, func(s *Stats) { s.Retried++ })
	c.publishStage(n)
	c.tell(n)
	return true
}

// renewed is the run as it begins once more, under ids of its own: what is left of
// an earlier attempt is cleaned up under the old ones. It is nil when a payload
// does not allow that.
func (n *run) renewed(attempt int) *run {
	next := *n
	next.Status, next.Error, next.DelegateID = Queued, "", ""
	next.StartedAt, next.EndedAt = time.Time{}, time.Time{}
	next.next, next.failed, next.lost, next.variant = 0, "", false, 0
	next.steps = slices.Clone(n.steps)
	for _, p := range next.parts {
		state := StepState{ID: p.ID, Name: p.Name, Status: Queued, TaskID: p.first + suffix(attempt)}
		if p.LogKey != "" {
			state.LogKey = attemptLogKey(p.firstLog, attempt)
		}
		data, err := retied(p.data, p.kind, attempt, state.LogKey)
		if err != nil {
			return nil
		}
		p.StepState, p.data = state, data
	}
	return &next
}

// suffix is what the ids of an attempt end with; nothing for the first one.
func suffix(attempt int) string {
	if attempt == 1 {
		return ""
	}
	return "-" + strconv.Itoa(attempt)
}

// attemptLogKey names the log of a later attempt, which no other part of the stage
// has.
func attemptLogKey(key string, attempt int) string {
	n := strconv.Itoa(attempt)
	return key + ":" + n + ":" + digestOf(key+" "+n)
}

// retied is a payload with the ids of an attempt: the first one's, and a suffix.
func retied(data json.RawMessage, kind task.Kind, attempt int, logKey string) (json.RawMessage, error) {
	o, err := parseObject("a payload", data)
	if err != nil {
		return nil, err
	}
	renew := func(o object, name string) {
		if id := o.text(name); id != "" {
			o[name], _ = json.Marshal(strings.TrimSuffix(id, suffix(attempt-1)) + suffix(attempt)) // a string always encodes
		}
	}
	renew(o, "group_id")
	if kind == task.Init && o.text("network") == "" {
		network, err := parseObject("init.network", o["network"])
		if err != nil {
			return nil, err
		}
		renew(network, "id")
		if o["network"], err = network.encode(); err != nil {
			return nil, err
		}
	} else {
		renew(o, "network")
	}
	if logKey != "" && !o.absent("log_key") {
		o["log_key"], _ = json.Marshal(logKey)
	}
	return o.encode()
}

// groups are those of the queue that a stage belongs to.
func (req *StageRequest) groups() []string {
	var out []string
	if req.Pipeline != "" {
		out = append(out, "pipeline:"+req.Pipeline)
	}
	for name, value := range req.Labels {
		out = append(out, "label:"+name+"="+value)
	}
	slices.Sort(out)
	return out
}

// Limit bounds how many stages of a group run at a time.
type Limit struct {
	// Group is "account", "pipeline:NAME", or "label:NAME=VALUE".
	Group string `json:"group"`
	// Max is how many stages delegates may have, Used how many they have.
	Max  int `json:"max"`
	Used int `json:"used"`
}

// wholeAccount is the group of all stages of an account.
const wholeAccount = "account"

func fromQueue(l queue.Limit) Limit {
	return Limit{Group: cmp.Or(l.Group, wholeAccount), Max: l.Max, Used: l.Used}
}
