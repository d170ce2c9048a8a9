package manager

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delegate-io/dlite/internal/taskkind"
	"github.com/delegate-io/dlite/manager/internal/queue"
	"github.com/delegate-io/dlite/task"
)

// Retry is a policy for running a failed stage again. A new attempt runs the whole
// stage, from its old place in the queue, and on another delegate if possible. A
// single task is submitted again.
type Retry struct {
	// MaxAttempts is the largest number of attempts, including the first, up to 100.
	// 0 and 1 mean no retry.
	MaxAttempts int `json:"max_attempts"`
	// On lists the ends that cause a retry. "lost" is the loss of the delegate,
	// "timeout" is a time-out, "failure" is any other end except success and abort.
	// Defaults to lost alone.
	On []string `json:"on,omitempty"`
	// Backoff is the time before the second attempt. It doubles for each further
	// attempt, up to MaxBackoff. They default to 1 second and 5 minutes.
	Backoff    task.Millis `json:"backoff_ms,omitempty"`
	MaxBackoff task.Millis `json:"max_backoff_ms,omitempty"`
}

// The values of [Retry.On].
const (
	retryOnLost    = "lost"
	retryOnTimeout = "timeout"
	retryOnFailure = "failure"
)

// complete returns the policy with its defaults. Nil stays nil.
func (r *Retry) complete() *Retry {
	if r == nil {
		return nil
	}
	own := *r
	if len(own.On) == 0 {
		own.On = []string{retryOnLost}
	}
	own.Backoff, own.MaxBackoff = cmp.Or(own.Backoff, 1000), cmp.Or(own.MaxBackoff, 5*60*1000)
	return &own
}

// wait returns the time before an attempt. The second attempt is 2.
func (r *Retry) wait(attempt int) time.Duration {
	d := r.Backoff.Duration()
	for range attempt - 2 {
		if d *= 2; d >= r.MaxBackoff.Duration() {
			break
		}
	}
	return min(d, r.MaxBackoff.Duration())
}

// Attempt describes an earlier run of a stage.
type Attempt struct {
	Status     Status    `json:"status"`
	Error      string    `json:"error_msg,omitempty"`
	DelegateID string    `json:"delegate_id,omitempty"`
	StartedAt  time.Time `json:"started_at,omitzero"`
	EndedAt    time.Time `json:"ended_at,omitzero"`
}

// retryStage starts another attempt of a stage if its policy allows it. It reports
// whether it did.
func (c *core) retryStage(n *run) bool {
	why := retryOnFailure
	switch {
	case n.lost:
		why = retryOnLost
	case n.failed == Timeout:
		why = retryOnTimeout
	}
	if n.stopping != "" || n.failed == "" || n.failed == Aborted || !n.allowsRetry(len(n.Attempts)+1, why) {
		return false
	}
	next := n.nextAttempt(len(n.Attempts) + 2)
	if next == nil {
		return false
	}
	next.Attempts = append(slices.Clone(n.Attempts), Attempt{
		Status: n.failed, Error: n.Error, DelegateID: n.DelegateID, StartedAt: n.Started, EndedAt: c.at,
	})
	w := next.queueWork()
	if c.queue.Retry(n.account, n.ID, w.Variants, c.at.Add(n.Retry.wait(len(next.Attempts)+1))) != nil {
		return false // the queue has forgotten the stage
	}
	*n = *next
	n.current = &n.init
	c.retried(n.account, &n.lifecycle)
	c.publishStage(n)
	c.updateQueueLog(n)
	return true
}

// nextAttempt returns the run at the beginning of another attempt. The attempt has
// its own ids, because earlier attempts are still cleaned up under theirs. It
// returns nil if a payload cannot be given new ids.
func (n *run) nextAttempt(attempt int) *run {
	next := *n
	next.Status, next.Error, next.FailureKind, next.DelegateID = Queued, "", "", ""
	next.EndedAt = time.Time{}
	next.next, next.failed, next.lost, next.variant = 0, "", false, 0
	next.steps = slices.Clone(n.steps)
	for _, p := range next.parts {
		state := StepState{ID: p.ID, Name: p.Name, Status: Queued, TaskID: p.first + attemptSuffix(attempt)}
		if p.LogKey != "" {
			state.LogKey = attemptLogKey(p.firstLog, attempt)
		}
		data, err := attemptPayload(p.data.json(), p.kind, attempt, state.LogKey)
		if err != nil {
			return nil
		}
		p.StepState = state
		if p.data.small != nil {
			p.data = pack(data)
		} else {
			p.data = packed{text: data}
		}
	}
	return &next
}

// attemptSuffix returns the ending of an attempt's ids. It is empty for the first
// attempt.
func attemptSuffix(attempt int) string {
	if attempt == 1 {
		return ""
	}
	return "-" + strconv.Itoa(attempt)
}

// attemptLogKey returns the key of a log of a later attempt. No other part of the
// stage has the same key.
func attemptLogKey(key string, attempt int) string {
	n := strconv.Itoa(attempt)
	return key + ":" + n + ":" + digestOf(key+" "+n)
}

// attemptPayload returns a payload with the ids of an attempt: the ids of the first
// attempt and a suffix.
func attemptPayload(data json.RawMessage, kind taskkind.Kind, attempt int, logKey string) (json.RawMessage, error) {
	o, err := parseObject("a payload", data)
	if err != nil {
		return nil, err
	}
	renew := func(o object, name string) {
		if id := o.text(name); id != "" {
			o[name], _ = json.Marshal(strings.TrimSuffix(id, attemptSuffix(attempt-1)) + attemptSuffix(attempt)) // a string always encodes
		}
	}
	renew(o, "group_id")
	if kind == taskkind.Init && o.text("network") == "" {
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

// groups returns the limit groups that a stage belongs to.
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

// Limit bounds how many stages of a group may run at a time.
type Limit struct {
	// Group is "account", "pipeline:NAME", or "label:NAME=VALUE".
	Group string `json:"group"`
	// Max is the largest number of running stages. Used is their current number.
	Max  int `json:"max"`
	Used int `json:"used"`
}

// wholeAccount is the group of all stages of an account.
const wholeAccount = "account"

func fromQueue(l queue.Limit) Limit {
	return Limit{Group: cmp.Or(l.Group, wholeAccount), Max: l.Max, Used: l.Used}
}
