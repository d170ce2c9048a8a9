package manager

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delegate-io/dlite/internal/taskkind"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/internal/queue"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// The values of [api.Retry.On].
const (
	retryOnLost    = "lost"
	retryOnTimeout = "timeout"
	retryOnFailure = "failure"
)

// complete returns the policy with its defaults. Nil stays nil.
func completeRetry(r *api.Retry) *api.Retry {
	if r == nil {
		return nil
	}
	own := *r
	if len(own.On) == 0 {
		own.On = []string{retryOnLost}
	}
	own.BackoffMS, own.MaxBackoffMS = cmp.Or(own.BackoffMS, 1000), cmp.Or(own.MaxBackoffMS, 5*60*1000)
	return &own
}

// wait returns the time before an attempt. The second attempt is 2.
func retryWait(r *api.Retry, attempt int) time.Duration {
	most := task.Millis(r.MaxBackoffMS).Duration()
	d := task.Millis(r.BackoffMS).Duration()
	for range attempt - 2 {
		if d *= 2; d >= most {
			break
		}
	}
	return min(d, most)
}

// retryStage starts another attempt of a stage if its policy allows it. It reports
// whether it did.
func (c *core) retryStage(n *run) bool {
	why := retryOnFailure
	switch {
	case n.lost, n.FailureKind == api.FailureDelegateLost: // the delegate is alive when only its machine is gone
		why = retryOnLost
	case n.failed == api.Timeout:
		why = retryOnTimeout
	}
	if n.stopping != "" || n.failed == "" || n.failed == api.Aborted || !n.allowsRetry(len(n.Attempts)+1, why) {
		return false
	}
	next := n.nextAttempt(len(n.Attempts) + 2)
	if next == nil {
		return false
	}
	next.Attempts = append(slices.Clone(n.Attempts), api.Attempt{
		Status: n.failed, Error: n.Error, DelegateID: n.DelegateID, StartedAt: n.Started, EndedAt: c.at,
	})
	w := next.queueWork()
	if c.queue.Retry(n.account, n.ID, w.Variants, c.at.Add(retryWait(n.Retry, len(next.Attempts)+1))) != nil {
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
	next.Status, next.Error, next.FailureKind, next.DelegateID = api.Queued, "", "", ""
	next.EndedAt = time.Time{}
	next.next, next.failed, next.lost, next.variant = 0, "", false, 0
	next.steps = slices.Clone(n.steps)
	for _, p := range next.parts {
		state := api.StepState{ID: p.ID, Name: p.Name, Status: api.Queued, TaskID: p.first + attemptSuffix(attempt)}
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
func groupsOf(req *api.StageRequest) []string {
	var out []string
	if req.Pipeline != "" {
		out = append(out, "pipeline:"+req.Pipeline)
	}
	for name, value := range req.Labels {
		out = append(out, "label:"+name+"="+value)
	}
	if pool := poolOf(req); pool != "" {
		out = append(out, poolGroup+pool)
	}
	slices.Sort(out)
	return out
}

// poolGroup is the prefix of the group of the stages for a pool of machines. With the group, the queue can count them.
const poolGroup = "pool:"

// poolOf returns the pool of machines that a stage names, and "" if it names none.
func poolOf(req *api.StageRequest) string {
	if req.Infra != "vm" || !bytes.Contains(req.Init, []byte(stage.PoolOption)) {
		return ""
	}
	var init struct {
		Network stage.Network `json:"network"`
	}
	if json.Unmarshal(req.Init, &init) != nil {
		return "" // the delegate reports it
	}
	return cut(init.Network.Options[stage.PoolOption], maxPoolName)
}

// maxPoolName is the longest name of a pool, in bytes.
const maxPoolName = 128

// wholeAccount is the group of all stages of an account.
const wholeAccount = "account"

func fromQueue(l queue.Limit) api.Limit {
	return api.Limit{Group: cmp.Or(l.Group, wholeAccount), Max: l.Max, Used: l.Used}
}
